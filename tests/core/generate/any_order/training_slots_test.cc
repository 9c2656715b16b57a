// A network reads a text with blanks as it read texts in training: the log-probabilities of a
// training lane's targets are those of the same tokens asked about in a canvas.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/generate/any_order/blank_reader.h"
#include "core/generate/any_order/lane_text.h"
#include "core/generate/any_order/likelihood.h"
#include "core/generate/any_order/ordered_text.h"
#include "core/generate/inference_network.h"
#include "core/objective/objective.h"
#include "kernels/backend.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::testing {
namespace {

constexpr GenerationTokens kTrainingTokens{.mask = 4, .end_of_document = 1};  // of RandomSample
constexpr double kTrainingBound = 1e-12;                                      // as decoder_test's

// One lane of training and the network that reads it.
class TrainingLane : public ::testing::TestWithParam<int64_t> {
 protected:
  void Build(const std::string& name, const AnyOrderConfig& config) {
    model_ = name == "sigma_gpt" ? With(SmallLearnedModel(17), "positions = learned_pairs")
                                 : With(SmallModel(), "mem_len = 0");
    sampling_ = OneWaySampling(16, config);
    objective_ = MakeObjectiveOrDie(name, model_, sampling_);
    sample_ = RandomSample(sampling_, SampleKind::kContiguous, kSmallVocab, /*lane=*/GetParam(),
                           /*step=*/3, false);
    batch_ = std::make_unique<Batch>(BuildBatch(*objective_, {sample_}));
    weights_ = test::TensorOf(DType::kFloat64, InitialWeights(model_, kSmallVocab, 5));
    canvas_ = {.model = &model_,
               .vocab_size = kSmallVocab,
               .weights = weights_.view(),
               .form = objective_->Canvas(kTrainingTokens).value(),
               .backend = backend_.get()};
    ReadLane();
  }

  // Of each position: log p(token) where training's loss counts it, else 1.
  void ReadLane() {
    const std::unique_ptr<InferenceNetwork> network =
        InferenceNetwork::Create({model_, batch_->shape, kSmallVocab}, *backend_).value();
    network->Run(*batch_, weights_.view(), nullptr);
    const int64_t targets = batch_->shape.targets;
    test::HostTensor logits(DType::kFloat64, {targets, kSmallVocab});
    network->ReadLogits(*batch_, logits.view());
    log_probs_.assign(sample_.tokens.size(), 1.0);
    for (int64_t i = 0; i < targets; ++i) {
      if (batch_->weights[i] == 0) continue;
      const double* const row = logits.view().data<double>() + i * kSmallVocab;
      const std::vector<double> values(row, row + kSmallVocab);
      log_probs_[PositionOf(i)] = LogProbability(values, batch_->labels[i]);
    }
  }

  // The text's position that readout entry `entry` predicts.
  int64_t PositionOf(int64_t entry) const {
    const int32_t row = batch_->readout_rows[entry];
    const CanvasForm& form = canvas_.form;
    if (form.family == CanvasFamily::kPairs) return batch_->row_next[row];
    if (form.family == CanvasFamily::kTwoStream) return batch_->row_pos[row];
    return entry % static_cast<int64_t>(sample_.tokens.size());
  }

  std::vector<int64_t> Asked() const {
    std::vector<int64_t> asked;
    for (size_t i = 0; i < log_probs_.size(); ++i)
      if (log_probs_[i] <= 0) asked.push_back(static_cast<int64_t>(i));
    return asked;
  }
  std::vector<int32_t> WithBlanks(const std::vector<int64_t>& blanks) const {
    std::vector<int32_t> tokens = sample_.tokens;
    for (const int64_t position : blanks) tokens[position] = kBlank;
    return tokens;
  }

  // Blanks of each block of `block` tokens, predicted at once.
  void ExpectReadAlike(int64_t block) {
    const auto length = static_cast<int64_t>(sample_.tokens.size());
    int64_t num_read = 0;
    for (int64_t begin = 0; begin < length; begin += block) {
      BlankQuestion asked{begin, begin + block, {}};
      for (const int64_t position : Asked())
        if (position >= begin && position < begin + block) asked.positions.push_back(position);
      if (asked.positions.empty()) continue;
      for (const bool recompute : {false, true}) {
        const std::unique_ptr<BlankReader> reader =
            BlankReader::Create(canvas_, 1, length, BlockCache::kNone, recompute).value();
        ASSERT_TRUE(reader->Read({WithBlanks(asked.positions)}, {asked}).ok());
        std::vector<double> logits;
        for (size_t i = 0; i < asked.positions.size(); ++i) {
          const int64_t position = asked.positions[i];
          ASSERT_TRUE(reader->Row(0, static_cast<int64_t>(i), &logits).ok());
          EXPECT_NEAR(LogProbability(logits, sample_.tokens[position]), log_probs_[position],
                      kTrainingBound);
          ++num_read;
        }
      }
    }
    EXPECT_GT(num_read, 0);
  }

  // Tokens in the order of `options`, each group given those before it.
  void ExpectAskedAlike(const WriteOptions& options) {
    const OrderedText order(canvas_.form, {WithBlanks(Asked())}, options);
    std::vector<int32_t> tokens;
    for (int64_t i = order.known(); i < order.size(); ++i)
      tokens.push_back(sample_.tokens[order.position(i)]);
    LanePass pass;
    order.AddKnown(0, order.size(), tokens, &pass);
    order.AskInTurn(order.known(), order.size(), &pass);
    const std::unique_ptr<SlotNetwork> network =
        SlotNetwork::Create(model_, kSmallVocab, weights_.view(),
                            {.key_slots = 2 * order.size(), .span = order.size()}, *backend_)
            .value();
    ASSERT_TRUE(network->Run({pass}).ok());
    std::vector<double> logits;
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_TRUE(network->ReadRow(0, static_cast<int64_t>(i), &logits).ok());
      const int64_t position = order.position(order.known() + static_cast<int64_t>(i));
      EXPECT_NEAR(LogProbability(logits, tokens[i]), log_probs_[position], kTrainingBound);
    }
    EXPECT_GT(tokens.size(), 0u);
  }

  ModelConfig model_;
  SamplingConfig sampling_;
  std::unique_ptr<Objective> objective_;
  TextSample sample_;
  std::unique_ptr<Batch> batch_;
  std::unique_ptr<kernels::Backend> backend_ = kernels::MakeReferenceBackend();
  test::HostTensor weights_;
  WritingModel canvas_;
  std::vector<double> log_probs_;
};

TEST_P(TrainingLane, OfMaskedDiffusion) {
  Build("masked_diffusion", {});
  ExpectReadAlike(sampling_.seq_len);
  Build("masked_diffusion", {.keep_first_token = true, .shifted_readout = true});
  ExpectReadAlike(sampling_.seq_len);
}

TEST_P(TrainingLane, OfBlockDiffusion) {
  for (const int64_t block : {1, 4, 16}) {
    Build("block_diffusion", {.block_len = block});
    ExpectReadAlike(block);
    Build("block_diffusion",
          {.keep_first_token = true, .shifted_readout = true, .block_len = block});
    ExpectReadAlike(block);
  }
}

TEST_P(TrainingLane, OfA3) {
  for (const int64_t size : {1, 3}) {
    Build("a3", {.group_len_min = size, .group_len_max = size, .group_order = GroupOrder::kText});
    ExpectAskedAlike({.method = WriteMethod::kGroups, .group_len = size});
  }
}

TEST_P(TrainingLane, OfAsArm) {
  for (const double share : {0.0, 0.4}) {
    Build("as_arm", {.prompt_fraction_min = share, .prompt_fraction_max = share});
    ExpectAskedAlike({.method = WriteMethod::kSequential});
    const std::vector<LogLikelihood> scores =
        ScoreTexts(canvas_, {{sample_.tokens, Asked()}}, {}).value();
    double sum = 0;
    for (const int64_t position : Asked()) sum += log_probs_[position];
    EXPECT_NEAR(scores[0].log_prob, sum, 100 * kTrainingBound);
    EXPECT_TRUE(scores[0].is_exact);
  }
}

TEST_P(TrainingLane, OfSigmaGpt) {
  Build("sigma_gpt", {.token_order = TokenOrder::kText});
  ExpectAskedAlike({.method = WriteMethod::kSequential});
}

// The sequential phase, whose order is that of the text: all of it, and behind a clean part whose
// tokens see one another (form A; in other forms their order is drawn).
TEST_P(TrainingLane, OfEsoLm) {
  Build("eso_lm", {.eso_form = EsoForm::kB, .diffusion_share = 0});
  ExpectAskedAlike({.method = WriteMethod::kEso});
  Build("eso_lm", {.eso_form = EsoForm::kA, .diffusion_share = 0});
  ExpectAskedAlike({.method = WriteMethod::kEso});
}

INSTANTIATE_TEST_SUITE_P(Lanes, TrainingLane, ::testing::Range<int64_t>(0, 4));

}  // namespace
}  // namespace anyorder::testing
