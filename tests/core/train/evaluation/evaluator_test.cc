// Held-out loss against a plain recomputation, and what it may not depend on.

#include "core/train/evaluation/evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "data/sampling/sampler.h"
#include "tests/core/network/model_testing.h"
#include "tests/core/train/small_gpt.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/dataset/example_files.h"
#include "tests/testing/status_matchers.h"

namespace anyorder {

namespace {

constexpr uint64_t kVocabulary = 100;

class EvaluatorTest : public data::TextFolderTest {
 protected:
  explicit EvaluatorTest(int64_t num_tokens = 6000)
      : TextFolderTest(data::TestStream::Random(num_tokens, kVocabulary, 3),
                       {.vocab_size = kVocabulary, .shard_tokens = 6400}) {
    text_ = data::Dataset::Open(folder_).value();
    testing::SetKeys(
        "num_layers = 2, model_dim = 8, num_heads = 2, head_dim = 4, ffn_dim = 16, mem_len = 20, "
        "init_range = 0.3, seq_len = 32, reuse_len = 16, num_predict = 10, perm_size = 16, "
        "global_batch_size = 4, micro_batch_size = 2",
        config_.model, config_.sampling, config_.train);
  }

  std::vector<float> Weights() const {
    return testing::InitialParameters(config_.model, kVocabulary, 1);
  }
  // The losses of all lanes after all batches.
  static std::vector<SplitLosses> RunAll(Evaluator& evaluator, const std::vector<float>& weights) {
    for (int64_t batch = 0; batch < evaluator.num_batches(); ++batch)
      ANYORDER_CHECK_OK(evaluator.RunBatch({.weights = test::ViewOf(weights)}));
    return evaluator.lane_losses();
  }
  // The losses of all lanes of one process.
  std::vector<SplitLosses> Lanes(const EvaluatorOptions& options, int threads = 1) const {
    auto backend = *kernels::MakeCpuBackend({threads});
    return RunAll(**Evaluator::Create(config_, *text_, options, nullptr, *backend), Weights());
  }
  SplitLosses Losses() const { return SumOverLanes(Lanes(options_)); }

  std::unique_ptr<data::Dataset> text_;
  RunConfig config_;
  EvaluatorOptions options_ = {.lanes = 4, .batches = 5, .seed = 9};
};

// The part of a target from the facts of its sample: B begins after the first SEP.
int PartFromFacts(const TextSample& sample, int64_t slot, int64_t reuse_len) {
  if (slot < reuse_len) return 0;
  int64_t separators = 0;
  for (int64_t i = reuse_len; i < slot; ++i) separators += sample.is_functional[i];
  return separators == 0 ? 1 : 2;
}

// Batches of an evaluation count from 0, as the steps over which a run opens its attention.
TEST_F(EvaluatorTest, AttentionIsOpenWhateverStepTheRunIsAt) {
  config_.objective.name = "masked_diffusion";
  config_.model.mem_len = 0;
  config_.sampling.bidirectional = false;
  const SplitLosses open = Losses();
  config_.sampling.any_order.annealing = Annealing::kBand;
  config_.sampling.any_order.anneal_steps = 1000;
  EXPECT_EQ(Losses().total().loss, open.total().loss);
  EXPECT_GT(open.total().targets, 100);
}

TEST_F(EvaluatorTest, ACurriculumIsOverWhateverStepTheRunIsAt) {
  config_.objective.name = "sigma_gpt";
  testing::SetKeys("positions = learned_pairs, segments = none, mem_len = 0", config_.model);
  config_.sampling.bidirectional = false;
  const SplitLosses shuffled = Losses();
  config_.sampling.any_order.token_order = TokenOrder::kCurriculum;
  config_.sampling.any_order.curriculum_start = 0.5;
  config_.sampling.any_order.anneal_steps = 1000;
  EXPECT_EQ(Losses().total().loss, shuffled.total().loss);
  EXPECT_GT(shuffled.total().targets, 100);
  config_.sampling.any_order = {.token_order = TokenOrder::kText};
  EXPECT_NE(Losses().total().loss, shuffled.total().loss);
}

// Lane by lane with a network of the same microbatch, memory carried by hand.
TEST_F(EvaluatorTest, AgreesWithAPlainRecomputation) {
  config_.train.micro_batch_size = 1;
  const SplitLosses measured = Losses();
  auto backend = *kernels::MakeCpuBackend({1});
  const std::vector<float> initial = Weights();
  const std::vector<double> weights(initial.begin(), initial.end());
  const auto objective = *MakeObjective(config_);
  const auto sampler =
      *data::Sampler::Create(*text_, config_.sampling, SampleKind::kPairs, 9, options_.lanes);
  testing::ModelRunner runner(config_.model, kVocabulary, objective->Shape(1), *backend);
  const int64_t warmup = 2;  // ceil(20 / 16)
  double sums[2][3] = {};
  int64_t counts[2][3] = {};
  for (int64_t lane = 0; lane < options_.lanes; ++lane) {
    std::vector<double> memory;
    for (int64_t step = 0; step < warmup + options_.batches; ++step) {
      const TextSample sample = *sampler->Sample(lane, step);
      const Batch batch = testing::BuildBatch(*objective, {sample});
      const auto result = runner.Run(batch, weights, memory, /*training=*/false);
      memory = result.memory;
      size_t target = 0;  // targets come in increasing position
      for (int64_t slot = 0; step >= warmup && slot < config_.sampling.seq_len; ++slot) {
        if (!sample.is_masked[slot] || sample.is_functional[slot]) continue;
        const int part = PartFromFacts(sample, slot, config_.sampling.reuse_len);
        sums[sample.backward][part] += result.losses[target++];
        ++counts[sample.backward][part];
      }
    }
  }
  LossSums all;
  for (int direction : {0, 1}) {
    for (int part : {0, 1, 2}) {
      const LossSums& cell = measured.parts[direction][part];
      all.Add(cell);
      EXPECT_GT(cell.targets, 0) << direction << part;
      EXPECT_EQ(cell.targets, counts[direction][part]) << direction << part;
      // Double sums of the same few hundred floats, in another order.
      EXPECT_NEAR(cell.loss, sums[direction][part], 1e-12 * cell.loss) << direction << part;
    }
  }
  EXPECT_EQ(measured.total().targets, all.targets);
  EXPECT_NEAR(measured.total().loss, all.loss, 1e-12 * all.loss);
  EXPECT_EQ(measured.total().samples, 20);
}

TEST_F(EvaluatorTest, OneLaneOfMoreRanksAndThreadsGivesTheSameBits) {
  const std::vector<SplitLosses> one = Lanes(options_);
  const auto same = [](const SplitLosses& a, const SplitLosses& b) {
    return a.total().loss == b.total().loss && a.total().loss_loss == b.total().loss_loss &&
           a.part(TextPart::kB).loss == b.part(TextPart::kB).loss;
  };
  EXPECT_TRUE(same(SumOverLanes(Lanes(options_, 2)), SumOverLanes(one)));
  for (const int world_size : {2, 3}) {  // of two microbatches: with three ranks one has none
    std::vector<SplitLosses> all;
    for (int rank = 0; rank < world_size; ++rank) {
      EvaluatorOptions mine = options_;
      mine.rank = rank;
      mine.world_size = world_size;
      for (const SplitLosses& lane : Lanes(mine)) all.push_back(lane);
    }
    ASSERT_EQ(all.size(), one.size());
    for (size_t lane = 0; lane < all.size(); ++lane)
      EXPECT_TRUE(same(all[lane], one[lane])) << lane;
  }
  EvaluatorOptions other = options_;
  other.seed = 10;
  EXPECT_FALSE(same(SumOverLanes(Lanes(other)), SumOverLanes(one)));
}

TEST_F(EvaluatorTest, DropoutIsOff) {
  testing::SetKeys("dropout = 0, attention_dropout = 0", config_.model);
  const double without = Losses().total().loss;
  testing::SetKeys("dropout = 0.5, attention_dropout = 0.5", config_.model);
  EXPECT_EQ(Losses().total().loss, without);
}

// The network's output is a LayerNorm's, of norm at most sqrt(d); so no logit is larger than
// sqrt(d) times the longest embedding, and no loss further from ln V than twice that.
TEST_F(EvaluatorTest, UntrainedModelLosesLogOfTheVocabulary) {
  config_.model.init_range = 0.002;
  for (const char* name : {"permutation_lm", "causal_lm", "dae"}) {
    config_.objective.name = name;
    const std::vector<float> weights = Weights();
    const ParameterLayout layout(config_.model, kVocabulary);
    const ParameterInfo& embedding = layout.Find("transformer.word_embedding.weight");
    double longest = 0;
    for (uint64_t id = 0; id < kVocabulary; ++id) {
      double squares = 0;
      for (int64_t i = 0; i < config_.model.model_dim; ++i) {
        const double value =
            weights[embedding.offset + static_cast<int64_t>(id) * config_.model.model_dim + i];
        squares += value * value;
      }
      longest = std::max(longest, std::sqrt(squares));
    }
    const double bound = 2 * std::sqrt(static_cast<double>(config_.model.model_dim)) * longest;
    ASSERT_LT(bound, 0.1);  // or the test says nothing
    const SplitLosses losses = Losses();
    EXPECT_NEAR(losses.total().mean(), std::log(static_cast<double>(kVocabulary)), bound) << name;
    EXPECT_EQ(losses.part(TextPart::kReuse).targets > 0, config_.objective.name != "causal_lm");
  }
}

TEST_F(EvaluatorTest, ReadsTheWholeTextIfNotTold) {
  options_.batches = 0;
  // 2 forward streams of 3000 tokens, 16 further each step: (3000 - 32) / 16 + 1 steps.
  EXPECT_EQ(Losses().total().samples, 4 * (186 - 2));
  config_.objective.name = "causal_lm";
  EXPECT_EQ(Losses().total().targets, 4 * (93 - 1) * 32);
}

// No number of windows times their length.
class WholeTextTest : public EvaluatorTest {
 protected:
  WholeTextTest() : EvaluatorTest(501) { config_.sampling.bidirectional = false; }

  // With so many windows at once.
  SplitLosses Whole(int64_t batch_size) const {
    auto backend = *kernels::MakeCpuBackend({1});
    const auto evaluator = *Evaluator::Create(
        config_, *text_, {.lanes = batch_size, .whole = true, .seed = 9}, nullptr, *backend);
    const SplitLosses losses = SumOverLanes(RunAll(*evaluator, Weights()));
    EXPECT_EQ(evaluator->scored().scored, evaluator->scored().of);
    EXPECT_EQ(evaluator->scored().of, evaluator->planned().scored);
    return losses;
  }
};

TEST_F(WholeTextTest, ItsLossDoesNotDependOnTheBatchSize) {
  const char* const cases[] = {"permutation_lm, mem_len = 20, bidirectional = true",
                               "permutation_lm, mem_len = 0, bidirectional = false",
                               "dae, mem_len = 20, bidirectional = false",
                               "causal_lm, mem_len = 70, bidirectional = true",
                               "causal_lm, mem_len = 40, bidirectional = false",
                               "masked_lm, mem_len = 0, bidirectional = false",
                               "masked_diffusion, mem_len = 0, bidirectional = false",
                               "a3, mem_len = 0, bidirectional = false"};
  for (const std::string words : cases) {
    SCOPED_TRACE(words);
    const size_t comma = words.find(", ");
    config_.objective.name = words.substr(0, comma);
    testing::SetKeys(words.substr(comma + 2), config_.model, config_.sampling);
    const LossSums one = Whole(1).total();
    EXPECT_GT(one.targets, 50);
    for (const int64_t batch_size : {2, 3, 8, 100}) {
      const LossSums other = Whole(batch_size).total();
      EXPECT_EQ(other.targets, one.targets) << batch_size;
      EXPECT_EQ(other.samples, one.samples) << batch_size;
      // Float32 of other matrix products.
      EXPECT_NEAR(other.mean(), one.mean(), 1e-6 * one.mean()) << batch_size;
    }
  }
}

// Also those that are too few for a window.
TEST_F(WholeTextTest, EveryTokenIsPredictedOnceInEachDirection) {
  config_.objective.name = "causal_lm";
  config_.model.mem_len = 0;
  const SplitLosses one_way = Whole(4);
  EXPECT_EQ(one_way.total().targets, 500);
  config_.sampling.bidirectional = true;
  const SplitLosses both = Whole(4);
  EXPECT_EQ(both.directions[1].targets, 500);
  EXPECT_NEAR(both.directions[0].loss, one_way.total().loss, 1e-6 * one_way.total().loss);
}

TEST_F(WholeTextTest, APartSaysHowMuchItIs) {
  config_.objective.name = "causal_lm";
  config_.model.mem_len = 0;
  auto backend = *kernels::MakeCpuBackend({1});
  const auto evaluator =
      *Evaluator::Create(config_, *text_, {.lanes = 4, .batches = 2}, nullptr, *backend);
  RunAll(*evaluator, Weights());
  EXPECT_EQ(evaluator->scored().scored, 4 * 2 * 32);
  EXPECT_EQ(evaluator->scored().of, 501);
}

TEST_F(EvaluatorTest, SaysHowMuchTextIsMissing) {
  options_.batches = 185;
  EXPECT_THAT(Evaluator::Check(config_, *text_, options_),
              Fails(absl::IsFailedPrecondition, "186 batches", "2 fill the memory and 185 more"));
  options_.batches = 184;
  EXPECT_TRUE(Evaluator::Check(config_, *text_, options_).ok());
  options_.lanes = 6000;
  EXPECT_TRUE(absl::IsFailedPrecondition(Evaluator::Check(config_, *text_, options_)));
}

// Held-out text in `folder_`, which was training data, too.
class PeriodicEvaluatorTest : public data::TextFolderTest {
 protected:
  PeriodicEvaluatorTest() : TextFolderTest(data::TestStream::Random(2000, 1000, 1)) {}

  data::DatasetIndex Index() const { return *data::ReadDatasetIndex(folder_); }
  RunConfig Evaluating(RunConfig config) const {
    config.data.shards = "training";
    config.eval.shards = folder_;
    config.eval.every = 1;
    config.eval.batches = 1;
    return config;
  }
  RunConfig Classifier() const {
    RunConfig config = SmallClassifier(1, 32, 2);
    config.objective.task = ExampleTask::kEntailment;
    config.train.global_batch_size = 2;
    config.Resolve();
    return Evaluating(config);
  }

  data::TestExamples examples_ = data::TestExamples::Pairs(200);
};

TEST_F(PeriodicEvaluatorTest, ClassesMustHaveTheNumbersOfTheTrainingData) {
  examples_.AddTo(folder_);
  data::DatasetIndex training = Index();
  const RunConfig config = Classifier();
  EXPECT_EQ(OpenHeldOutText(config, training).status(), absl::OkStatus());

  training.examples->classes = {"maybe", "yes"};
  EXPECT_THAT(OpenHeldOutText(config, training).status(),
              Fails(absl::IsFailedPrecondition,
                    "eval.shards '" + folder_ + "' numbers its classes differently from",
                    "data.shards 'training'; prepare it with", "--labels-from"));
  // The training data may be plain text by now, in which case there is nothing to compare.
  training.examples.reset();
  EXPECT_EQ(OpenHeldOutText(config, training).status(), absl::OkStatus());
}

TEST_F(PeriodicEvaluatorTest, HeldOutTextIsOfTheTrainingDatasTokenizer) {
  const RunConfig config = Evaluating(SmallGpt(1, 32));
  const data::DatasetIndex same = Index();
  EXPECT_EQ(OpenHeldOutText(config, same).status(), absl::OkStatus());
  data::DatasetIndex other = same;
  other.tokenizer_digest = "another";
  EXPECT_THAT(OpenHeldOutText(config, other).status(),
              Fails(absl::IsFailedPrecondition, "but data.shards by another",
                    "anyorder prep --vocab 'training'"));
  // One tokenizer.json, with another mask in the files beside it.
  other = same;
  other.tokenizer.file = "tokenizer.json";
  other.vocab_ids.mask = 999;
  EXPECT_THAT(OpenHeldOutText(config, other).status(),
              Fails(absl::IsFailedPrecondition, "has other special ids",
                    "anyorder prep --tokenizer 'training'"));
}

// eval.metric names one of the figures that an evaluation has.
TEST_F(EvaluatorTest, FiguresAreThoseOfItsMeans) {
  auto backend = *kernels::MakeCpuBackend({1});
  for (const char* name : {"permutation_lm", "causal_lm"}) {
    config_.objective.name = name;
    const auto evaluator = *Evaluator::Create(config_, *text_, options_, nullptr, *backend);
    std::vector<std::string> means = {"loss"};
    for (const NamedMean& mean : evaluator->means(SumOverLanes(RunAll(*evaluator, Weights()))))
      means.push_back(mean.name);
    EXPECT_EQ(evaluator->figures(), means) << name;
  }
  config_.eval.metric = "accuracy";
  EXPECT_EQ(Evaluator::Check(config_, *text_, options_),
            absl::InvalidArgumentError(
                "eval.metric is \"accuracy\", but an evaluation of causal_lm has loss, "
                "loss_forward, loss_backward (lower is better)"));
}

TEST_F(PeriodicEvaluatorTest, AMetricOfATaskNeedsLabels) {
  examples_.AddTo(folder_);
  const data::DatasetIndex training = Index();
  RunConfig config = Classifier();
  config.eval.metric = "task_accuracy";
  config.eval.patience = 1;
  EXPECT_EQ(OpenHeldOutText(config, training).status(), absl::OkStatus());
  config.eval.metric = "task_f1";
  EXPECT_THAT(OpenHeldOutText(config, training).status(),
              Says("eval.metric is \"task_f1\", but an evaluation of ",
                   " has loss, loss_forward, loss_task, loss_lm (lower is better) and "
                   "task_accuracy (higher is better)"));
  for (int32_t& label : examples_.labels) label = -1;
  examples_.AddTo(folder_);
  config.eval.metric = "loss";
  EXPECT_THAT(OpenHeldOutText(config, training).status(),
              Fails(absl::IsFailedPrecondition,
                    "has a label, so that no evaluation has a loss; leave out eval.patience"));
  config.eval.patience = 0;
  EXPECT_TRUE(OpenHeldOutText(config, training).ok());
}

}  // namespace

}  // namespace anyorder
