// Likelihoods of texts and choices by a service that says what the test knows.

#include "launcher/likelihood/likelihood.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "tests/launcher/serve/fake_service.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using SummaryJson = nlohmann::ordered_json;

// Each byte of a continuation is a token, of -1/8 nats if it is small and less the longer the
// context; "fault" cannot be scored.
class FakeScorer : public FakeTextService {
 public:
  FakeScorer() { mutable_facts() = {.run_dir = "runs/judge", .step = 7, .objective = "gpt"}; }

  absl::StatusOr<TextScore> Score(const ScoreRequest& request) override {
    if (absl::StrContains(request.continuation, "fault")) return InvalidArgument("too long");
    scored.push_back(request);
    return Of(request.context, request.continuation);
  }
  TextScore Of(const std::string& context, const std::string& text) const {
    double log_prob = -static_cast<double>(context.size());
    for (const char c : text) log_prob -= c / 8.0;
    return {.log_prob = log_prob,
            .standard_error = is_exact ? 0 : 0.5,
            .is_exact = is_exact,
            .tokens = std::ssize(text),
            .bytes = std::ssize(text)};
  }

  bool is_exact = true;
};

class LikelihoodTest : public ::testing::Test {
 protected:
  std::string Store(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_.path() + "/" + name, std::ios::binary) << bytes;
    return folder_.path() + "/" + name;
  }
  LikelihoodInput Read(const std::string& name, const std::string& bytes) const {
    return ReadLikelihoodInput(Store(name, bytes)).value();
  }
  void ExpectRefused(const std::string& name, const std::string& bytes,
                     const std::string& message) const {
    EXPECT_THAT(ReadLikelihoodInput(Store(name, bytes)).status(), Exits(kExitData, message));
  }
  std::vector<std::vector<TextScore>> Score(const LikelihoodInput& input,
                                            const LikelihoodOptions& options = {}) {
    return ScoreItems(
               input, options, [](int64_t, int64_t) { return true; }, service_)
        .value();
  }
  SummaryJson Summary(const LikelihoodInput& input) {
    return LikelihoodSummary(input, Score(input), {{5, 5}, {5}}, service_.facts());
  }

  const TemporaryDirectory folder_;
  FakeScorer service_;
};

TEST_F(LikelihoodTest, TextsComeFromGenerateOrAreLines) {
  const LikelihoodInput written =
      Read("a.jsonl",
           "{\"prompt\":1,\"rank\":1,\"input\":\"A\",\"text\":\" b\",\"score\":1}\r\n\n"
           "{\"text\":\"\"}\n{\"input\":null,\"text\":\"c\"}\n");
  EXPECT_FALSE(written.has_choices);
  EXPECT_EQ(written.empty_texts, 1);
  ASSERT_EQ(written.items.size(), 2);
  EXPECT_EQ(written.items[0].context, "A");
  EXPECT_THAT(written.items[0].texts, ElementsAre(" b"));
  EXPECT_EQ(written.items[1].line, 4);
  EXPECT_EQ(written.items[1].context, "");
  const LikelihoodInput lines = Read("a.txt", "{one}\r\n\ntwo");
  ASSERT_EQ(lines.items.size(), 2);
  EXPECT_THAT(lines.items[0].texts, ElementsAre("{one}"));
  EXPECT_EQ(lines.items[1].line, 3);
}

TEST_F(LikelihoodTest, QuestionsHaveChoices) {
  const LikelihoodInput input =
      Read("a.jsonl",
           "{\"input\":\"Q\",\"choices\":[\" a\",\" b\"],\"answer\":1}\n"
           "{\"context\":\"R\",\"choices\":[\"c\",\"d\",\"e\"],\"label\":0}\n"
           "{\"choices\":[\"f\",\"g\"],\"answer\":null}\n");
  EXPECT_TRUE(input.has_choices);
  ASSERT_EQ(input.items.size(), 3);
  EXPECT_EQ(input.items[0].context, "Q");
  EXPECT_EQ(input.items[0].answer, 1);
  EXPECT_EQ(input.items[1].context, "R");
  EXPECT_THAT(input.items[1].texts, ElementsAre("c", "d", "e"));
  EXPECT_EQ(input.items[1].answer, 0);
  EXPECT_EQ(input.items[2].answer, -1);
}

TEST_F(LikelihoodTest, OtherLinesAreRefusedWithTheirPlace) {
  ExpectRefused("a.jsonl", "", "a.jsonl holds no text");
  ExpectRefused("a.txt", "\n\n", "a.txt holds no text");
  ExpectRefused("a.jsonl", "\ntext\n", "a.jsonl:2: not valid JSON (column 2: invalid literal)");
  ExpectRefused("a.jsonl", "{\"words\":\"a\"}", "a.jsonl:1: there is no 'text' and no 'choices'");
  ExpectRefused("a.jsonl", "{\"text\":1}", "a.jsonl:1: 'text' is not a string");
  ExpectRefused("a.jsonl", "{\"text\":\"a\\u0000\"}", "a.jsonl:1: byte 1 of 'text' is NUL");
  ExpectRefused("a.jsonl", "{\"text\":\"a\",\"input\":[]}", "'input' is not a string");
  ExpectRefused("a.jsonl", "{\"choices\":[\"a\"]}", "not a list of at least two strings");
  ExpectRefused("a.jsonl", "{\"choices\":[\"a\",\"\"]}", "choice 1 of 'choices' is empty");
  for (const char* answer : {"2", "-1", "1.0", "\"a\"", "18446744073709551615"}) {
    ExpectRefused("a.jsonl", absl::StrCat("{\"choices\":[\"a\",\"b\"],\"answer\":", answer, "}"),
                  "a.jsonl:1: 'answer' is not the number of a choice, from 0 to 1");
  }
  ExpectRefused("a.jsonl", "{\"text\":\"a\"}\n{\"choices\":[\"a\",\"b\"]}",
                "a.jsonl:2: choices and texts do not go together");
  ExpectRefused("a.txt", "good\n\xFF\n", "a.txt:2: byte 0 of the line is not valid UTF-8");
}

TEST_F(LikelihoodTest, ChoicesOfALineShareTheirDraws) {
  std::string bytes;
  for (int line = 1; line <= 7; ++line)
    absl::StrAppend(&bytes, "{\"input\":\"", line, "\",\"choices\":[\"a\",\"bb\",\"c", line,
                    "\"]}\n");
  const LikelihoodInput input = Read("a.jsonl", bytes);
  const auto scores = Score(input, {.bound_samples = 9, .seed = 40});
  ASSERT_EQ(service_.scored.size(), 21);
  for (size_t i = 0; i < 7; ++i) {
    ASSERT_EQ(scores[i].size(), 3);
    for (size_t t = 0; t < 3; ++t) {
      EXPECT_EQ(scores[i][t].log_prob,
                service_.Of(input.items[i].context, input.items[i].texts[t]).log_prob);
      EXPECT_EQ(service_.scored[3 * i + t].seed, 40 + 1 + i);
      EXPECT_EQ(service_.scored[3 * i + t].bound_samples, 9);
    }
  }
}

TEST_F(LikelihoodTest, TheServicesFaultsNameTheLines) {
  const LikelihoodInput input = Read("a.txt", "a\nb\nc\nfault\ne\n");
  const auto all = [](int64_t, int64_t) { return true; };
  EXPECT_THAT(ScoreItems(input, {}, all, service_).status(), Says("a.txt:4: too long"));
}

TEST_F(LikelihoodTest, ASignalEndsTheWork) {
  const LikelihoodInput input = Read("a.txt", "a\nb\nc\n");
  EXPECT_THAT(ScoreItems(
                  input, {}, [](int64_t done, int64_t) { return done < 2; }, service_)
                  .status(),
              Exits(kExitRequeue, "after 2 of 3 texts"));
}

TEST_F(LikelihoodTest, RatesHaveTheErrorOfLeavingOneOut) {
  EXPECT_EQ(RateOf({6, 2}, {2, 2}).mean, 2);
  // (6 - 4)^2 + (2 - 4)^2 = 8, times 2 / 1, its root by 4.
  EXPECT_EQ(RateOf({6, 2}, {2, 2}).standard_error, 1);
  EXPECT_TRUE(std::isnan(RateOf({6}, {2}).standard_error));
  EXPECT_TRUE(std::isnan(RateOf({}, {}).mean));
  // Of many texts it is the jackknife's, which needs no formula of a ratio. The two differ by terms
  // of the order of one text's share.
  std::mt19937_64 random(3);
  std::vector<double> values, units;
  for (int i = 0; i < 2000; ++i) {
    units.push_back(static_cast<double>(10 + random() % 20));
    values.push_back(units.back() * static_cast<double>(random() % 100) / 30);
  }
  double value = 0, unit = 0;
  for (size_t i = 0; i < values.size(); ++i) value += values[i], unit += units[i];
  double squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double without = (value - values[i]) / (unit - units[i]);
    squares += (without - value / unit) * (without - value / unit);
  }
  const double jackknife = std::sqrt(squares * 1999 / 2000);
  EXPECT_NEAR(RateOf(values, units).standard_error, jackknife, jackknife * 0.005);
}

TEST_F(LikelihoodTest, SummaryOfTextsIsTheirSums) {
  service_.is_exact = false;
  const LikelihoodInput input =
      Read("a.jsonl", "{\"input\":\"Q\",\"text\":\"@@ @@\"}\n{\"text\":\"\"}\n{\"text\":\"@\"}\n");
  const SummaryJson json = Summary(input);
  // '@' is 64, ' ' 32: 8 and 4 nats; the context costs 1.
  EXPECT_EQ(json["kind"], "likelihood");
  EXPECT_EQ(json["run"], "runs/judge");
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["objective"], "gpt");
  EXPECT_EQ(json["is_exact"], false);
  EXPECT_EQ(json["texts"], 2);
  EXPECT_EQ(json["empty_texts"], 1);
  EXPECT_EQ(json["tokens"], 6);
  EXPECT_EQ(json["bytes"], 6);
  EXPECT_EQ(json["log_prob"], -45);
  EXPECT_EQ(json["nats_per_token"], 7.5);
  EXPECT_DOUBLE_EQ(json["bits_per_token"].get<double>(), 7.5 / std::log(2));
  EXPECT_DOUBLE_EQ(json["bits_per_byte"].get<double>(), 7.5 / std::log(2));
  EXPECT_DOUBLE_EQ(json["perplexity"].get<double>(), std::exp(7.5));
  // Residuals 37 - 37.5 and 8 - 7.5.
  EXPECT_DOUBLE_EQ(json["standard_error"].get<double>(), std::sqrt(2 * 0.5) / 6);
  EXPECT_DOUBLE_EQ(json["perplexity_standard_error"].get<double>(),
                   std::exp(7.5) * std::sqrt(2 * 0.5) / 6);
  EXPECT_DOUBLE_EQ(json["sampling_error"].get<double>(), std::sqrt(0.5) / 6);
  EXPECT_DOUBLE_EQ(json["distinct_1"].get<double>(), 1.0 / 3);
  EXPECT_TRUE(std::isnan(json["distinct_4"].get<double>()));
  EXPECT_THAT(json.dump(), HasSubstr("\"distinct_4\":null"));
  EXPECT_EQ(json["length"], 1.5);
  const std::string table = LikelihoodTable(json);
  EXPECT_THAT(table, HasSubstr("runs/judge, step 7, gpt"));
  EXPECT_THAT(table, HasSubstr("lower bounds: nats, bits and perplexity are at most these"));
  EXPECT_THAT(table, HasSubstr("2 (and 1 without a token), 6 tokens, 6 bytes"));
  EXPECT_THAT(table, HasSubstr("nats per token     7.5000 +- 0.1667\n"));
  EXPECT_THAT(table, HasSubstr("distinct 1 to 4    0.3333 1.0000 - -\n"));
}

TEST_F(LikelihoodTest, SummaryOfChoicesIsTheirAccuracy) {
  // Longer ones are less probable, but per byte the smaller letter wins.
  const LikelihoodInput input = Read("a.jsonl",
                                     "{\"choices\":[\"B\",\"AA\"],\"answer\":0}\n"
                                     "{\"choices\":[\"B\",\"AA\"],\"answer\":1}\n"
                                     "{\"choices\":[\"A\",\"B\",\"A\"],\"answer\":0}\n"
                                     "{\"choices\":[\"A\",\"B\"]}\n");
  const SummaryJson json = Summary(input);
  EXPECT_EQ(json["questions"], 4);
  EXPECT_EQ(json["answered"], 3);
  EXPECT_EQ(json["is_exact"], true);
  EXPECT_DOUBLE_EQ(json["accuracy"].get<double>(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(json["accuracy_standard_error"].get<double>(), std::sqrt(2.0 / 9 / 2));
  EXPECT_DOUBLE_EQ(json["accuracy_per_byte"].get<double>(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(json["chance"].get<double>(), (0.5 + 0.5 + 1.0 / 3) / 3);
  const auto scores = Score(input);
  EXPECT_EQ(
      LikelihoodLine(input.items[1], scores[1]),
      "{\"line\":2,\"choices\":[{\"log_prob\":-8.25,\"standard_error\":0.0,\"is_exact\":true,"
      "\"tokens\":1,\"bytes\":1},{\"log_prob\":-16.25,\"standard_error\":0.0,\"is_exact\":true,"
      "\"tokens\":2,\"bytes\":2}],\"best\":0,\"best_per_byte\":1,\"answer\":1}\n");
  EXPECT_THAT(LikelihoodTable(json), HasSubstr("questions          4, 3 with an answer\n"));
  EXPECT_THAT(LikelihoodTable(json), HasSubstr("accuracy           0.6667 +- 0.3333\n"));
  EXPECT_THAT(LikelihoodTable(json), HasSubstr("probabilities      exact\n"));
}

TEST_F(LikelihoodTest, QuestionsWithoutAnswersHaveNoAccuracy) {
  const SummaryJson json = Summary(Read("a.jsonl", "{\"choices\":[\"A\",\"B\"]}\n"));
  EXPECT_EQ(json["answered"], 0);
  EXPECT_FALSE(json.contains("accuracy"));
  EXPECT_THAT(LikelihoodTable(json), HasSubstr("questions          1, 0 with an answer\n"));
}

TEST_F(LikelihoodTest, LinesOfTextsHaveTheirScore) {
  const LikelihoodInput input = Read("a.txt", "\n@\n");
  EXPECT_EQ(LikelihoodLine(input.items[0], Score(input)[0]),
            "{\"line\":2,\"log_prob\":-8.0,\"standard_error\":0.0,\"is_exact\":true,\"tokens\":1,"
            "\"bytes\":1}\n");
}

}  // namespace
}  // namespace anyorder::launcher
