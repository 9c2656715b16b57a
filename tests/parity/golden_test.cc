// The network beside numbers that transformers' XLNetLMHeadModel computed, from files: no Python is
// needed. golden/FORMAT.md describes them; parity.golden checks that they are what transformers
// computes.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/objective/objective.h"
#include "tests/core/network/model_testing.h"
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
    const auto objective = testing::MakeObjectiveOrDie("permutation_lm", model_, SamplingOf(file_));
    const int64_t lanes = file_.Number("lanes");
    const BatchShape shape = objective->Shape(lanes);
    const auto network =
        TracedNetwork::Create(model_, file_.Number("vocab_size"), shape, 1).value();
    const std::vector<float> weights = testing::HashedWeights(network->layout());
    StepTrace trace;
    trace.memory.resize(
        static_cast<size_t>(lanes * model_.num_layers * model_.mem_len * model_.model_dim));
    for (int64_t step = 0; step < file_.Number("steps"); ++step) {
      Batch batch(shape);
      for (int64_t lane = 0; lane < lanes; ++lane)
        objective->BuildLane(SampleOf(file_, step, lane), lane, batch);
      trace = network->Run(batch, weights, trace.memory, /*with_gradients=*/true);
      Keep(step, trace);
    }
    // The file has the last step's alone.
    for (const ParameterInfo& info : network->layout().parameters()) {
      const auto begin = trace.gradients.begin() + info.offset;
      ours_[absl::StrCat(file_.Number("steps") - 1, ".gradient/", info.name)].assign(
          begin, begin + info.shape.num_elements());
    }
  }

  void Keep(int64_t step, const StepTrace& trace) {
    for (size_t level = 0; level < trace.content.size(); ++level)
      ours_[absl::StrCat(step, ".content/", level)] = trace.content[level];
    for (size_t level = 0; level < trace.query.size(); ++level)
      ours_[absl::StrCat(step, ".query/", level)] = trace.query[level];
    ours_[absl::StrCat(step, ".logits")] = trace.logits;
    ours_[absl::StrCat(step, ".losses")] = trace.losses;
    if (model_.mem_len == 0) return;
    // Transformers has no memory yet where ours is hidden: its rows are the newest of ours.
    const int64_t held = std::min(model_.mem_len, (step + 1) * (file_.Number("seq_len") / 2));
    std::vector<float>& newest = ours_[absl::StrCat(step, ".memory")];
    const int64_t matrices = file_.Number("lanes") * model_.num_layers;
    for (int64_t matrix = 1; matrix <= matrices; ++matrix) {
      const auto end = trace.memory.begin() + matrix * model_.mem_len * model_.model_dim;
      newest.insert(newest.end(), end - held * model_.model_dim, end);
    }
  }

  const GoldenFile file_{GetParam()};
  const ModelConfig model_ = ModelOf(file_);
  std::map<std::string, std::vector<float>> ours_;  // by the file's names
};

// All that the file has but the batches. Where attention is sharp, the gradient of its scores is a
// difference of nearly equal numbers: ten times the tolerance.
TEST_P(GoldenTest, EveryNumberAgrees) {
  const double tolerance = testing::RoundingTolerance(
      model_.num_layers, std::max({model_.ffn_dim, model_.model_dim, file_.Number("seq_len")}));
  for (const auto& [name, values] : ours_)
    file_.ExpectNear(values, name,
                     absl::StrContains(name, "gradient/") ? 10 * tolerance : tolerance);
  constexpr int64_t kBatchTensors = 4;  // tokens, segment, masked, order
  EXPECT_EQ(static_cast<int64_t>(ours_.size()),
            file_.num_tensors() - kBatchTensors * file_.Number("steps"));
}

// The made-up lanes include ones whose SEP was chosen, which then is no target.
TEST_P(GoldenTest, UnusedSlotsHaveNoLoss) {
  for (int64_t step = 0; step < file_.Number("steps"); ++step) {
    const auto unused = std::ranges::count(ours_[absl::StrCat(step, ".losses")], 0.0f);
    EXPECT_EQ(unused, step < file_.Number("lanes") ? 1 : 0) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, GoldenTest,
                         ::testing::Values("untied", "shared_odd", "odd_head"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace anyorder
