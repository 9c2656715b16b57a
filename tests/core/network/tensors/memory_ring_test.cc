// Recurrence memory in rings: against plain lists of rows, and against memory that is moved by
// hand.

#include "core/network/tensors/memory_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "core/network/transformer.h"
#include "tests/core/network/model_testing.h"
#include "tests/testing/emulated_gpu.h"
#include "tests/testing/fenced_backend.h"

namespace anyorder::testing {
namespace {

using Row = std::vector<float>;

constexpr uint64_t kSeed = 5;  // of dropout

std::vector<float> ToHost(kernels::Backend& backend, TensorView x) {
  std::vector<float> values(static_cast<size_t>(x.num_elements()));
  backend.CopyToHost(x.raw(), values.data(), x.num_bytes(), {});
  backend.Synchronize({});
  return values;
}

// The states of `lane`, [L, M, d].
std::vector<float> States(kernels::Backend& backend, const MemoryRing& ring, int64_t lane) {
  std::vector<float> all;
  for (const TensorView& piece : ring.States(lane)) {
    const std::vector<float> values = ToHost(backend, piece);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

ModelConfig RingModel(int64_t mem_len) {
  ModelConfig model = SmallModel();
  model.dtype = ComputeType::kFloat32;
  model.mem_len = mem_len;
  return model;
}

// A memory of `mem_len` slots, of which a step writes over `advance`.
struct Size {
  int64_t mem_len;
  int64_t advance;
};
// Of every kind, and some by chance.
std::vector<Size> Sizes(int count, int64_t seq_len) {
  std::vector<Size> sizes = {{1, 1},  {8, 8},  {5, 8}, {1, 7}, {13, 8},
                             {16, 4}, {24, 8}, {7, 3}, {3, 2}, {9, 8}};
  RandomStream random(77, RandomPurpose::kObjective, 0, 0);
  while (static_cast<int>(sizes.size()) < count) {
    sizes.push_back({1 + random.Below(30), 1 + random.Below(static_cast<uint32_t>(seq_len))});
  }
  sizes.resize(static_cast<size_t>(count));
  return sizes;
}

// Rings that are written as a step writes them, row by row, against a list of all rows there ever
// were.
TEST(MemoryRingTest, HoldsTheNewestRowsOfAList) {
  const std::unique_ptr<kernels::Backend> backend = kernels::MakeReferenceBackend();
  for (const auto& [mem_len, advance] : Sizes(60, 20)) {
    SCOPED_TRACE(::testing::Message() << "memory " << mem_len << ", advance " << advance);
    BatchShape shape = {.memory_rows = mem_len, .advance = advance};
    const ModelConfig model = RingModel(mem_len);
    MemoryRing ring = MemoryRing::Create(model, shape, 2, *backend).value();
    const int64_t dim = model.model_dim;
    std::vector<Row> list(static_cast<size_t>(mem_len), Row(static_cast<size_t>(dim), 0.0f));
    float next = 1;
    for (int step = 0; step < 2 * (mem_len + advance) + 3; ++step) {
      const RingView view = ring.View(1, 1);
      const auto slot = [&](int64_t row) {
        for (const SlotRun& run : view.Runs(row, 1))
          if (run.rows == 1) return view.slots.data<float>() + run.begin * dim;
        return static_cast<float*>(nullptr);
      };
      // What is read lies in at most two runs, and none of it is among what is written.
      const auto read = view.Runs(0, mem_len);
      EXPECT_EQ(read[0].rows + read[1].rows, mem_len);
      EXPECT_LE(read[0].begin + read[0].rows, shape.ring_rows());
      for (int64_t row = 0; row < shape.fresh_rows(); ++row) {
        std::fill_n(slot(mem_len + row), dim, next);
        list.push_back(Row(static_cast<size_t>(dim), next++));
      }
      for (int64_t row = 0; row < mem_len; ++row) {
        const Row& expected = list[list.size() - shape.fresh_rows() - mem_len + row];
        ASSERT_EQ(Row(slot(row), slot(row) + dim), expected) << "step " << step << " row " << row;
      }
      ring.Advance();
      Row newest;
      for (auto row = list.end() - mem_len; row != list.end(); ++row)
        newest.insert(newest.end(), row->begin(), row->end());
      std::vector<float> first_layer = States(*backend, ring, 1);
      first_layer.resize(newest.size());
      ASSERT_EQ(first_layer, newest) << "after step " << step;
    }
    for (const float value : States(*backend, ring, 0)) ASSERT_EQ(value, 0) << "another lane's";
    ring.Clear(1);
    for (const float value : States(*backend, ring, 1)) ASSERT_EQ(value, 0);
  }
}

TEST(MemoryRingTest, IsNoneWithoutMemoryOrLanes) {
  const std::unique_ptr<kernels::Backend> backend = kernels::MakeReferenceBackend();
  BatchShape shape = {.advance = 4};
  MemoryRing ring = MemoryRing::Create(RingModel(0), shape, 3, *backend).value();
  ring.Advance();
  ring.Clear();
  EXPECT_TRUE(ring.View(0, 3).slots.is_null());
  EXPECT_TRUE(ring.States(2).empty());
  shape.memory_rows = 5;
  EXPECT_TRUE(MemoryRing::Create(RingModel(5), shape, 0, *backend)->View(0, 0).slots.is_null());
}

// Two microbatches of lanes in one ring, `steps` steps of them, against the same with memory that
// is moved: all bits.
void ExpectSameSteps(const std::string& objective, const ModelConfig& model, int64_t advance,
                     int steps, kernels::Backend& backend,
                     Batch (*change)(const Batch&) = nullptr) {
  const SamplingConfig sampling = SmallSampling();
  const auto maker = MakeObjectiveOrDie(objective, model, sampling);
  const auto batch_of = [&](int64_t microbatch, int64_t step) {
    const std::vector<int64_t> lanes = {2 * microbatch, 2 * microbatch + 1};
    Batch batch = RandomBatch(*maker, sampling, kSmallVocab, lanes, {false, true}, step);
    if (change != nullptr) batch = change(batch);
    batch.shape.advance = advance;
    return batch;
  };
  const BatchShape shape = batch_of(0, 0).shape;
  ModelRunner on_rings(model, kSmallVocab, shape, backend);
  ModelRunner moved(model, kSmallVocab, shape, backend);
  const std::vector<double> weights = InitialWeights(model, kSmallVocab, 17);
  MemoryRing ring = MemoryRing::Create(model, shape, 4, backend).value();
  std::vector<double> memories[2];
  for (int step = 0; step < steps; ++step) {
    for (int64_t i = 0; i < 2; ++i) {
      const Batch batch = batch_of(i, step);
      SCOPED_TRACE(step);
      ModelRunner::Result expected = moved.Run(batch, weights, memories[i], true, kSeed);
      memories[i] = std::move(expected.memory);
      expected.memory.clear();
      const auto run = [&] {
        return on_rings.RunOnRings(batch, weights, ring.View(2 * i, 2), true, kSeed);
      };
      ExpectSameBits(run(), expected);
      // What a step has not advanced, it has not changed.
      if (step == 1) ExpectSameBits(run(), expected);
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
    ring.Advance();
    for (int64_t lane = 0; lane < 4; ++lane) {
      const std::vector<double>& memory = memories[lane / 2];
      const auto half = memory.begin() + static_cast<int64_t>(memory.size()) / 2;
      ASSERT_EQ(States(backend, ring, lane),
                lane % 2 == 0 ? Row(memory.begin(), half) : Row(half, memory.end()))
          << "after step " << step << " lane " << lane;
    }
  }
}

std::unique_ptr<kernels::Backend> Fenced() {
  return std::make_unique<FencedBackend>(kernels::MakeCpuBackend({}).value());
}

TEST(MemoryRingTest, StepsOfAnyAdvanceHaveTheBitsOfMovedMemory) {
  const std::unique_ptr<kernels::Backend> backend = Fenced();
  int number = 0;
  for (const auto& [mem_len, advance] : Sizes(16, SmallSampling().seq_len)) {
    SCOPED_TRACE(::testing::Message() << "memory " << mem_len << ", advance " << advance);
    ModelConfig model = RingModel(mem_len);
    model.dropout = 0.125;
    model.initial_memory = number % 3 == 0 ? InitialMemory::kZeros : InitialMemory::kMasked;
    if (number % 2 == 1) model.layer_norm = LayerNormPlace::kPre;
    ExpectSameSteps(number % 2 == 0 ? "permutation_lm" : "causal_lm", model, advance, 9, *backend);
    ++number;
  }
}

TEST(MemoryRingTest, QueriesThatAreKeysAndStepsWithoutMemory) {
  const std::unique_ptr<kernels::Backend> backend = Fenced();
  for (const int64_t mem_len : {0, 6})
    ExpectSameSteps("permutation_lm", RingModel(mem_len), 4, 7, *backend, WithGroupedQueries);
}

// Copies that wrap or not are told apart where operations are recorded.
TEST(MemoryRingTest, StepsOnTheEmulatedGpu) {
  const std::unique_ptr<kernels::Backend> backend = MakeEmulatedGpu();
  ModelConfig model = RingModel(5);
  model.num_layers = 1;
  // The rings start at slots 0, 3, 6, 1 and 4: neither run wraps, twice; then one, the other, the
  // one again.
  ExpectSameSteps("permutation_lm", model, 3, 5, *backend);
}

}  // namespace
}  // namespace anyorder::testing
