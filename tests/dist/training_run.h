// A small run of the real reducer and optimizer on made-up gradients, and the digest of where it
// ends.

#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/philox.h"
#include "dist/gradient_reducer.h"
#include "dist/sharded_optimizer.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {

inline constexpr int64_t kRunElements = 3 * Partition::kBlockElements + 1234;
inline constexpr int64_t kRunLeaves = 8;
inline constexpr int kRunSteps = 5;

// Both backends that a machine without a GPU has.
inline std::vector<std::unique_ptr<kernels::Backend>> HostBackends() {
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  backends.push_back(kernels::MakeReferenceBackend());
  backends.push_back(kernels::MakeCpuBackend({}).value());
  return backends;
}

// Boundaries that divide no vector width, inside blocks and across them.
inline std::vector<DecaySegment> RunSegments() {
  return {{0, 1003, true, 0.5},
          {1003, 1010, false, 0.5},
          {1010, 20001, true, 0.75},
          {20001, 40007, false},
          {40007, kRunElements, true}};
}

// Standard normal.
inline std::vector<float> RandomValues(int64_t size, uint64_t seed) {
  RandomStream random(seed, RandomPurpose::kInit, 0, 0);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

// Of the gradient of a leaf of a step: magnitudes from 2^-10 to 2^10, so that another order of
// additions gives other bits.
inline std::vector<float> WideGradient(int64_t step, int64_t leaf, int64_t size) {
  RandomStream random(7, RandomPurpose::kInit, step, leaf);
  std::vector<float> values(size);
  for (float& value : values)
    value = static_cast<float>(random.Normal() * std::exp2(20 * random.Uniform() - 10));
  return values;
}

inline std::vector<std::vector<float>> WideLeaves(int64_t step, int64_t count, int64_t size) {
  std::vector<std::vector<float>> leaves;
  for (int64_t leaf = 0; leaf < count; ++leaf) leaves.push_back(WideGradient(step, leaf, size));
  return leaves;
}

// The definition: a node is its left half plus its right half.
template <typename T>
std::vector<T> TreeSum(const std::vector<std::vector<T>>& leaves, size_t begin, size_t end) {
  if (end - begin == 1) return leaves[begin];
  std::vector<T> left = TreeSum(leaves, begin, (begin + end) / 2);
  const std::vector<T> right = TreeSum(leaves, (begin + end) / 2, end);
  for (size_t i = 0; i < left.size(); ++i) left[i] = static_cast<T>(left[i] + right[i]);
  return left;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

inline std::vector<double> LeafScalars(int64_t leaf) {
  RandomStream random(8, RandomPurpose::kInit, leaf, 0);
  return {random.Normal() * 1e9, random.Uniform()};
}
inline std::vector<double> ScalarSum(int64_t num_leaves) {
  std::vector<std::vector<double>> scalars;
  for (int64_t leaf = 0; leaf < num_leaves; ++leaf) scalars.push_back(LeafScalars(leaf));
  return TreeSum(scalars, 0, scalars.size());
}

// Each rank on a node of its own.
inline std::vector<int> Alone(int ranks) {
  std::vector<int> nodes(ranks);
  std::iota(nodes.begin(), nodes.end(), 0);
  return nodes;
}

// The leaf is this gradient, from the host's memory.
inline void AddLeaf(GradientReducer& reducer, kernels::Backend& backend, int64_t leaf,
                    absl::Span<const float> gradient, absl::Span<const double> scalars) {
  const std::vector<GradientReducer::Place> places = reducer.LeafPlaces();
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    const auto window = gradient.subspan(place->range.begin, place->range.size());
    reducer.BeginWindow(place->range.begin);
    backend.CopyToDevice(window.data(), place->data, window.size() * sizeof(float), {});
    reducer.GradientReady(place->range.begin);
  }
  reducer.CommitLeaf(leaf, scalars);
}

struct Reduced {
  std::vector<float> gradient;  // of all ranks, put together
  std::vector<std::vector<double>> scalars_of_rank;
  std::vector<int64_t> bytes_of_rank;  // sent in all rounds
  testing::Traffic traffic;
};

// `rounds` steps with the same leaves through one reducer, on ranks that are on these nodes; the
// result of the last. Each leaf brings the first `num_scalars` of its two scalars. `options`
// without sizes, which are those of the arguments.
inline Reduced Reduce(const std::vector<std::vector<float>>& leaves, const std::vector<int>& nodes,
                      int num_scalars, int rounds = 1, GradientReducerOptions options = {}) {
  const auto size = static_cast<int64_t>(leaves[0].size());
  const int ranks = static_cast<int>(nodes.size());
  Reduced reduced{std::vector<float>(size), std::vector<std::vector<double>>(ranks),
                  std::vector<int64_t>(ranks)};
  options.num_elements = size;
  options.num_leaves = static_cast<int64_t>(leaves.size());
  options.num_scalars = num_scalars;
  const auto run = [&](Communicator& comm) {
    comm.set_nodes(RankGroups(nodes));
    const auto backend = kernels::MakeReferenceBackend();
    const auto transport = MakeCommunicatorTransport(comm, *backend).value();
    const auto reducer = GradientReducer::Create(comm, *backend, *transport, options).value();
    std::vector<double>& scalars = reduced.scalars_of_rank[comm.rank()];
    scalars.resize(num_scalars);
    const Range owned = reducer->owned();
    const int64_t sent_before = comm.bytes_sent();
    for (int round = 0; round < rounds; ++round) {
      for (const int64_t leaf : reducer->leaves()) {
        const std::vector<double> of_leaf = LeafScalars(leaf);
        AddLeaf(*reducer, *backend, leaf, leaves[leaf],
                absl::MakeConstSpan(of_leaf).first(num_scalars));
      }
      const TensorView sum = reducer->ReduceScatter(absl::MakeSpan(scalars));
      std::copy_n(sum.data<float>(), owned.size(), reduced.gradient.begin() + owned.begin);
    }
    reduced.bytes_of_rank[comm.rank()] = comm.bytes_sent() - sent_before;
  };
  testing::RunThreadRanks(ranks, run, {.traffic = &reduced.traffic});
  return reduced;
}

// FNV-1a, 64 bits.
inline uint64_t Digest(absl::Span<const char> bytes, uint64_t digest = 0xcbf29ce484222325u) {
  for (const char byte : bytes) digest = (digest ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
  return digest;
}

// All ranks' ranges of a sharded array put together.
inline std::vector<float> GatherState(Communicator& comm, const Partition& partition,
                                      absl::Span<const float> mine) {
  std::vector<float> all(partition.num_elements());
  std::copy(mine.begin(), mine.end(), all.begin() + partition.OwnedBy(comm.rank()).begin);
  std::vector<int64_t> offsets = partition.offsets();
  for (int64_t& offset : offsets) offset *= sizeof(float);
  comm.AllGatherInPlace(MutableBytesOf(absl::MakeSpan(all)), offsets);
  return all;
}

inline absl::Span<char> BytesOfView(TensorView view) {
  return absl::MakeSpan(static_cast<char*>(view.raw()), view.num_bytes());
}

// Device memory as the host sees it.
template <typename T>
std::vector<T> ToHost(kernels::Backend& backend, ConstTensorView view) {
  std::vector<T> values(view.num_elements());
  backend.CopyToHost(view.raw(), values.data(), view.num_bytes(), {});
  backend.Synchronize({});
  return values;
}
template <typename T>
void ToDevice(kernels::Backend& backend, const std::vector<T>& values, TensorView view) {
  ANYORDER_CHECK(static_cast<int64_t>(values.size()) == view.num_elements());
  backend.CopyToDevice(values.data(), view.raw(), view.num_bytes(), {});
}

// Device memory of `size` elements, zero.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(kernels::Backend& backend, int64_t size)
      : backend_(backend),
        buffer_(backend.Allocate(size * static_cast<int64_t>(sizeof(T))).value()),
        size_(size) {}
  DeviceArray(kernels::Backend& backend, const std::vector<T>& values)
      : DeviceArray(backend, static_cast<int64_t>(values.size())) {
    ToDevice(backend, values, view());
  }
  TensorView view() const { return TensorView(static_cast<T*>(buffer_->data()), {size_}); }
  std::vector<T> host() const { return ToHost<T>(backend_, view()); }

 private:
  kernels::Backend& backend_;
  std::unique_ptr<kernels::Buffer> buffer_;
  int64_t size_;
};

// The gradient of a leaf: random, plus a pull by the current weights, so that one wrong bit
// anywhere in a step changes all later ones.
template <typename Weight>
void WriteLeafGradient(int64_t step, int64_t leaf, absl::Span<const Weight> weights,
                       absl::Span<float> gradient) {
  RandomStream random(11, RandomPurpose::kInit, step, leaf);
  for (size_t i = 0; i < weights.size(); ++i) {
    const float noise = static_cast<float>(random.Normal() * std::exp2(8 * random.Uniform()));
    gradient[i] = noise + 0.125f * static_cast<float>(weights[i]);
  }
}

// Compute weights of all parameters, whole unless `options` say otherwise.
inline std::unique_ptr<WeightWindows> MakeWeights(Communicator& comm, kernels::Backend& backend,
                                                  DeviceTransport& transport, int64_t size,
                                                  DType dtype = DType::kFloat32,
                                                  WeightWindowsOptions options = {}) {
  options.num_elements = size;
  options.dtype = dtype;
  return WeightWindows::Create(comm, backend, transport, options).value();
}

// Elements of weights that may come in windows.
template <typename Weight>
std::vector<Weight> ReadWeights(kernels::Backend& backend, WeightWindows& weights) {
  std::vector<Weight> all;
  for (size_t window = 0; window < weights.windows().size(); ++window) {
    weights.Begin(window);
    const std::vector<Weight> part = ToHost<Weight>(backend, weights.windows()[window].data);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// All of whose parameters decay, from zeros.
inline std::unique_ptr<ShardedOptimizer> PlainOptimizer(Communicator& comm,
                                                        kernels::Backend& backend,
                                                        DeviceTransport& transport, int64_t size,
                                                        const OptimizerConfig& config = {}) {
  return ShardedOptimizer::Create(comm, backend, transport, size, {{0, size, true}}, config)
      .value();
}

// With master weights that tell every parameter from its neighbours.
inline std::unique_ptr<ShardedOptimizer> StartOptimizer(Communicator& comm,
                                                        kernels::Backend& backend,
                                                        DeviceTransport& transport,
                                                        const OptimizerConfig& config) {
  std::unique_ptr<ShardedOptimizer> optimizer =
      ShardedOptimizer::Create(comm, backend, transport, kRunElements, RunSegments(), config)
          .value();
  const Range owned = optimizer->owned();
  std::vector<float> master(owned.size());
  for (int64_t i = owned.begin; i < owned.end; ++i)
    master[i - owned.begin] = static_cast<float>(std::sin(static_cast<double>(i)));
  ToDevice(backend, master, optimizer->master());
  return optimizer;
}

// Digest of compute weights, master weights, moments and average; the same on every rank. REQUIRES:
// the optimizer keeps an average.
template <typename Weight>
uint64_t StateDigest(Communicator& comm, kernels::Backend& backend, ShardedOptimizer& optimizer,
                     WeightWindows& weights) {
  const std::vector<Weight> values = ReadWeights<Weight>(backend, weights);
  uint64_t digest = Digest(BytesOf(absl::MakeConstSpan(values)));
  for (const TensorView state : {optimizer.master(), optimizer.first_moment(),
                                 optimizer.second_moment(), optimizer.average()}) {
    const std::vector<float> all =
        GatherState(comm, optimizer.partition(), ToHost<float>(backend, state));
    digest = Digest(BytesOf(absl::MakeConstSpan(all)), digest);
  }
  return digest;
}

// The transport that is given, or the communicator's.
class GivenTransport {
 public:
  GivenTransport(DeviceTransport* given, Communicator& comm, kernels::Backend& backend)
      : own_(given == nullptr ? MakeCommunicatorTransport(comm, backend).value() : nullptr),
        transport_(given == nullptr ? *own_ : *given) {}
  DeviceTransport& operator*() const { return transport_; }

 private:
  std::unique_ptr<DeviceTransport> own_;
  DeviceTransport& transport_;
};

// What changes no bit.
struct RunSettings {
  int64_t leaves_per_exchange = 0;
  WeightSharding sharding = WeightSharding::kNone;
  MemoryPlace state = MemoryPlace::kDevice;
  MemoryPlace partials = MemoryPlace::kDevice;
};

// The state's digest after kRunSteps steps.
template <typename Weight>
uint64_t RunDigest(Communicator& comm, kernels::Backend& backend, DeviceTransport* given = nullptr,
                   const RunSettings& settings = {}) {
  const GivenTransport transport(given, comm, backend);
  OptimizerConfig config;
  config.state = settings.state;
  config.bias_correction = true;
  config.max_grad_norm = 50.0;  // the first norms are larger
  config.ema_decay = 0.3;       // reached by the third step
  GradientReducerOptions options{kRunElements, kRunLeaves, /*num_scalars=*/1};
  options.partials = settings.partials;
  options.leaves_per_exchange = settings.leaves_per_exchange;
  options.window_begins = {0, 1003, 20001, 33333, 50001};
  options.min_slice_elements = 100;
  options.bucket_bytes = 40'000;
  const auto reducer = GradientReducer::Create(comm, backend, *transport, options).value();
  const auto optimizer = StartOptimizer(comm, backend, *transport, config);
  const auto weights = MakeWeights(
      comm, backend, *transport, kRunElements, DTypeOf<Weight>(),
      {.window_begins = {0, 1003, 20001, 20001, 33333, 50001}, .sharding = settings.sharding});
  weights->Set(optimizer->master());
  optimizer->StartAverage();

  std::vector<float> leaf_gradient(kRunElements);
  double target_weight = 0;
  for (int64_t step = 0; step < kRunSteps; ++step) {
    const std::vector<Weight> now = ReadWeights<Weight>(backend, *weights);
    for (const int64_t leaf : reducer->leaves()) {
      WriteLeafGradient(step, leaf, absl::MakeConstSpan(now), absl::MakeSpan(leaf_gradient));
      AddLeaf(*reducer, backend, leaf, leaf_gradient, {static_cast<double>(1 + leaf % 3)});
    }
    const TensorView gradient = reducer->ReduceScatter(absl::MakeSpan(&target_weight, 1));
    optimizer->Step(gradient, {0.01 * (step + 1), 1.0 / target_weight}, *weights);
    const UpdateOutcome result = optimizer->AwaitOutcome();
    EXPECT_FALSE(result.skipped);
    EXPECT_LT(result.clip_factor, 1.0);
  }
  return StateDigest<Weight>(comm, backend, *optimizer, *weights);
}

template <typename Weight>
uint64_t RunDigestOfOneRank(kernels::Backend& backend) {
  uint64_t digest = 0;
  testing::RunThreadRanks(1, [&](Communicator& one) { digest = RunDigest<Weight>(one, backend); });
  return digest;
}

}  // namespace anyorder::dist
