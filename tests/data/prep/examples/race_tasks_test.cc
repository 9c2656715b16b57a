// RACE's directories, written here in their official form.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/data/prep/examples/official_reading.h"

namespace anyorder::data {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr char kOptions[] = "[\"one\", \"two\", \"\", \"four\"]";

std::string Passage(const std::string& questions, const std::string& options,
                    const std::string& answers) {
  return "{\"article\": \"It  rained.\\nThey left.\", \"questions\": " + questions +
         ", \"options\": " + options + ", \"answers\": " + answers + ", \"id\": \"high7.txt\"}";
}

class RaceTest : public OfficialTaskTest {
 protected:
  void ExpectBad(const std::string& bytes, const std::string& message) {
    ExpectFault("race", "dev/high/7.txt", bytes, "/dev/high/7.txt" + message);
  }
};

TEST_F(RaceTest, OptionsFillBlanksOrFollowTheQuestion) {
  const std::string two = std::string("[") + kOptions + ", " + kOptions + "]";
  StoreInFolders("dev/middle/3.txt", Passage("[]", "[]", "[]"));
  const OfficialResult one =
      Read("race", "dev/high/7.txt",
           Passage("[\"They _ and _ .\", \"How many?\"]", two, "[\"B\", \"D\"]"));
  const ReadBack blanks = {"dev/high/7.txt#0",
                           "high/high7.txt#0",
                           {"It rained. They left.", "They one and one .", "They two and two .",
                            "They and .", "They four and four ."},
                           "1"};
  const ReadBack follows = {
      "dev/high/7.txt#1",
      "high/high7.txt#1",
      {"It rained. They left.", "How many? one", "How many? two", "How many?", "How many? four"},
      "3"};
  // A file, a folder of one level, or a split.
  EXPECT_THAT(one.examples, ElementsAre(blanks, follows));
  EXPECT_TRUE(Read("race", "dev/high").examples == one.examples);
  const OfficialResult split = Read("race", "dev");
  EXPECT_TRUE(split.examples == one.examples);
  ASSERT_THAT(split.left_out, SizeIs(1));
  EXPECT_EQ(split.left_out[0].path, folder_ + "/dev/middle/3.txt");
  EXPECT_EQ(split.left_out[0].reason, "has no question");
}

TEST_F(RaceTest, BadPassagesAreNamed) {
  const std::string one = std::string("[") + kOptions + "]";
  ExpectBad("{\"article\": ",
            ": not valid JSON (line 2, column 1: unexpected end of input; expected '[', '{', or a "
            "literal); take a "
            "fresh copy of the file");
  ExpectBad("[]", ": not a JSON object");
  ExpectBad("{\"article\": 3}", ": there is no field 'article' that is a string");
  ExpectBad("{\"article\": \"a\", \"id\": \"x\"}",
            ": there is no field 'questions' that is a list");
  ExpectBad(Passage("[\"a\"]", one, "[]"), ": 1 questions have 0 answers");
  ExpectBad(Passage("[7]", one, "[\"A\"]"), "#0: the question is not a string");
  ExpectBad(Passage("[\"a\"]", "[[\"b\", \"c\"]]", "[\"A\"]"),
            "#0: the question has not four options");
  ExpectBad(Passage("[\"a\"]", "[[\"b\", \"c\", 3, \"d\"]]", "[\"A\"]"),
            "#0: option 2 of the question is not a string");
  ExpectBad(Passage("[\"a\"]", one, "[\"E\"]"), "#0: the answer 'E' is none of A, B, C, D");
  ExpectBad(Passage("[\"a\"]", one, "[1]"), "#0: the answer '' is none of");
  ExpectBad(Passage("[\"_\"]", one, "[\"A\"]"), "#0: the field 'options[0][2]' holds no text");
  ExpectFault(
      "race", "dev/7.txt", Passage("[]", "[]", "[]"),
      "dev/7.txt: the file is in the folder 'dev', but RACE has its files in folders middle");
}

TEST_F(RaceTest, SplitsStayApart) {
  const std::string passage = Passage("[\"a\"]", std::string("[") + kOptions + "]", "[\"A\"]");
  StoreInFolders("dev/high/7.txt", passage);
  StoreInFolders("test/high/7.txt", passage);
  ExpectFault("race", "", "holds several splits");
  // The same passage twice.
  StoreInFolders("dev/high/8.txt", passage);
  ExpectFault("race", "dev",
              "dev/high/8.txt#0: the identifier 'high/high7.txt#0' was used before, in");
}

}  // namespace
}  // namespace anyorder::data
