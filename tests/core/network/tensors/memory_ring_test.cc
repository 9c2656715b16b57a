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
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/platform/runtime_emulated.h"
#include "tests/core/network/model_testing.h"
#include "tests/testing/fenced_backend.h"

namespace anyorder::testing {
namespace {

using Row = std::vector<float>;

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
    BatchShape shape;
    shape.memory_rows = mem_len;
    shape.advance = advance;
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
  BatchShape shape;
  shape.advance = 4;
  MemoryRing ring = MemoryRing::Create(RingModel(0), shape, 3, *backend).value();
  ring.Advance();
  ring.Clear();
  EXPECT_TRUE(ring.View(0, 3).slots.is_null());
  EXPECT_TRUE(ring.States(2).empty());
  shape.memory_rows = 5;
  EXPECT_TRUE(MemoryRing::Create(RingModel(5), shape, 0, *backend)->View(0, 0).slots.is_null());
}

// The same network's steps with memory that begins at slot 0 every time, because it is moved there
// by hand.
class MovedMemory {
 public:
  MovedMemory(const ModelConfig& model, const BatchShape& shape, kernels::Backend& backend)
      : shape_(shape),
        slots_{shape.batch_size, model.num_layers, shape.ring_rows(), model.model_dim},
        values_(static_cast<size_t>(slots_.num_elements())),
        device_(backend, DType::kFloat32, slots_.num_elements()) {}

  RingView View() {
    if (values_.empty()) return {};
    device_.Assign(values_);
    return {device_.view().Reshape(slots_), 0};
  }
  void Advance() {
    values_ = device_.ToDouble();
    const int64_t size = slots_[2] * slots_[3];
    for (auto ring = values_.begin(); ring != values_.end(); ring += size)
      std::copy(ring + shape_.fresh_rows() * slots_[3], ring + size, ring);
  }
  // [L, M, d] of lane `b`.
  std::vector<float> States(int64_t b) const {
    std::vector<float> states;
    const int64_t size = slots_[2] * slots_[3];
    for (int64_t layer = 0; layer < slots_[1]; ++layer) {
      const auto ring = values_.begin() + (b * slots_[1] + layer) * size;
      states.insert(states.end(), ring, ring + shape_.memory_rows * slots_[3]);
    }
    return states;
  }

 private:
  BatchShape shape_;
  Shape slots_;
  std::vector<double> values_;
  DeviceVector device_;
};

// What a step gives besides memory.
struct Output {
  double loss = 0;
  std::vector<float> losses;
  std::vector<double> gradients;
  bool operator==(const Output&) const = default;
};

class Steps {
 public:
  Steps(const ModelConfig& model, const BatchShape& shape, kernels::Backend& backend)
      : network_(Transformer::Create(model, kSmallVocab, shape, backend).value()),
        weights_(backend, DType::kFloat32, network_->layout().num_elements()),
        gradients_(backend, DType::kFloat32, network_->layout().num_elements()) {
    weights_.Assign(InitialWeights(model, kSmallVocab, 17));
  }
  Output Run(const Batch& batch, const RingView& memory) {
    StepArgs args;
    args.batch = &batch;
    args.weights = weights_.view();
    args.memory = memory;
    args.seed = 5;
    args.gradients = gradients_.view();
    const double loss = network_->Run(args, {}).loss_sum;
    return {loss, network_->readout_losses(), gradients_.ToDouble()};
  }

 private:
  std::unique_ptr<Transformer> network_;
  DeviceVector weights_, gradients_;
};

// Two microbatches of lanes in one ring, `steps` steps of them, against the same with moved memory:
// all bits.
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
  Steps rings(model, shape, backend);
  Steps moved(model, shape, backend);
  MemoryRing ring = MemoryRing::Create(model, shape, 4, backend).value();
  std::vector<MovedMemory> memories;
  for (int i = 0; i < 2; ++i) memories.emplace_back(model, shape, backend);
  for (int step = 0; step < steps; ++step) {
    for (int64_t i = 0; i < 2; ++i) {
      const Batch batch = batch_of(i, step);
      const Output got = rings.Run(batch, ring.View(2 * i, 2));
      ASSERT_EQ(got, moved.Run(batch, memories[i].View())) << "step " << step;
      // What a step has not advanced, it has not changed.
      if (step == 1) {
        ASSERT_EQ(rings.Run(batch, ring.View(2 * i, 2)), got) << "again";
      }
      memories[i].Advance();
    }
    ring.Advance();
    for (int64_t lane = 0; lane < 4; ++lane) {
      ASSERT_EQ(States(backend, ring, lane), memories[lane / 2].States(lane % 2))
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
  const auto backend =
      kernels::cuda::MakeCudaBackend(kernels::cuda::emulation::MakeEmulatedRuntime({}), {}).value();
  ModelConfig model = RingModel(5);
  model.num_layers = 1;
  // The rings start at slots 0, 3, 6, 1 and 4: neither run wraps, twice; then one, the other, the
  // one again.
  ExpectSameSteps("permutation_lm", model, 3, 5, *backend);
}

}  // namespace
}  // namespace anyorder::testing
