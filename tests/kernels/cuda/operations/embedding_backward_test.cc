// The sorted gradient of a table: its order is the stable one, long runs of an id are whole, bad
// ids end it. That any schedule has the same bits: ../../same_bits_test.cc.

#include "kernels/cuda/operations/embedding_backward.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/sort.cuh"
#include "tests/testing/host_tensor.h"

namespace anyorder::kernels::cuda {
namespace {

using test::HostTensor;

struct Sorted {
  std::vector<int32_t> keys;
  std::vector<int32_t> places;
  bool operator==(const Sorted&) const = default;
};

Sorted Sort(const std::vector<int32_t>& keys, int32_t num_keys, uint64_t seed) {
  const auto n = static_cast<int64_t>(keys.size());
  // With room behind: a mutant may place pairs a little too far.
  std::vector<std::vector<int32_t>> arrays(4, std::vector<int32_t>(keys.size() + kSortTile, -1));
  std::vector<uint32_t> counts(SortCounts(n), 0xffffffffu);
  const SortBuffers buffers{
      {arrays[0].data(), arrays[1].data()}, {arrays[2].data(), arrays[3].data()}, counts.data()};
  emulation::SetSchedule({seed});
  const int set = SortPlaces(keys.data(), n, num_keys, buffers, {});
  for (auto& array : arrays) array.resize(keys.size());
  return {arrays[set], arrays[2 + set]};
}

Sorted StableSort(const std::vector<int32_t>& keys) {
  Sorted sorted;
  sorted.places.resize(keys.size());
  std::iota(sorted.places.begin(), sorted.places.end(), 0);
  std::stable_sort(sorted.places.begin(), sorted.places.end(),
                   [&](int32_t a, int32_t b) { return keys[a] < keys[b]; });
  for (const int32_t place : sorted.places) sorted.keys.push_back(keys[place]);
  return sorted;
}

// Tiles that are not full, one tile, several; keys of one to five passes.
TEST(SortTest, IsStableAndComplete) {
  for (const int64_t n : {1, 7, 1023, 1024, 3001}) {
    for (const int32_t num_keys : {1, 2, 32, 33, 32000, 1 << 21}) {
      const std::vector<int32_t> keys = test::RandomIds(n, num_keys, 3);
      EXPECT_EQ(Sort(keys, num_keys, 0), StableSort(keys)) << n << " of " << num_keys;
    }
  }
}

TEST(SortTest, IsTheSameInAnySchedule) {
  const std::vector<int32_t> keys = test::RandomIds(1500, 40, 3);
  const Sorted expected = StableSort(keys);
  for (uint64_t seed = 1; seed < 6; ++seed)
    EXPECT_EQ(Sort(keys, 40, seed), expected) << "seed " << seed;
}

void Backward(const HostTensor& dy, const std::vector<int32_t>& ids, HostTensor* dtable,
              uint64_t seed) {
  const int64_t elements = EmbeddingBackwardScratchElements(dy.shape()[0], dy.shape()[1]);
  std::vector<float> scratch(elements, std::numeric_limits<float>::quiet_NaN());
  emulation::SetSchedule({seed});
  Run(EmbeddingBackwardArgs{dy.view(), ids.data(), 1.0f, Dropout{}, nullptr, dtable->view()},
      scratch.data(), {});
}

// One id that owns every piece but the ends: several rounds of each warp. Whole numbers, so that
// any order has the same sum.
TEST(EmbeddingBackwardTest, SumsOneIdThatOwnsNearlyAllRowsInAnySchedule) {
  constexpr int64_t kManyRows = kRunPiece * (kJoinWarps * kJoinBatch + 11) + 5;
  constexpr int64_t kColumns = 3;
  const HostTensor dy = test::Integers(DType::kFloat32, {kManyRows, kColumns}, 1);
  std::vector<int32_t> ids(kManyRows, 1);
  ids[7] = 0;
  ids[70] = 2;
  std::vector<double> expected(3 * kColumns, 0.0);
  for (int64_t i = 0; i < kManyRows * kColumns; ++i)
    expected[ids[static_cast<size_t>(i / kColumns)] * kColumns + i % kColumns] += dy.At(i);
  for (const uint64_t seed : {0, 1, 2, 3}) {
    HostTensor table(DType::kFloat32, {3, kColumns});
    Backward(dy, ids, &table, seed);
    EXPECT_EQ(table.Values(), expected) << "seed " << seed;
  }
}

TEST(EmbeddingDeathTest, EndsAtIdsOutsideTheTable) {
  const HostTensor dy = test::RandomTensor(DType::kFloat32, {3, 8}, 1);
  HostTensor table(DType::kFloat32, {5, 8});
  HostTensor y(DType::kFloat32, {3, 8});
  for (const int32_t bad : {5, -1, std::numeric_limits<int32_t>::min()}) {
    const std::vector<int32_t> ids = {0, bad, 4};
    EXPECT_DEATH(Backward(dy, ids, &table, 0), "outside the table");
    const EmbeddingForwardArgs forward{table.view(), ids.data(), 1.0f, {}, nullptr, y.view()};
    EXPECT_DEATH(cuda::Run(forward, {}), "outside the table");
    const GatherRowsArgs gather{table.view(), ids.data(), 3, false, y.view()};
    EXPECT_DEATH(cuda::Run(gather, {}), "outside its matrix");
  }
}

}  // namespace
}  // namespace anyorder::kernels::cuda
