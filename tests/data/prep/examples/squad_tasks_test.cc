#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "data/dataset/dataset.h"
#include "data/dataset/example_origins.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/examples/official_reading.h"

namespace anyorder::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

// Answers begin and end a passage, with an accent, a ligature, CJK, an emoji and double spaces.
constexpr char kNasty[] = "Caf\u00e9  of the \ufb01rst day, \u65e5\u672c and  2,000, \U0001F600";

Json Answer(const std::string& text, int64_t start) {
  return {{"text", text}, {"answer_start", start}};
}

// Not Json, because {x} would be x and no list of it.
using List = std::vector<Json>;

Json Question(const std::string& id, const List& answers) {
  return {{"id", id}, {"question", "which " + id + "?"}, {"answers", answers}};
}

Json File(const List& questions, const std::string& context = kNasty) {
  const Json paragraph = {{"context", context}, {"qas", questions}};
  const Json article = {{"title", "t"}, {"paragraphs", List{paragraph}}};
  return {{"version", "any"}, {"data", List{article}}};
}

// Of 2.0: those without answers have none.
List WithImpossible(List questions) {
  for (Json& question : questions) question["is_impossible"] = question["answers"].empty();
  return questions;
}

class SquadTasksTest : public OfficialTaskTest {
 protected:
  OfficialResult ReadQuestions(const std::string& task, const List& questions) const {
    return Read(task, "dev.json", File(questions).dump());
  }
  void ExpectQuestionFault(const std::string& task, const List& questions,
                           const std::string& message) const {
    ExpectFault(task, "dev.json", File(questions).dump(), message);
  }
};

TEST_F(SquadTasksTest, QuestionsComeWithAllAnswers) {
  const OfficialResult one = ReadQuestions(
      "squad1", {Question("a", {Answer("Caf\u00e9", 0), Answer("Caf\u00e9  of", 0)})});
  EXPECT_THAT(one.examples,
              ElementsAre(ReadBack{
                  "dev.json: question a",
                  "a",
                  {"which a?", "Cafe of the first day, \u65e5\u672c and 2,000, \U0001F600"},
                  "Caf\u00e9@0|Caf\u00e9  of@0"}));
  const OfficialResult two = ReadQuestions(
      "squad2", WithImpossible({Question("a", {}), Question("b", {Answer("day", 18)})}));
  ASSERT_EQ(two.examples.size(), 2u);
  EXPECT_EQ(two.examples[0].label, "no answer");
  EXPECT_EQ(two.examples[1].label, "day@18");
  // Test data: nobody knows.
  const OfficialResult test = ReadQuestions("squad2", List{{{"id", "x"}, {"question", "why?"}}});
  EXPECT_EQ(test.examples.at(0).label, "");
  EXPECT_EQ(ReadQuestions("squad1", {Question("x", {})}).examples.at(0).label, "");
}

TEST_F(SquadTasksTest, AnswersThatStandElsewhereAreReported) {
  const OfficialResult result = ReadQuestions(
      "squad1",
      {Question("a", {Answer("day", 17), Answer("day", 18)}), Question("b", {Answer("day", 1000)}),
       Question("c", {Answer("\u0301", 0)}), Question("d", {Answer("day", 18)})});
  ASSERT_EQ(result.examples.size(), 4u);
  EXPECT_EQ(result.examples[0].label, "day@17|day@18");
  EXPECT_EQ(result.examples[1].label, "day@1000");
  EXPECT_EQ(result.examples[3].id, "d");
  ASSERT_EQ(result.left_out.size(), 3u);
  EXPECT_THAT(result.left_out[0].path, HasSubstr("dev.json: question a"));
  EXPECT_EQ(
      result.left_out[0].reason,
      "the answer 'day' is not at character 17 of the passage, or holds no text; others of the "
      "question are");
  EXPECT_EQ(result.left_out[1].reason,
            "the answer 'day' is not at character 1000 of the passage, or holds no text; training "
            "leaves the question out");
}

// They are predicted and scored by the answers that they came with, and training leaves them out.
TEST_F(SquadTasksTest, QuestionsWithMisplacedAnswersAloneStayInTheDataset) {
  const std::string input = Store(
      "dev.json",
      File({Question("a", {Answer("day", 1000)}), Question("b", {Answer("day", 18)})}).dump());
  const ProgramResult result = RunPrepProgram(
      {"--task", "squad1", "--input", input, "--output", output_, "--vocab", TestModelPath()});
  ASSERT_EQ(result.exit_status, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("examples: 2 of span_extraction, 1 without a label\n"));
  const auto dataset = Dataset::Open(output_, {.verify = true}).value();
  EXPECT_EQ(dataset->index().counts.at(kMisplacedCount), 1u);
  EXPECT_FALSE(dataset->examples()->has_narrow_windows());
  EXPECT_EQ(dataset->examples()->LabelOf(0), -1);
  EXPECT_EQ(dataset->examples()->LabelOf(1), 1);
  const auto origins =
      ExampleOrigins::Open(*FileSystem::Posix(), output_, dataset->index(), *dataset->examples())
          .value();
  EXPECT_EQ(origins->Read(0)->answers->at(0).text, "day");
}

TEST_F(SquadTasksTest, FaultsNameFileAndQuestion) {
  ExpectFault("squad1", "dev.json", "{", "dev.json: not valid JSON");
  ExpectFault("squad1", "dev.json", "[1]", "dev.json: there is no list 'data'");
  ExpectFault("squad1", "dev.json", "{\"data\":[{}]}",
              "dev.json: data[0]: there is no list 'paragraphs'");
  ExpectFault("squad1", "dev.json", "{\"data\":[{\"paragraphs\":[{}]}]}",
              "paragraphs[0]: there is no list 'qas'");
  ExpectQuestionFault("squad1", List{{{"question", "x"}}}, "qas[0]: the question has no 'id'");
  ExpectQuestionFault("squad1", List{{{"id", "q7"}}}, "question q7: there is no 'context' or no");
  const Json good = Question("q7", {Answer("day", 18)});
  ExpectQuestionFault("squad1", {good, good}, "question q7: the identifier 'q7' was used before");
  ExpectQuestionFault("squad1", WithImpossible({good}), "pass --task squad2");
  ExpectQuestionFault("squad2", {good}, "pass --task squad1");
  List odd = WithImpossible({Question("q7", {})});
  odd[0]["is_impossible"] = false;
  ExpectQuestionFault("squad2", odd, "question q7: the question has 0 answers");
  odd = WithImpossible({good});
  odd[0]["is_impossible"] = true;
  ExpectQuestionFault("squad2", odd, "has 1 answers, but 'is_impossible' is true");
  odd[0]["is_impossible"] = "no";
  ExpectQuestionFault("squad2", odd, "not true or false");
  ExpectQuestionFault("squad1", {Question("q7", {Answer("day", -1)})}, "'answer_start'");
  odd[0]["answers"] = 3;
  ExpectQuestionFault("squad2", odd, "'answers' is not a list");
  ExpectFault("squad1", "dev.json", File({good}, " ").dump(),
              "question q7: the field 'context' holds no text");
  ExpectFault("squad1", "dev.jsonl", "{}", "dev.jsonl");
}

TEST_F(SquadTasksTest, AnswersSurviveTheWholeWay) {
  const std::vector<std::pair<std::string, int64_t>> answers = {{"Caf\u00e9", 0},
                                                                {"\U0001F600", 38},
                                                                {"\ufb01rst day", 13},
                                                                {"2,000", 31},
                                                                {"\u65e5\u672c and  2,000", 23},
                                                                {kNasty, 0},
                                                                {"the \ufb01rst", 9},
                                                                {"Caf\u00e9  of", 0}};
  List questions;
  for (size_t i = 0; i < answers.size(); ++i)
    questions.push_back(
        Question(absl::StrCat("q", i), {Answer(answers[i].first, answers[i].second)}));
  questions.push_back(Question("none", {}));
  const std::string input = Store("dev.json", File(WithImpossible(questions)).dump());
  const ProgramResult result = RunPrepProgram(
      {"--task", "squad2", "--input", input, "--output", output_, "--vocab", TestModelPath()});
  ASSERT_EQ(result.exit_status, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("questions without an answer: 1\n"));
  const auto dataset = Dataset::Open(output_, {.verify = true}).value();
  EXPECT_EQ(dataset->index().settings.at("task"), "squad2");
  const StoredExamples& examples = *dataset->examples();
  const auto origins =
      ExampleOrigins::Open(*FileSystem::Posix(), output_, dataset->index(), examples).value();
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto example = static_cast<int64_t>(i);
    const ExampleOrigin origin = origins->Read(example).value();
    EXPECT_EQ(origin.id, absl::StrCat("q", i));
    EXPECT_EQ(origin.passage->text, kNasty);
    EXPECT_EQ(origin.answers->at(0).text, answers[i].first);
    const ExampleOutline outline = examples.Outline(example).value();
    ASSERT_EQ(outline.label, 1);
    const CharacterRange slice{
        origin.passage->tokens[static_cast<size_t>(outline.answer_begin)].begin,
        origin.passage->tokens[static_cast<size_t>(outline.answer_end) - 1].end};
    EXPECT_EQ(CharactersOf(origin.passage->text, slice), answers[i].first);
  }
  EXPECT_EQ(examples.LabelOf(std::ssize(answers)), 0);
  EXPECT_THAT(*origins->Read(std::ssize(answers)).value().answers, IsEmpty());
  // The passage is stored once.
  const std::string stored = ReadFile(output_ + "/" + kOriginsFile);
  EXPECT_EQ(stored.find("\"passage\":"), stored.rfind("\"passage\":"));
}

}  // namespace
}  // namespace anyorder::data
