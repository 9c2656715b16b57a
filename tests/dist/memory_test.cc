// How many bytes gradients, weights and the optimizer take of a device, by counting what is
// allocated: the formulas of dist/README.md, to the byte.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/dist/training_run.h"
#include "tests/testing/forwarding_backend.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

class CountingBackend final : public testing::ForwardingBackend {
 public:
  CountingBackend() : ForwardingBackend(kernels::MakeReferenceBackend()) {}
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override {
    taken_ += bytes;
    return ForwardingBackend::Allocate(bytes);
  }
  // Since the last call.
  int64_t Take() { return std::exchange(taken_, 0); }

 private:
  int64_t taken_ = 0;
};

// Input, three layers and heads, which any of these ranks cut into equal slices.
constexpr int64_t kWindowUnit = 24 * kUnitElements;
constexpr int64_t kInput = 40 * kWindowUnit;
constexpr int64_t kLayer = 9 * kWindowUnit;
constexpr int64_t kHeads = 30 * kWindowUnit;
constexpr int64_t kElements = kInput + 3 * kLayer + kHeads;
const std::vector<int64_t>& Begins() {
  static const auto* const begins = new std::vector<int64_t>{
      0, kInput, kInput + kLayer, kInput + 2 * kLayer, kInput + 3 * kLayer};
  return *begins;
}
// What has no elements takes one all the same.
constexpr int64_t kLeast = 4;

TEST(MemoryTest, GradientsTakeWhatTheFormulaSays) {
  constexpr int64_t kLeaves = 32;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (int64_t each = 1; each <= kLeaves / ranks; each *= 2) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", each, " leaves an exchange"));
      testing::RunThreadRanks(ranks, [&](Communicator& comm) {
        CountingBackend backend;
        const auto transport = MakeCommunicatorTransport(comm, backend).value();
        GradientReducerOptions options{kElements, kLeaves, /*num_scalars=*/0, each};
        options.window_begins = Begins();
        options.min_slice_elements = 1;
        const auto reducer = GradientReducer::Create(comm, backend, *transport, options).value();
        if (ranks == 1) {
          EXPECT_EQ(backend.Take(), 4 * kElements * (5 + 1) + 2 * kLeast);  // log2 W + 1
          return;
        }
        const int64_t waiting = std::bit_width(static_cast<uint64_t>(each)) - 1;
        // Heads and the second layer take turns, and the third and the first.
        const int64_t windows = kInput + kHeads + kLayer;
        // The most nodes that the rounds so far join to: of three ranks 15 of 16, ..., at most.
        int64_t sums = 0;
        for (int64_t nodes = ranks; nodes < kLeaves / each + ranks; nodes += ranks)
          sums = std::max<int64_t>(
              sums, std::popcount(static_cast<uint64_t>(std::min(nodes, kLeaves / each))));
        const int64_t arriving = (ranks - 1) * kInput / ranks + kLeast / 4;  // of a bucket
        EXPECT_EQ(backend.Take(),
                  4 * (kElements * waiting + windows + sums * kElements / ranks + arriving) +
                      4 * std::max<int64_t>(1, reducer->owned().size()));
      });
    }
  }
}

TEST(MemoryTest, WeightsTakeWhatTheFormulaSays) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const WeightSharding sharding : {WeightSharding::kNone, WeightSharding::kAll}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
      testing::RunThreadRanks(ranks, [&](Communicator& comm) {
        CountingBackend backend;
        const auto transport = MakeCommunicatorTransport(comm, backend).value();
        MakeWeights(comm, backend, *transport, kElements, DType::kBFloat16,
                    {.window_begins = Begins(), .sharding = sharding});
        const bool is_whole = ranks == 1 || sharding == WeightSharding::kNone;
        EXPECT_EQ(backend.Take(), is_whole
                                      ? 2 * Partition(kElements, ranks).padded_elements()
                                      : 2 * (kInput + kHeads + 3 * kLayer / ranks + 2 * kLayer));
      });
    }
  }
}

}  // namespace
}  // namespace anyorder::dist
