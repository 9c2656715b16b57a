// The tables of Zhang et al. 2015, written here in their official form.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "tests/data/prep/examples/official_reading.h"

namespace anyorder::data {
namespace {

using testing::ElementsAre;

class TopicTest : public OfficialTaskTest {};

TEST_F(TopicTest, QuotesAndEscapesBecomeText) {
  const OfficialResult yelp =
      Read("yelp5", "train.csv",
           "\"5\",\"He said \"\"go\"\", so I went.\\n\\nGreat \\\"\"pie\\\"\"\"\n");
  const ReadBack review = {"train.csv:1", "", {"He said \"go\", so I went. Great \"pie\""}, "5"};
  EXPECT_THAT(yelp.examples, ElementsAre(review));
  const OfficialResult ag =
      Read("ag", "test.csv", "\"4\",\"Moon (AP)\",\"AP - A\\new moon\\rose.\"\n");
  // Of AG's news a backslash is a line end by itself: "A" and "new" would be two lines.
  const ReadBack news = {"test.csv:1", "", {"Moon (AP) AP - A new moon rose."}, "Sci/Tech"};
  EXPECT_THAT(ag.examples, ElementsAre(news));
  const OfficialResult dbpedia =
      Read("dbpedia", "train.csv", "14,\"A Book\",\" A Book is a book.\"\n");
  const ReadBack book = {"train.csv:1", "", {"A Book A Book is a book."}, "WrittenWork"};
  EXPECT_THAT(dbpedia.examples, ElementsAre(book));
  // A title may be missing; a cell may hold a line end.
  const OfficialResult amazon =
      Read("amazon2", "t.csv", "\"1\",\"\",\"Broke\nsoon\"\n\"2\",\"Fine\",\"\"\n");
  const ReadBack first = {"t.csv:1", "", {"Broke soon"}, "1"};
  const ReadBack second = {"t.csv:3", "", {"Fine"}, "2"};
  EXPECT_THAT(amazon.examples, ElementsAre(first, second));
}

TEST_F(TopicTest, BadRowsAreNamedByFileAndLine) {
  const std::string good = "\"1\",\"good\"\n";
  ExpectFault("yelp2", "f.csv", good + "\"3\",\"x\"\n",
              "f.csv:2: the class '3' is not a number from 1 to 2; repair the row");
  ExpectFault("yelp2", "f.csv", "label,text\n", "f.csv:1: the class 'label' is not a number");
  ExpectFault("yelp2", "f.csv", "\"1\",\"title\",\"text\"\n",
              "f.csv:1: the row has 3 cells, but those of --task yelp2 have 2");
  ExpectFault("yelp2", "f.csv", good + "\"1\",\"x\",\"y\"\n", "f.csv:2: the row has 3 cells");
  ExpectFault("yelp2", "f.csv", good + "\"1\",\"\\n\"\n",
              "f.csv:2: the field 'text' holds no text");
  ExpectFault("yelp2", "f.csv", good + "\"1\",\"x\n",
              "f.csv:2: the quotes of a cell are not closed");
  ExpectFault("yelp2", "f.tsv", good, "f.tsv' is no .csv file");
}

TEST_F(TopicTest, RandomRowsComeBack) {
  std::mt19937_64 random(7);
  static const char* const kWords[] = {"a", "\"", "x,y", "it's", "''", "3,000", "\xC3\x9F", "\\x"};
  const auto text = [&] {
    std::vector<std::string> words(1 + random() % 8);
    for (std::string& word : words) word = kWords[random() % 4];
    words.push_back(kWords[5 + random() % 3]);
    return absl::StrJoin(words, " ");
  };
  // A text as the readme says: quotes doubled, line ends as backslash and n.
  const auto cell = [&](const std::string& text, bool has_lines) {
    std::string stored = absl::StrReplaceAll(text, {{"\"", "\"\""}});
    if (has_lines) stored = absl::StrReplaceAll(stored, {{" ", "\\n"}});
    return absl::StrCat("\"", stored, "\"");
  };
  for (const char* name : {"yelp2", "yelp5", "dbpedia", "amazon2", "amazon5"}) {
    const OfficialTask& task = **FindOfficialTask(name);
    const bool has_title = absl::string_view(name).substr(0, 4) != "yelp";
    std::string bytes;
    std::vector<ReadBack> expected;
    for (int row = 0; row < 200; ++row) {
      const size_t label = random() % task.classes.size();
      const std::string title = text(), body = text();
      absl::StrAppend(&bytes, "\"", label + 1, "\"", has_title ? "," + cell(title, false) : "", ",",
                      cell(body, row % 2 == 0), "\n");
      expected.push_back({absl::StrCat("r.csv:", row + 1),
                          "",
                          {has_title ? absl::StrCat(title, " ", body) : body},
                          task.classes[label]});
    }
    const OfficialResult result = Read(name, "r.csv", bytes);
    EXPECT_TRUE(result.examples == expected) << name;
  }
}

}  // namespace
}  // namespace anyorder::data
