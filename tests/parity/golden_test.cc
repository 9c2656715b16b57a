// The network beside numbers that transformers' XLNetLMHeadModel computed, from files: no Python is
// needed. golden/FORMAT.md describes them; parity.golden checks that they are what transformers
// computes.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/objective/objective.h"
#include "tests/parity/golden_file.h"
#include "tests/parity/traced_network.h"
#include "tests/testing/with_keys.h"

namespace anyorder {
namespace {

constexpr int32_t kSeparator = 4;
constexpr int32_t kClassification = 3;

using testing::GoldenFile;

ModelConfig ModelOf(const GoldenFile& file) {
  ModelConfig model = testing::With(ModelConfig(), "dropout = 0, attention_dropout = 0");
  for (const char* const key :
       {"num_layers", "num_heads", "head_dim", "ffn_dim", "mem_len", "clamp_len", "activation"})
    EXPECT_TRUE(testing::SetKey(key, file.Text(key), model)) << key;
  model.model_dim = model.num_heads * model.head_dim;
  model.untie_r = file.Number("untie_r") != 0;
  return model;
}

SamplingConfig SamplingOf(const GoldenFile& file) {
  SamplingConfig sampling;
  for (const char* const key : {"seq_len", "num_predict", "perm_size"})
    EXPECT_TRUE(testing::SetKey(key, file.Text(key), sampling)) << key;
  sampling.reuse_len = sampling.seq_len / 2;
  return sampling;
}

// Lane `lane` of a step as the sampler would hand it over; the second half of the lanes reads
// backwards.
TextSample SampleOf(const GoldenFile& file, int64_t step, int64_t lane) {
  const int64_t length = file.Number("seq_len");
  const auto row = [&](const std::string& name) {
    const auto all = file.Values<int32_t>(absl::StrCat(step, ".", name));
    return std::vector<int32_t>(all.begin() + lane * length, all.begin() + (lane + 1) * length);
  };
  TextSample sample;
  sample.lane = lane;
  sample.step = step;
  sample.backward = lane >= file.Number("lanes") / 2;
  sample.tokens = row("tokens");
  sample.segment = row("segment");
  sample.order = row("order");
  for (const int32_t masked : row("masked")) sample.is_masked.push_back(masked != 0);
  for (const int32_t token : sample.tokens)
    sample.is_functional.push_back(token == kSeparator || token == kClassification);
  return sample;
}

class GoldenTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto file = GoldenFile::Open(GetParam());
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_ = *std::move(file);
    model_ = ModelOf(*file_);
    RunSteps(SamplingOf(*file_));
  }

  void RunSteps(const SamplingConfig& sampling) {
    auto objective = MakeObjective("permutation_lm", model_, sampling);
    ASSERT_TRUE(objective.ok()) << objective.status().message();
    const int64_t lanes = file_->Number("lanes");
    const BatchShape shape = (*objective)->Shape(lanes);
    auto network = TracedNetwork::Create(model_, file_->Number("vocab_size"), shape, 1);
    ASSERT_TRUE(network.ok()) << network.status().message();
    layout_ = (*network)->layout().parameters();
    const std::vector<float> weights = testing::HashedWeights((*network)->layout());
    std::vector<float> memory(
        static_cast<size_t>(lanes * model_.num_layers * model_.mem_len * model_.model_dim));
    for (int64_t step = 0; step < file_->Number("steps"); ++step) {
      Batch batch(shape);
      for (int64_t lane = 0; lane < lanes; ++lane)
        (*objective)->BuildLane(SampleOf(*file_, step, lane), lane, batch);
      traces_.push_back((*network)->Run(batch, weights, memory, /*with_gradients=*/true));
      memory = traces_.back().memory;
    }
  }

  double Tolerance() const {
    return testing::RoundingTolerance(
        model_.num_layers, std::max({model_.ffn_dim, model_.model_dim, file_->Number("seq_len")}));
  }

  void ExpectNear(const std::vector<float>& ours, const std::string& name, double tolerance) {
    file_->ExpectNear(ours, name, tolerance);
    ++compared_;
  }

  std::unique_ptr<GoldenFile> file_;
  ModelConfig model_;
  std::vector<ParameterInfo> layout_;
  std::vector<StepTrace> traces_;
  int compared_ = 0;
};

TEST_P(GoldenTest, HiddenStatesOfBothStreamsAgree) {
  for (size_t step = 0; step < traces_.size(); ++step) {
    const StepTrace& trace = traces_[step];
    for (size_t level = 0; level < trace.content.size(); ++level)
      ExpectNear(trace.content[level], absl::StrCat(step, ".content/", level), Tolerance());
    for (size_t level = 0; level < trace.query.size(); ++level)
      ExpectNear(trace.query[level], absl::StrCat(step, ".query/", level), Tolerance());
  }
  EXPECT_EQ(compared_, 3 * (2 * model_.num_layers + 1));
}

TEST_P(GoldenTest, LogitsAgree) {
  for (size_t step = 0; step < traces_.size(); ++step)
    ExpectNear(traces_[step].logits, absl::StrCat(step, ".logits"), Tolerance());
  EXPECT_EQ(compared_, 3);
}

TEST_P(GoldenTest, LossesAgreeAndUnusedSlotsHaveNone) {
  for (size_t step = 0; step < traces_.size(); ++step) {
    ExpectNear(traces_[step].losses, absl::StrCat(step, ".losses"), Tolerance());
    // The made-up lanes include ones whose SEP was chosen, which then is no target.
    const auto unused = std::count(traces_[step].losses.begin(), traces_[step].losses.end(), 0.0f);
    EXPECT_EQ(unused, static_cast<int64_t>(step) < file_->Number("lanes") ? 1 : 0) << step;
  }
  EXPECT_EQ(compared_, 3);
}

// Transformers has no memory yet where ours is hidden: its rows are the newest of ours.
TEST_P(GoldenTest, MemoryAgrees) {
  if (model_.mem_len == 0) {
    EXPECT_FALSE(file_->Has("0.memory"));
    return;
  }
  const int64_t matrices = file_->Number("lanes") * model_.num_layers;
  for (size_t step = 0; step < traces_.size(); ++step) {
    const int64_t held =
        std::min(model_.mem_len, (static_cast<int64_t>(step) + 1) * (file_->Number("seq_len") / 2));
    std::vector<float> newest;
    for (int64_t matrix = 0; matrix < matrices; ++matrix) {
      const auto end =
          traces_[step].memory.begin() + (matrix + 1) * model_.mem_len * model_.model_dim;
      newest.insert(newest.end(), end - held * model_.model_dim, end);
    }
    ExpectNear(newest, absl::StrCat(step, ".memory"), Tolerance());
  }
  EXPECT_EQ(compared_, 3);
}

// Where attention is sharp, the gradient of its scores is a difference of nearly equal numbers: ten
// times the tolerance.
TEST_P(GoldenTest, GradientsOfEveryParameterAgree) {
  const size_t last = traces_.size() - 1;
  for (const ParameterInfo& info : layout_) {
    const auto begin = traces_[last].gradients.begin() + info.offset;
    ExpectNear(std::vector<float>(begin, begin + info.shape.num_elements()),
               absl::StrCat(last, ".gradient/", info.name), 10 * Tolerance());
  }
  EXPECT_EQ(compared_, static_cast<int>(layout_.size()));
}

INSTANTIATE_TEST_SUITE_P(Networks, GoldenTest,
                         ::testing::Values("untied", "shared_odd", "odd_head"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace anyorder
