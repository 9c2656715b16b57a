// What heads say of lanes, by what else must hold of it; their gradients are in
// objective_gradient_cases.cc.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "tests/core/network/model_testing.h"
#include "tests/testing/fenced_backend.h"

namespace anyorder::testing {
namespace {

constexpr int64_t kSpanLength = 16;

ModelConfig SpanModel(SpanHeadKind kind, bool answer_class) {
  ModelConfig model = SmallModel();
  model.mem_len = 0;
  model.task = {.task = ExampleTask::kSpans, .span_head = kind, .answer_class = answer_class};
  return model;
}

// A passage of five tokens, so that the search tries every start and end.
TextSample SpanSample(int32_t begin, int32_t end) {
  TextSample sample = {
      .vocabulary = {.separator = 4, .classifier = 3, .mask = 6, .size = kSmallVocab, .begin = 1}};
  sample.parts = {{8, 9}, {7, 12, 9, 11, 10}};
  sample.label = begin >= 0 ? 1 : 0;
  sample.answer_begin = begin;
  sample.answer_end = end;
  return sample;
}

class SpanHeadTest : public ::testing::TestWithParam<SpanHeadKind> {
 protected:
  TaskResult ResultOf(const ModelConfig& model, int32_t begin, int32_t end, bool training = false) {
    const auto objective =
        MakeObjectiveOrDie("xlnet_finetuning", model, OneWaySampling(kSpanLength));
    // Another lane beside, whose passage is shorter than what is searched.
    TextSample other = SpanSample(-1, -1);
    other.parts[1].resize(2);
    return RunOnce(model, BuildBatch(*objective, {other, SpanSample(begin, end)}), training)
        .task_results[1];
  }
  // -2 * loss of a label: its log probability.
  double LogProbability(const ModelConfig& model, int32_t begin, int32_t end) {
    return -2 * ResultOf(model, begin, end).loss;
  }
};

TEST_P(SpanHeadTest, SpansAreRankedByTheProbabilitiesThatTheLossIsMadeOf) {
  const ModelConfig model = SpanModel(GetParam(), false);
  std::vector<std::pair<double, std::pair<int32_t, int32_t>>> all;
  for (int32_t begin = 0; begin < 5; ++begin)
    for (int32_t end = begin + 1; end <= 5; ++end)
      all.push_back({-LogProbability(model, begin, end), {begin, end}});
  std::sort(all.begin(), all.end());
  const TaskResult result = ResultOf(model, -1, -1);
  ASSERT_EQ(result.spans.size(), all.size());
  // BERT's scores are not normalised: their distances are.
  const double shift = -all[0].first - result.spans[0].log_probability;
  if (GetParam() == SpanHeadKind::kConditional) {
    EXPECT_NEAR(shift, 0, 1e-12);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(result.spans[i].begin, all[i].second.first) << i;
    EXPECT_EQ(result.spans[i].end, all[i].second.second) << i;
    EXPECT_NEAR(result.spans[i].log_probability + shift, -all[i].first, 1e-12) << i;
  }
  EXPECT_NEAR(result.null_log_probability + shift, LogProbability(model, -1, -1), 1e-12);
  EXPECT_EQ(result.num_judged, 1);
  EXPECT_EQ(result.num_correct, result.says_none() ? 1 : 0);
  const auto [begin, end] = all[0].second;
  EXPECT_EQ(ResultOf(model, begin, end).num_correct, result.says_none() ? 0 : 1);
}

// Against tokens counted one by one, for every answer that the passage may have.
TEST_P(SpanHeadTest, F1IsOfTheTokensThatAreFoundAndThoseOfTheAnswer) {
  const ModelConfig model = SpanModel(GetParam(), false);
  const TaskResult none = ResultOf(model, -1, -1);
  EXPECT_EQ(none.span_f1, none.says_none() ? 1 : 0);
  ASSERT_FALSE(none.says_none());
  const SpanCandidate& found = none.spans[0];
  for (int32_t begin = 0; begin < 5; ++begin) {
    for (int32_t end = begin + 1; end <= 5; ++end) {
      double shared = 0, only_found = 0, only_given = 0;
      for (int32_t token = 0; token < 5; ++token) {
        const bool is_found = found.begin <= token && token < found.end;
        const bool is_given = begin <= token && token < end;
        shared += is_found && is_given ? 1 : 0;
        only_found += is_found && !is_given ? 1 : 0;
        only_given += is_given && !is_found ? 1 : 0;
      }
      const double expected = shared / (shared + (only_found + only_given) / 2);
      EXPECT_NEAR(ResultOf(model, begin, end).span_f1, expected, 1e-15) << begin << " " << end;
    }
  }
}

// As in write_predictions of XLNet's run_squad.py, all pairs of the search stay: which ones count
// is asked before the best are taken. Five starts have five ends each, or those behind them.
TEST(LongPassageTest, AllPairsOfTheConditionalSearchAreTold) {
  const ModelConfig model = SpanModel(SpanHeadKind::kConditional, false);
  const auto objective = MakeObjectiveOrDie("xlnet_finetuning", model, OneWaySampling(64));
  TextSample sample = SpanSample(-1, -1);
  for (int32_t i = 0; i < 40; ++i) sample.parts[1].push_back(7 + i % 6);
  const TaskResult result = RunOnce(model, BuildBatch(*objective, {sample})).task_results[0];
  std::map<int32_t, int64_t> ends;  // by start
  for (const SpanCandidate& span : result.spans) ++ends[span.begin];
  EXPECT_EQ(ends.size(), 5u);
  for (const auto& [begin, count] : ends)
    EXPECT_EQ(count, std::min<int64_t>(5, std::ssize(sample.parts[1]) - begin)) << begin;
}

INSTANTIATE_TEST_SUITE_P(Kinds, SpanHeadTest,
                         ::testing::Values(SpanHeadKind::kConditional, SpanHeadKind::kSimple),
                         [](const auto& info) { return std::string(EnumName(info.param)); });

// A search queues more once the host has read the first results.
TEST(AnswerClassTest, ASearchInMemoryThatIsNotTheHostsFindsTheSame) {
  const ModelConfig model = SpanModel(SpanHeadKind::kConditional, true);
  const auto objective = MakeObjectiveOrDie("xlnet_finetuning", model, OneWaySampling(kSpanLength));
  const Batch batch = BuildBatch(*objective, {SpanSample(1, 3), SpanSample(-1, -1)});
  const std::vector<double> weights = InitialWeights(model, kSmallVocab, 41);
  FencedBackend fenced(kernels::MakeReferenceBackend());
  ModelRunner runner(model, kSmallVocab, batch.shape, fenced);
  const ModelRunner::Result found = runner.Run(batch, weights, {}, false);
  ExpectSameBits(found, RunOnce(model, batch, weights));
  EXPECT_FALSE(found.task_results[0].spans.empty());
}

TEST(AnswerClassTest, ItsLogitIsTheLossOfBothLabels) {
  const ModelConfig model = SpanModel(SpanHeadKind::kConditional, true);
  const ModelConfig plain = SpanModel(SpanHeadKind::kConditional, false);
  const auto objective = MakeObjectiveOrDie("xlnet_finetuning", model, OneWaySampling(kSpanLength));
  // The same weights but for the class's, which come last.
  const std::vector<double> weights = InitialWeights(model, kSmallVocab, 41);
  const ModelRunner small(plain, kSmallVocab, objective->Shape(1));
  const std::vector<double> shared(weights.begin(),
                                   weights.begin() + small.layout().num_elements());
  for (const int32_t begin : {-1, 2}) {
    const Batch batch = BuildBatch(*objective, {SpanSample(begin, begin < 0 ? -1 : 4)});
    const TaskResult result = RunOnce(model, batch, weights).task_results[0];
    const TaskResult without = RunOnce(plain, batch, shared).task_results[0];
    const double logit = begin < 0 ? -result.answer_logit : result.answer_logit;
    EXPECT_NEAR(result.loss - without.loss, std::log1p(std::exp(logit)) / 2, 1e-12);
    EXPECT_EQ(result.spans, without.spans);
  }
}

// One example through BERT's layers and a head.
class BertHeadTest : public ::testing::Test {
 protected:
  void SetTask(const TaskConfig& task) {
    model_.task = task;
    objective_ = MakeObjectiveOrDie("bert_finetuning", model_, OneWaySampling(kSpanLength));
  }
  ModelRunner::Result Run(bool training = false) const {
    return RunOnce(model_, BuildBatch(*objective_, {sample_}), training);
  }

  ModelConfig model_ = SmallLearnedModel(kSpanLength, 2);
  TextSample sample_ = SpanSample(-1, -1);
  std::unique_ptr<Objective> objective_;
};

// The loss is the mean over the words whose tag is known, by the logits that are told of each.
TEST_F(BertHeadTest, EveryWordIsToldAndTheKnownOnesAreJudged) {
  SetTask({.task = ExampleTask::kTokens, .num_classes = 3});
  sample_.parts = {{5, 6, 7, 8, 9}};
  sample_.tags = {2, kNoTag, kUnknownTag, 0, 1};
  const ModelRunner::Result result = Run();
  const TaskResult& said = result.task_results[0];
  ASSERT_EQ(said.logits.size(), 4u * 3);
  double loss = 0;
  int64_t correct = 0;
  for (const auto& [word, tag] : {std::pair(0, 2), std::pair(2, 0), std::pair(3, 1)}) {
    const float* logits = &said.logits[static_cast<size_t>(3 * word)];
    double sum = 0;
    for (int k = 0; k < 3; ++k) sum += std::exp(static_cast<double>(logits[k]));
    loss += std::log(sum) - logits[tag];
    const auto likeliest = std::max_element(logits, logits + 3) - logits;
    EXPECT_EQ(said.tags[static_cast<size_t>(word)], likeliest);
    correct += likeliest == tag ? 1 : 0;
  }
  EXPECT_NEAR(said.loss, loss / 3, 1e-6);
  EXPECT_EQ(said.num_judged, 3);
  EXPECT_EQ(said.num_correct, correct);
  EXPECT_NEAR(result.step.loss_sum, loss, 1e-5);
  EXPECT_EQ(result.step.divisor, 3);
  // Tags change what is judged, not what is said.
  sample_.tags = {kUnknownTag, kNoTag, kUnknownTag, kUnknownTag, kUnknownTag};
  const TaskResult unknown = Run().task_results[0];
  EXPECT_EQ(unknown.logits, said.logits);
  EXPECT_EQ(unknown.loss, 0);
  EXPECT_EQ(unknown.num_judged, 0);
}

// As in BERT's write_predictions: every pair of the 20 likeliest starts and ends of the window that
// lies in the passage; question and special tokens take a few of the 20.
TEST_F(BertHeadTest, AllPairsOfTheLikeliestStartsAndEndsAreTold) {
  constexpr int32_t kPassage = 40;
  constexpr int64_t kOthers = 5;  // <cls>, question, <sep>, <sep>
  model_ = SmallLearnedModel(kPassage + kOthers, 2);
  model_.task = {.task = ExampleTask::kSpans, .span_head = SpanHeadKind::kSimple};
  objective_ = MakeObjectiveOrDie("bert_finetuning", model_, OneWaySampling(kPassage + kOthers));
  sample_.parts[1].clear();
  for (int32_t i = 0; i < kPassage; ++i) sample_.parts[1].push_back(7 + (i * i) % 6);
  const std::vector<SpanCandidate> told = Run().task_results[0].spans;
  // Losses of labels rank the passage's tokens as starts, and as ends.
  const auto ranked = [&](bool as_starts) {
    std::vector<std::pair<double, int32_t>> losses;
    for (int32_t token = 0; token < kPassage; ++token) {
      sample_.label = 1;
      sample_.answer_begin = as_starts ? token : 0;
      sample_.answer_end = as_starts ? kPassage : token + 1;
      losses.push_back({Run().task_results[0].loss, token});
    }
    std::sort(losses.begin(), losses.end());
    return losses;
  };
  const auto starts = ranked(true), ends = ranked(false);
  const auto pairs = [&](int64_t num_starts, int64_t num_ends) {
    std::set<std::pair<int32_t, int32_t>> all;
    for (int64_t s = 0; s < num_starts; ++s) {
      for (int64_t e = 0; e < num_ends; ++e)
        if (ends[e].second >= starts[s].second) all.insert({starts[s].second, ends[e].second + 1});
    }
    return all;
  };
  std::set<std::pair<int32_t, int32_t>> found;
  for (const SpanCandidate& span : told) found.insert({span.begin, span.end});
  EXPECT_EQ(found.size(), told.size());
  bool fits = false;
  for (int64_t s = 20 - kOthers; s <= 20; ++s)
    for (int64_t e = 20 - kOthers; e <= 20; ++e) fits = fits || found == pairs(s, e);
  EXPECT_TRUE(fits) << told.size() << " spans";
}

TEST_F(BertHeadTest, AScoresLossIsTheSquareOfItsDistance) {
  SetTask({.task = ExampleTask::kSimilarity, .num_classes = 1, .pooler = true});
  sample_.score = 1.5f;
  const ModelRunner::Result result = Run();
  const TaskResult& said = result.task_results[0];
  ASSERT_EQ(said.logits.size(), 1u);
  const double distance = said.logits[0] - 1.5;
  EXPECT_NEAR(said.loss, distance * distance, 1e-5);
  EXPECT_EQ(said.num_judged, 0);
  EXPECT_EQ(result.step.sums.back().name, "loss_task");
  // Without a label: no loss, the same score.
  sample_.score = std::numeric_limits<float>::quiet_NaN();
  const TaskResult unknown = Run().task_results[0];
  EXPECT_EQ(unknown.loss, 0);
  EXPECT_EQ(unknown.logits, said.logits);
}

TEST_F(BertHeadTest, LabelSmoothingIsForTraining) {
  SetTask({.num_classes = 4, .dropout = 0, .label_smoothing = 0.2});
  sample_.label = 2;
  const TaskResult said = Run().task_results[0];
  const double smoothed = Run(/*training=*/true).task_results[0].loss;
  double all = 0, sum = 0;
  for (const float logit : said.logits) sum += std::exp(static_cast<double>(logit));
  for (const float logit : said.logits) all += (std::log(sum) - logit) / 4;
  EXPECT_NEAR(said.loss, std::log(sum) - said.logits[2], 1e-6);
  EXPECT_NEAR(smoothed, 0.8 * said.loss + 0.2 * all, 1e-6);
}

}  // namespace
}  // namespace anyorder::testing
