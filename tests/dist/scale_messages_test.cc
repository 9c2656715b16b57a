// What ranks send in a step and at the start, counted with the real reducer, optimizer and
// collectives over ranks that are threads with devices without memory. The limits hold the growth:
// nothing but the exchange of gradients, and of large weights in two levels, may have more than
// about log R messages and peers a rank.
//
// ANYORDER_SCALE_RANKS=1024 counts that many, too (half a minute). The table is printed;
// tests/bench/reports has one.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_format.h"

#include "dist/gradient_reducer.h"
#include "dist/sharded_optimizer.h"
#include "kernels/backends/sizing_backend.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

using testing::Sent;
using testing::Traffic;

constexpr int64_t kParameters = int64_t{1} << 26;
constexpr int kRanksOfNode = 8;
constexpr int kScalars = 16;

// Of the ranks: the most of any.
struct Count {
  int64_t messages = 0;
  int64_t peers = 0;
  int64_t messages_between_nodes = 0;
  int64_t bytes = 0;
  int64_t bytes_between_nodes = 0;
};

Count CountOf(const std::map<int, Sent>& sent, int rank) {
  Count count;
  for (const auto& [to, of_peer] : sent) {
    const bool is_elsewhere = to / kRanksOfNode != rank / kRanksOfNode;
    ++count.peers;
    count.messages += of_peer.messages;
    count.bytes += of_peer.bytes;
    count.messages_between_nodes += is_elsewhere ? of_peer.messages : 0;
    count.bytes_between_nodes += is_elsewhere ? of_peer.bytes : 0;
  }
  return count;
}

void TakeLargest(Count& most, const Count& count) {
  most.messages = std::max(most.messages, count.messages);
  most.peers = std::max(most.peers, count.peers);
  most.messages_between_nodes = std::max(most.messages_between_nodes, count.messages_between_nodes);
  most.bytes = std::max(most.bytes, count.bytes);
  most.bytes_between_nodes = std::max(most.bytes_between_nodes, count.bytes_between_nodes);
}

// In the order of Counts().
enum Part : int { kStrings, kAgreement, kGradient, kScalarSums, kNorm, kWeights, kNumParts };
constexpr const char* kPartNames[] = {"strings at the start", "an agreement", "gradient", "scalars",
                                      "gradient norm",        "weights"};

std::vector<Count> Counts(int ranks, bool has_levels) {
  Traffic traffic;
  std::vector<std::vector<Count>> of_rank(ranks, std::vector<Count>(kNumParts));
  const auto run = [&](Communicator& comm) {
    if (has_levels) {
      std::vector<int> nodes;
      for (int rank = 0; rank < ranks; ++rank) nodes.push_back(rank / kRanksOfNode);
      comm.set_nodes(RankGroups(nodes));
    }
    const auto take = [&](Part part) {
      of_rank[comm.rank()][part] = CountOf(traffic[comm.rank()], comm.rank());
      traffic[comm.rank()].clear();
    };
    EXPECT_EQ(static_cast<int>(comm.AllGatherStrings(comm.host()).size()), ranks);
    take(kStrings);
    EXPECT_TRUE(comm.AllAgree(absl::OkStatus()).ok());
    take(kAgreement);

    kernels::SizingBackend backend(kernels::SizedDevice{});
    const auto transport = MakeCommunicatorTransport(comm, backend).value();
    const auto reducer =
        GradientReducer::Create(comm, backend, *transport, {kParameters, ranks}).value();
    const auto optimizer = ShardedOptimizer::Create(comm, backend, *transport, kParameters,
                                                    {{0, kParameters, true}}, {})
                               .value();
    const auto weights =
        WeightWindows::Create(comm, backend, *transport, {kParameters, DType::kBFloat16}).value();
    reducer->LeafPlaces();
    reducer->CommitLeaf(reducer->leaves()[0], {});
    const TensorView owned = reducer->ReduceScatter({});
    take(kGradient);
    std::vector<double> totals(kScalars);
    SumScalars(comm, reducer->schedule(), std::vector<double>(kScalars, 1), absl::MakeSpan(totals));
    EXPECT_EQ(totals[0], ranks);
    take(kScalarSums);
    StepInfo info;
    info.skip_update = true;
    optimizer->Step(owned, info, *weights);
    take(kNorm);
    weights->Set(optimizer->master());
    take(kWeights);
  };
  testing::RunThreadRanks(ranks, run, {.traffic = &traffic, .most_moved_bytes = 64 << 10});
  std::vector<Count> most(kNumParts);
  for (const std::vector<Count>& counts : of_rank) {
    for (int part = 0; part < kNumParts; ++part) TakeLargest(most[part], counts[part]);
  }
  return most;
}

void Print(int ranks, bool has_levels, const std::vector<Count>& counts) {
  for (int part = 0; part < kNumParts; ++part) {
    const Count& count = counts[part];
    absl::PrintF("| %d | %s | %s | %d | %d | %d | %d | %d |\n", ranks, has_levels ? "two" : "one",
                 kPartNames[part], count.peers, count.messages, count.messages_between_nodes,
                 count.bytes, count.bytes_between_nodes);
  }
}

void CheckLimits(int ranks, bool has_levels, const std::vector<Count>& counts) {
  const int rounds = std::bit_width(static_cast<unsigned>(ranks - 1));
  const int nodes = ranks / kRanksOfNode;
  const int direct_peers = has_levels ? kRanksOfNode - 1 + nodes - 1 : ranks - 1;
  EXPECT_LE(counts[kAgreement].messages, rounds);
  EXPECT_LE(counts[kScalarSums].bytes, ranks * kScalars * 8);
  // A block may go round the end, and then is two messages; lengths go before strings.
  EXPECT_LE(counts[kScalarSums].messages, 2 * rounds);
  EXPECT_LE(counts[kNorm].messages, 2 * rounds);
  EXPECT_LE(counts[kStrings].messages, 4 * rounds);
  for (const Part part : {kAgreement, kScalarSums, kNorm, kStrings})
    EXPECT_LE(counts[part].peers, 2 * rounds) << kPartNames[part];

  // What is inherently a message for each owner.
  // Sums of slices go on to whoever owns them.
  const int64_t buckets = kParameters / (int64_t{ranks} * kMinSliceElements);
  EXPECT_LE(counts[kGradient].peers, std::min<int64_t>(ranks - 1, direct_peers + 2 * buckets));
  EXPECT_EQ(counts[kWeights].peers, has_levels ? direct_peers : rounds);
  const int64_t gradient = kParameters * 4 / (has_levels ? kRanksOfNode : 1) * (nodes - 1) / nodes;
  EXPECT_GE(counts[kGradient].bytes_between_nodes, gradient);
  EXPECT_LE(counts[kGradient].bytes_between_nodes, gradient + kParameters * 4 / ranks);
  if (has_levels) {
    EXPECT_EQ(counts[kWeights].messages_between_nodes, nodes - 1);
    EXPECT_EQ(counts[kWeights].bytes_between_nodes, kParameters * 2 / ranks * (nodes - 1));
  }
  // Messages between nodes do not shrink below 256 KiB.
  EXPECT_GE(counts[kGradient].bytes_between_nodes,
            counts[kGradient].messages_between_nodes * kMinSliceElements * 4);
}

TEST(ScaleMessagesTest, GrowNoFasterThanTheirLimits) {
  std::vector<int> sizes = {64, 256};
  if (const char* const more = std::getenv("ANYORDER_SCALE_RANKS"))
    sizes.push_back(std::atoi(more));
  absl::PrintF(
      "| ranks | levels | what | peers | messages | of them between nodes | bytes | of them "
      "between "
      "nodes |\n|---|---|---|---|---|---|---|---|\n");
  for (const int ranks : sizes) {
    for (const bool has_levels : {false, true}) {
      SCOPED_TRACE(absl::StrFormat("%d ranks, %s", ranks, has_levels ? "two levels" : "one level"));
      const std::vector<Count> counts = Counts(ranks, has_levels);
      Print(ranks, has_levels, counts);
      CheckLimits(ranks, has_levels, counts);
    }
  }
}

}  // namespace
}  // namespace anyorder::dist
