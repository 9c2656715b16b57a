// The sum of gradients has the bits of the tree for every cut into windows and buckets, every order
// in which parts of a leaf become ready, every late stream, and every number of leaves a round.

#include "dist/gradient_windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "dist/gradient_reducer.h"
#include "tests/dist/training_run.h"
#include "tests/testing/deferred_backend.h"
#include "tests/testing/fake_nccl.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

using testing::DeferredBackend;
using testing::FakeWire;
using testing::Lag;

constexpr int64_t kGradientSize = 2 * Partition::kBlockElements + 333;

// How the same leaves are summed.
struct Case {
  int ranks;
  int64_t leaves;
  int64_t leaves_per_exchange;
  Lag lag;
  uint64_t seed;                // of windows, buckets and of how the leaf arrives
  std::vector<int> nodes = {};  // of each rank; empty: every rank has its own
};

// A window's values come in pieces from its end, each reported some time after it was asked for.
void WriteInPieces(GradientReducer& reducer, kernels::Backend& backend,
                   const std::vector<float>& values, std::mt19937_64& random) {
  const std::vector<GradientReducer::Place> places = reducer.LeafPlaces();
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    const Range range = place->range;
    // Aligned as in the flat space, wherever it is.
    EXPECT_EQ(reinterpret_cast<uintptr_t>(place->data) % 16, range.begin % 4 * sizeof(float));
    reducer.BeginWindow(range.begin);
    for (int64_t end = range.end; end > range.begin;) {
      const int64_t begin = random() % 4 == 0
                                ? range.begin
                                : std::max<int64_t>(range.begin, end - 1 - random() % 9000);
      backend.CopyToDevice(values.data() + begin, place->data + (begin - range.begin),
                           (end - begin) * sizeof(float), {});
      end = begin;
      if (random() % 3 != 0 && begin > 0) reducer.GradientReady(begin);
    }
    // The next one may have the same memory.
    reducer.GradientReady(range.begin);
  }
}

GradientReducerOptions DrawOptions(const Case& c) {
  std::mt19937_64 random(c.seed);
  GradientReducerOptions options{kGradientSize, c.leaves, /*num_scalars=*/1, c.leaves_per_exchange};
  for (int64_t begin = 0; begin < kGradientSize; begin += static_cast<int64_t>(random() % 16000))
    if (begin > 0) options.window_begins.push_back(begin);
  options.window_begins.push_back(kGradientSize);  // heads without parameters
  options.bucket_bytes = 4096 + static_cast<int64_t>(random() % (5 * kGradientSize));
  options.min_slice_elements = random() % 3 == 0 ? kMinSliceElements : 1;
  return options;
}

// Three steps; the sum of each, of all ranks put together.
std::vector<std::vector<float>> Sums(const Case& c) {
  std::vector<std::vector<float>> sums(3, std::vector<float>(kGradientSize));
  FakeWire wire;
  testing::RunThreadRanks(c.ranks, [&](Communicator& comm) {
    if (!c.nodes.empty()) comm.set_nodes(RankGroups(c.nodes));
    testing::NcclRank device(wire, comm, kernels::MakeReferenceBackend(), c.lag, c.seed);
    DeferredBackend& backend = device.backend;
    GradientReducerOptions options = DrawOptions(c);
    int64_t examined = 0;
    options.examine = [&](ConstTensorView window) { examined += window.num_elements(); };
    const auto reducer = GradientReducer::Create(comm, backend, *device.transport, options).value();
    const Range owned = reducer->owned();
    std::mt19937_64 random(c.seed * 31 + comm.rank());
    for (size_t step = 0; step < sums.size(); ++step) {
      for (const int64_t leaf : reducer->leaves()) {
        WriteInPieces(*reducer, backend, WideGradient(step, leaf, kGradientSize), random);
        reducer->CommitLeaf(leaf, {1.0});
        EXPECT_EQ(std::exchange(examined, 0), kGradientSize);
      }
      double count = 0;
      const std::vector<float> mine =
          ToHost<float>(backend, reducer->ReduceScatter(absl::MakeSpan(&count, 1)));
      EXPECT_EQ(count, static_cast<double>(c.leaves));
      std::copy(mine.begin(), mine.end(), sums[step].begin() + owned.begin);
    }
  });
  return sums;
}

void ExpectTreeSums(const Case& c) {
  const auto sums = Sums(c);
  for (size_t step = 0; step < sums.size(); ++step) {
    const auto leaves = WideLeaves(static_cast<int64_t>(step), c.leaves, kGradientSize);
    EXPECT_TRUE(SameBits(sums[step], TreeSum(leaves, 0, leaves.size())))
        << c.leaves << " leaves on " << c.ranks << " ranks, " << c.leaves_per_exchange
        << " an exchange, seed " << c.seed << ", step " << step;
  }
}

TEST(GradientWindowsTest, HaveTheBitsOfTheTreeForAnyCutsArrivalsRoundsRanksAndNodes) {
  std::mt19937_64 random(5);
  for (const int64_t leaves : {4, 16}) {
    for (const Lag lag : {Lag::kMain, Lag::kSide, Lag::kRandom}) {
      for (int ranks = 1; ranks <= 4; ++ranks) {
        for (int64_t each = 0; each <= leaves / ranks; each = std::max<int64_t>(1, 2 * each))
          ExpectTreeSums({ranks, leaves, each, lag, random()});
      }
    }
  }
  // In two levels.
  for (const std::vector<int>& nodes :
       std::vector<std::vector<int>>{{0, 0, 1, 1}, {0, 0, 0, 1}, {0, 0, 1}, {0, 1, 1, 2}}) {
    const auto ranks = static_cast<int>(nodes.size());
    for (const int64_t each : {0, 1, 2})
      ExpectTreeSums({ranks, 8, each, Lag::kRandom, random(), nodes});
  }
}

// Rounds only move work: whatever ranks divide, nobody has much more of it than others.
TEST(LeafScheduleTest, DealsEveryLeafOnceAndEvenly) {
  for (int64_t leaves = 1; leaves <= 1024; leaves *= 2) {
    for (int ranks = 1; ranks <= std::min<int64_t>(leaves, 70); ++ranks) {
      for (int64_t each = 0; each <= leaves / ranks; each = std::max<int64_t>(1, 2 * each)) {
        const LeafSchedule schedule(leaves, ranks, each);
        std::vector<int> seen(leaves);
        for (int rank = 0; rank < ranks; ++rank) {
          const std::vector<int64_t> mine = schedule.LeavesOf(rank);
          EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
          for (const int64_t leaf : mine) ++seen[leaf];
          const int64_t share = (leaves + ranks - 1) / ranks;
          if (each == 0) {
            EXPECT_LE(mine.size(), share + share / 16);
          } else {
            EXPECT_EQ(schedule.leaves_per_exchange(), each);
          }
        }
        EXPECT_EQ(seen, std::vector<int>(leaves, 1));
        if (each == 0 && leaves % ranks == 0) {
          EXPECT_EQ(schedule.num_rounds(), 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace anyorder::dist
