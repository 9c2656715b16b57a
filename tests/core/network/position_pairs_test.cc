// Learned positions in pairs, as sigma-GPT has them: what the network makes of a row's own position
// and of the one that it predicts.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "tests/core/network/model_testing.h"
#include "tests/testing/emulated_gpu.h"

namespace anyorder::testing {
namespace {

constexpr int64_t kPairedLength = 16;
constexpr char kTable[] = "transformer.position_embedding.weight";

ModelConfig PairedModel() {
  return With(SmallLearnedModel(kPairedLength), "positions = learned_pairs");
}

Batch ShuffledBatch(const ModelConfig& model) {
  const SamplingConfig sampling = OneWaySampling(kPairedLength);
  return RandomBatch(*MakeObjectiveOrDie("sigma_gpt", model, sampling), sampling, kSmallVocab,
                     {3, 8}, {false, false}, 2);
}

// The same step without pairs: each row stands at a position of its own, whose vector of the whole
// width is the two entries side by side. Attention knows nothing of positions that are learned.
struct WholeVectors {
  ModelConfig model;
  Batch batch;
  std::vector<double> weights;
};

WholeVectors WithWholeVectors(const ModelConfig& model, const Batch& batch,
                              const std::vector<double>& weights) {
  WholeVectors whole{model, batch, {}};
  whole.model.positions = Positions::kLearned;
  whole.model.max_positions = batch.shape.num_rows();
  whole.batch.shape.next_positions = false;
  whole.batch.row_next.clear();
  const ParameterLayout from(model, kSmallVocab), to(whole.model, kSmallVocab);
  whole.weights.resize(static_cast<size_t>(to.num_elements()));
  for (const ParameterInfo& info : to.parameters()) {
    const ParameterInfo& source = from.Find(info.name);
    if (info.name == kTable) continue;
    std::copy(weights.begin() + source.offset, weights.begin() + source.end(),
              whole.weights.begin() + info.offset);
  }
  const int64_t half = model.model_dim / 2;
  const auto entries = weights.begin() + from.Find(kTable).offset;
  auto vector = whole.weights.begin() + to.Find(kTable).offset;
  for (int64_t row = 0; row < batch.shape.num_rows(); ++row) {
    whole.batch.row_pos[row] = static_cast<int32_t>(row);
    for (const int32_t position : {batch.row_pos[row], batch.row_next[row]})
      vector = std::copy_n(entries + position * half, half, vector);
  }
  return whole;
}

// A row's vector is nobody else's, so that its gradient is the row's: that of an entry is the sum
// over rows, in any order of additions.
void ExpectEntriesGradients(const ModelConfig& model, const Batch& batch,
                            const std::vector<double>& paired, const std::vector<double>& vectors) {
  const int64_t half = model.model_dim / 2;
  std::vector<double> sums(paired.size(), 0.0), sizes(paired.size(), 0.0);
  for (int64_t row = 0; row < batch.shape.num_rows(); ++row) {
    for (int64_t i = 0; i < 2 * half; ++i) {
      const int32_t position = i < half ? batch.row_pos[row] : batch.row_next[row];
      const double term = vectors[row * 2 * half + i];
      sums[position * half + i % half] += term;
      sizes[position * half + i % half] += std::abs(term);
    }
  }
  const double epsilon = model.dtype == ComputeType::kFloat64
                             ? std::numeric_limits<double>::epsilon()
                             : std::numeric_limits<float>::epsilon();
  const double additions = 2.0 * static_cast<double>(batch.shape.num_rows());
  EXPECT_GT(Norm(sums), 0);
  for (size_t i = 0; i < paired.size(); ++i)
    EXPECT_NEAR(paired[i], sums[i], additions * epsilon * sizes[i]) << i;
}

void ExpectSameStepAsWithWholeVectors(ComputeType dtype, kernels::Backend& backend) {
  ModelConfig model = PairedModel();
  model.dtype = dtype;
  model.dropout = model.attention_dropout = 0.125;
  const Batch batch = ShuffledBatch(model);
  const std::vector<double> weights = InitialWeights(model, kSmallVocab, 41);
  const WholeVectors whole = WithWholeVectors(model, batch, weights);
  ModelRunner of_pairs(model, kSmallVocab, batch.shape, backend);
  ModelRunner of_vectors(whole.model, kSmallVocab, whole.batch.shape, backend);
  const ModelRunner::Result result = of_pairs.Run(batch, weights, {}, true);
  const ModelRunner::Result expected = of_vectors.Run(whole.batch, whole.weights, {}, true);
  EXPECT_EQ(result.losses, expected.losses);
  EXPECT_EQ(result.step.loss_sum, expected.step.loss_sum);
  for (const ParameterInfo& info : of_pairs.layout().parameters()) {
    const std::vector<double> computed = ElementsOf(info, result.gradients);
    const std::vector<double> other =
        ElementsOf(of_vectors.layout().Find(info.name), expected.gradients);
    if (info.name == kTable) {
      ExpectEntriesGradients(model, batch, computed, other);
    } else {
      EXPECT_EQ(computed, other) << info.name;
    }
  }
}

TEST(PositionPairsTest, TwoEntriesSideBySideAreOneVector) {
  ExpectSameStepAsWithWholeVectors(ComputeType::kFloat64, SharedReference());
}

TEST(PositionPairsTest, OnTheCpuAndOnTheEmulatedGpu) {
  const std::unique_ptr<kernels::Backend> cpu = *kernels::MakeCpuBackend({.num_threads = 2});
  const std::unique_ptr<kernels::Backend> gpu = MakeEmulatedGpu();
  for (kernels::Backend* const backend : {cpu.get(), gpu.get()}) {
    SCOPED_TRACE(backend->name());
    for (const ComputeType dtype : {ComputeType::kFloat32, ComputeType::kBFloat16})
      ExpectSameStepAsWithWholeVectors(dtype, *backend);
  }
}

// Slots stand in the order of prediction: entry e is read from slot e, which sees those up to it.
TEST(PositionPairsTest, ATokenIsPredictedFromThoseBeforeItInTheOrder) {
  const ModelConfig model = PairedModel();
  const Batch batch = ShuffledBatch(model);
  ExpectReads(model, batch, [](int64_t slot, int64_t entry) {
    return slot / kPairedLength == entry / (kPairedLength - 1) &&
           slot % kPairedLength <= entry % (kPairedLength - 1);
  });
}

// Another position to predict moves the row's prediction and those of the rows that see it.
TEST(PositionPairsTest, TheNextPositionIsReadByItsRow) {
  const ModelConfig model = PairedModel();
  const Batch batch = ShuffledBatch(model);
  const std::vector<float> losses = RunOnce(model, batch).losses;
  for (int64_t slot = 0; slot < kPairedLength; ++slot) {
    Batch changed = batch;
    changed.row_next[slot] = (batch.row_next[slot] + 1) % kPairedLength;
    const std::vector<float> other = RunOnce(model, changed).losses;
    for (int64_t entry = 0; entry < 2 * (kPairedLength - 1); ++entry) {
      EXPECT_EQ(other[entry] != losses[entry], entry >= slot && entry < kPairedLength - 1)
          << "slot " << slot << ", entry " << entry;
    }
  }
}

TEST(PositionPairsDeathTest, ABatchWithoutNextPositionsAborts) {
  const ModelConfig model = PairedModel();
  Batch batch = ShuffledBatch(model);
  batch.shape.next_positions = false;
  batch.row_next.clear();
  EXPECT_DEATH(RunOnce(model, batch), "rows do not say which position they predict");
}

}  // namespace
}  // namespace anyorder::testing
