// TREC's topics, judgments and runs, written here in their official forms.

#include "data/trec/trec_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"

#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::data {
namespace {

using testing::SizeIs;

class TrecTest : public testing::Test {
 protected:
  const std::string& Store(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    return path_;
  }

  template <typename Reader>
  void ExpectFault(Reader read, const std::string& bytes, const std::string& message) const {
    EXPECT_THAT(read(Store(bytes)).status(), Fails(absl::IsDataLoss, path_, message)) << bytes;
  }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/file";
};

TEST_F(TrecTest, TopicsAreReadFromLinesAndXml) {
  const std::string xml =
      "<webtrack2010>\n\n<topic number=\"51\" type=\"faceted\">\n  <query>red  shoes\n &amp; "
      "socks</query>\n  <description>x</description>\n  <subtopic number=\"1\" type=\"inf\">y"
      "</subtopic>\n</topic>\n<topic number='52'><query>a:b</query></topic>\n</webtrack2010>\n";
  const std::string lines = "wt10-51: red shoes & socks\r\n\n52:a:b", mark = "\xEF\xBB\xBF";
  for (const std::string& bytes : {xml, lines, mark + xml, mark + lines}) {
    const auto topics = ReadTrecTopics(Store(bytes)).value();
    ASSERT_THAT(topics, SizeIs(2));
    EXPECT_EQ(topics[0].id, "51");
    EXPECT_EQ(topics[0].query, "red shoes & socks");
    EXPECT_EQ(topics[1].id, "52");
    EXPECT_EQ(topics[1].query, "a:b");
  }
}

TEST_F(TrecTest, FaultsAreNamedByLine) {
  ExpectFault(ReadTrecTopics, "1:a\nb\n", ":2: the line is not NUMBER:QUERY");
  ExpectFault(ReadTrecTopics, "1:a\n\n1:b\n", ":3: topic 1 was in line 1 before");
  ExpectFault(ReadTrecTopics, "1: \n", ":1: topic 1 has no query");
  ExpectFault(ReadTrecTopics, ":a\n", ":1: the topic has no number");
  ExpectFault(ReadTrecTopics, "\n \n", "is empty");
  ExpectFault(ReadTrecTopics, "<t>\n<topic number=\"1\">\n<query>a</query>\n", ":2: the element");
  ExpectFault(ReadTrecTopics, "<topic number=\"1\">\n<topic number=\"2\"><query>a</query></topic>",
              ":1: the element <topic> is not closed");
  ExpectFault(ReadTrecTopics, "<t>\n\n<topic number=\"1\"></topic>\n", ":3: topic 1 has no query");
  ExpectFault(ReadTrecTopics, "<topic type=\"x\"><query>a</query></topic>", "has no number");
  ExpectFault(ReadTrecTopics, "<top>\n<num> Number: 1\n</top>\n", "has no <topic number=");

  const std::string judged = "1 0 doc-a 2\n";
  ExpectFault(ReadTrecJudgments, judged + "1 0 doc-b\n",
              ":2: the line has 3 columns, but 4 are needed: topic, subtopic, document, relevance");
  ExpectFault(ReadTrecJudgments, judged + "1 0 doc-b 1.5\n", ":2: the relevance '1.5' is not");
  ExpectFault(ReadTrecJudgments, judged + judged, ":2: document doc-a of topic 1 was in line 1");
  ExpectFault(ReadTrecJudgments, "", "is empty");

  const std::string run = "1 Q0 doc-a 1 3.5 sys\n";
  ExpectFault(ReadTrecRun, run + "1 Q0 doc-b 2 3.5\n", ":2: the line has 5 columns, but 6");
  ExpectFault(ReadTrecRun, run + "1 Q0 doc-b x 3.5 sys\n", ":2: the rank 'x' is not");
  ExpectFault(ReadTrecRun, run + "1 Q0 doc-b -1 3.5 sys\n", ":2: the rank '-1' is not");
  ExpectFault(ReadTrecRun, run + "1 Q0 doc-b 2 inf sys\n", ":2: the score 'inf' is not");
  ExpectFault(ReadTrecRun, run + "\n" + run, ":3: document doc-a of topic 1 was in line 1 before");
  EXPECT_TRUE(absl::IsNotFound(ReadTrecRun(path_ + ".none").status()));
}

TEST_F(TrecTest, RandomJudgmentsAndRunsComeBack) {
  std::mt19937_64 random(3);
  std::string judged, ranked;
  const auto gap = [&] { return random() % 2 == 0 ? " " : " \t "; };
  for (int i = 0; i < 500; ++i) {
    const auto relevance = static_cast<int>(random() % 6) - 2;
    absl::StrAppend(&judged, i % 50, gap(), i % 3, gap(), "d", i, gap(), relevance, "\n");
    absl::StrAppend(&ranked, i % 50, gap(), "Q0", gap(), "d", i, gap(), i, gap(), i * 0.25, gap(),
                    "s", relevance, i % 2 == 0 ? "\r\n" : "\n");
  }
  const auto judgments = ReadTrecJudgments(Store(judged)).value();
  std::string judged_again, ranked_again;
  for (const TrecJudgment& one : judgments)
    absl::StrAppend(&judged_again, one.topic, one.subtopic, one.document, one.relevance, "\n");
  const auto run = ReadTrecRun(Store(ranked)).value();
  for (const TrecRunEntry& one : run)
    absl::StrAppend(&ranked_again, one.topic, "Q0", one.document, one.rank, one.score, one.tag,
                    "\n");
  const auto without_gaps = [](std::string text) {
    std::erase_if(text, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
    return text;
  };
  EXPECT_EQ(judged_again, without_gaps(judged));
  EXPECT_EQ(ranked_again, without_gaps(ranked));
}

}  // namespace
}  // namespace anyorder::data
