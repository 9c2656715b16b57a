// Weights that come in windows: the bits of whole ones, in whatever order windows are begun, and no
// more memory than slices.

#include "dist/weight_windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "tests/dist/training_run.h"
#include "tests/testing/deferred_backend.h"
#include "tests/testing/fake_nccl.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

using testing::FakeWire;
using testing::Lag;

const std::vector<std::vector<int>>& NodesOfRanks() {
  static const auto* const all = new std::vector<std::vector<int>>{
      {0, 0}, {0, 0, 0}, {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 1, 2}};
  return *all;
}

// By the communicator, and by NCCL and through staging on devices that are late and whose memory
// the host cannot touch.
TEST(WeightWindowsTest, WholeStepsEndInTheDigestOfOneRank) {
  const uint64_t expected = RunDigestOfOneRank<BFloat16>(*kernels::MakeReferenceBackend());
  std::vector<std::vector<int>> all = NodesOfRanks();
  all.insert(all.end(), {{0}, {0, 0, 1, 1, 2, 2}, {0, 0, 0, 0, 1, 1, 1, 1}});
  for (const std::vector<int>& nodes : all) {
    const auto ranks = static_cast<int>(nodes.size());
    std::vector<RunSettings> all_settings = {{}};
    for (const WeightSharding sharding : {WeightSharding::kNode, WeightSharding::kAll}) {
      if (ranks > 4) break;  // which takes long
      all_settings.push_back({0, sharding});
      all_settings.push_back({1, sharding, MemoryPlace::kHost, MemoryPlace::kHost});
    }
    for (const RunSettings& settings : all_settings) {
      const std::string what =
          absl::StrCat(absl::StrJoin(nodes, "+"), ", ", EnumName(settings.sharding));
      testing::RunThreadRanks(ranks, [&](Communicator& comm) {
        comm.set_nodes(RankGroups(nodes));
        const auto backend = kernels::MakeReferenceBackend();
        EXPECT_EQ(RunDigest<BFloat16>(comm, *backend, nullptr, settings), expected) << what;
        if (settings.sharding == WeightSharding::kNode) return;
        testing::DeferredBackend late(kernels::MakeReferenceBackend(), Lag::kRandom, comm.rank());
        EXPECT_EQ(RunDigest<BFloat16>(comm, late, nullptr, settings), expected) << what;
      });
      FakeWire wire;
      testing::RunThreadRanks(ranks, [&](Communicator& comm) {
        comm.set_nodes(RankGroups(nodes));
        for (const Lag lag : {Lag::kMain, Lag::kSide, Lag::kRandom}) {
          testing::NcclRank device(wire, comm, kernels::MakeReferenceBackend(), lag, 1);
          EXPECT_EQ(RunDigest<BFloat16>(comm, device.backend, device.transport.get(), settings),
                    expected)
              << what << ", NCCL";
        }
      });
    }
  }
}

// Forward, backward, or any order: where a window is begun it is there.
TEST(WeightWindowsTest, AWindowIsThereWhenItIsBegun) {
  constexpr int64_t kSize = 100'003;
  const std::vector<int64_t> begins = {0, 10, 20'000, 20'001, 20'001, 60'000, 99'000, kSize};
  const std::vector<float> values = RandomValues(kSize, 1);
  FakeWire wire;
  for (const std::vector<int>& nodes : NodesOfRanks()) {
    testing::RunThreadRanks(static_cast<int>(nodes.size()), [&](Communicator& comm) {
      comm.set_nodes(RankGroups(nodes));
      testing::NcclRank device(wire, comm, kernels::MakeReferenceBackend(), Lag::kRandom, 3);
      const auto weights =
          MakeWeights(comm, device.backend, *device.transport, kSize, DType::kFloat32,
                      {.window_begins = begins, .sharding = WeightSharding::kAll});
      const Range owned = Partition(kSize, comm.world_size()).OwnedBy(comm.rank());
      const DeviceArray<float> mine(device.backend, std::vector<float>(values.begin() + owned.begin,
                                                                       values.begin() + owned.end));
      int64_t first_gathers = 0;
      weights->OnFirstGather([&](size_t, ConstTensorView, StreamView) { ++first_gathers; });
      for (int step = 0; step < 2; ++step) {
        weights->Set(mine.view());
        std::vector<size_t> order = {1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1, 1, 2, 3};
        std::mt19937_64 random(5);  // the same on all ranks
        for (int i = 0; i < 30; ++i) order.push_back(random() % begins.size());
        for (const size_t window : order) {
          weights->Begin(window);
          const WeightWindows::Window& place = weights->windows()[window];
          EXPECT_EQ(reinterpret_cast<uintptr_t>(place.data.raw()) % 16,
                    place.range.begin % 4 * sizeof(float));
          const std::vector<float> expected(values.begin() + place.range.begin,
                                            values.begin() + place.range.end);
          EXPECT_TRUE(SameBits(ToHost<float>(device.backend, place.data), expected)) << window;
        }
      }
      EXPECT_EQ(first_gathers, 2 * 5);  // one of the layers has no weights
    });
  }
}

// Together the ranks that share have one copy of the layers; first and last window are everybody's.
TEST(WeightWindowsTest, ARankKeepsItsSlices) {
  const std::vector<int64_t> begins = {0, 100, 5'000, 70'000};
  constexpr int64_t kSize = 70'321;
  for (const std::vector<int>& nodes : NodesOfRanks()) {
    for (const WeightSharding sharding : {WeightSharding::kNode, WeightSharding::kAll}) {
      std::vector<std::vector<int>> copies(nodes.size(), std::vector<int>(kSize));
      testing::RunThreadRanks(static_cast<int>(nodes.size()), [&](Communicator& comm) {
        comm.set_nodes(RankGroups(nodes));
        const auto backend = kernels::MakeReferenceBackend();
        const auto transport = MakeCommunicatorTransport(comm, *backend).value();
        const auto weights = MakeWeights(comm, *backend, *transport, kSize, DType::kFloat32,
                                         {.window_begins = begins, .sharding = sharding});
        for (const WeightWindows::Window& window : weights->windows()) {
          const Range part = window.is_whole ? window.range : window.slice_range;
          EXPECT_EQ((window.is_whole ? window.data : window.slice).num_elements(), part.size());
          for (int64_t i = part.begin; i < part.end; ++i) ++copies[comm.rank()][i];
        }
      });
      const bool is_of_node = sharding == WeightSharding::kNode && nodes.back() != nodes.front();
      for (size_t rank = 0; rank < nodes.size(); ++rank) {
        std::vector<int> together(kSize);
        for (size_t peer = 0; peer < nodes.size(); ++peer) {
          if (is_of_node && nodes[peer] != nodes[rank]) continue;
          for (int64_t i = 0; i < kSize; ++i) together[i] += copies[peer][i];
        }
        for (int64_t i = 0; i < kSize; ++i) {
          const bool is_everybodys = i < begins[1] || i >= begins[3];
          ASSERT_EQ(is_everybodys ? copies[rank][i] : together[i], 1) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace anyorder::dist
