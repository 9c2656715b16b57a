// Gradients, weights and optimizer of LLaDA-8B on 8 and 64 ranks: their real classes, as threads,
// over devices without memory. What they allocate, and what they send in a round, are the formulas
// of dist/README.md. The network itself is not run.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/network/tensors/parameters.h"
#include "core/train/run/config_file.h"
#include "dist/gradient_reducer.h"
#include "dist/sharded_optimizer.h"
#include "dist/weight_windows.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/weightless_backend.h"

namespace anyorder {
namespace {

constexpr int64_t kVocabulary = 126'464;
constexpr int kRanksOfMachine = 8;

class CountingBackend final : public testing::WeightlessBackend {
 public:
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override {
    taken_ += bytes;
    largest_ = std::max(largest_, bytes);
    return WeightlessBackend::Allocate(bytes);
  }
  // Since the last call.
  int64_t Take() { return std::exchange(taken_, 0); }
  int64_t largest() const { return largest_; }

 private:
  int64_t taken_ = 0;
  int64_t largest_ = 0;
};

int64_t SentBytes(const std::map<int, testing::Sent>& sent, int rank, bool between_nodes) {
  int64_t bytes = 0;
  for (const auto& [to, of_peer] : sent) {
    if ((to / kRanksOfMachine != rank / kRanksOfMachine) == between_nodes) bytes += of_peer.bytes;
  }
  return bytes;
}

// All windows of a leaf, as backward finishes them.
void WalkGradients(dist::GradientReducer& reducer, const std::vector<int64_t>& begins,
                   int64_t leaf) {
  reducer.LeafPlaces();
  for (auto begin = begins.rbegin(); begin != begins.rend(); ++begin) {
    reducer.BeginWindow(*begin);
    reducer.GradientReady(*begin);
  }
  reducer.CommitLeaf(leaf, {});
}

// Forward and backward.
void WalkWeights(dist::WeightWindows& weights) {
  const size_t count = weights.windows().size();
  for (size_t window = 0; window < count; ++window) weights.Begin(window);
  for (size_t window = count; window-- > 0;) weights.Begin(window);
}

void RunRanks(const ParameterLayout& layout, int ranks) {
  const int64_t elements = layout.num_elements();
  const std::vector<int64_t>& begins = layout.windows();
  const int64_t input = begins[1];
  const int64_t layer = begins[2] - begins[1];
  const int64_t heads = elements - begins.back();
  testing::Traffic traffic;
  const auto run = [&](dist::Communicator& comm) {
    std::vector<int> node_of_rank;
    for (int rank = 0; rank < ranks; ++rank) node_of_rank.push_back(rank / kRanksOfMachine);
    comm.set_nodes(dist::RankGroups(node_of_rank));
    CountingBackend backend;
    const auto transport = dist::MakeCommunicatorTransport(comm, backend).value();
    // Two rounds of a leaf.
    dist::GradientReducerOptions options{elements, 2 * ranks, 0, 1, begins};
    const auto reducer = dist::GradientReducer::Create(comm, backend, *transport, options).value();
    const auto share = static_cast<double>(elements) / ranks;
    // Windows, two sums between rounds at most, the result; and what arrives of a bucket.
    const double gradients = 4 * (static_cast<double>(input + heads + layer) + 2 * share);
    const int64_t arriving = int64_t{2} * ranks * (4 << 20);
    const auto taken = static_cast<double>(backend.Take());
    EXPECT_GE(taken, gradients);
    EXPECT_LE(taken, gradients + arriving + 0.01 * 4 * share);
    const auto weights = dist::WeightWindows::Create(comm, backend, *transport,
                                                     {.num_elements = elements,
                                                      .dtype = DType::kBFloat16,
                                                      .window_begins = begins,
                                                      .sharding = dist::WeightSharding::kAll})
                             .value();
    const double whole = static_cast<double>(input + heads + 2 * layer);
    const double slices = static_cast<double>(elements - input - heads) / ranks;
    EXPECT_NEAR(static_cast<double>(backend.Take()), 2 * (whole + slices), 1e6);
    const auto optimizer = dist::ShardedOptimizer::Create(comm, backend, *transport, elements,
                                                          {{0, elements, true}}, {})
                               .value();
    EXPECT_LE(static_cast<double>(backend.Take()), 12 * share + 1e7);
    EXPECT_LT(backend.largest(), elements) << "bytes of the largest allocation";
    const double nodes = ranks / kRanksOfMachine;
    const auto near = [](int64_t bytes, double expected) {
      EXPECT_NEAR(static_cast<double>(bytes), expected, 0.01 * expected + 1e6);
    };
    for (int step = 0; step < 3; ++step) {
      weights->Set(optimizer->master());
      for (const int64_t leaf : reducer->leaves()) {
        traffic[comm.rank()].clear();
        WalkGradients(*reducer, begins, leaf);
        // A node sends a sum of its leaves once; one node has one level.
        const double all = 4 * static_cast<double>(elements);
        near(SentBytes(traffic[comm.rank()], comm.rank(), true),
             all * (nodes - 1) / (nodes * kRanksOfMachine));
        near(SentBytes(traffic[comm.rank()], comm.rank(), false),
             all * (kRanksOfMachine - 1) / kRanksOfMachine);
      }
      traffic[comm.rank()].clear();
      WalkWeights(*weights);
      // The layers come twice, but for the two that are still there where it turns.
      const double layers = 2 * static_cast<double>(2 * (elements - input - heads) - 2 * layer);
      near(SentBytes(traffic[comm.rank()], comm.rank(), true) +
               SentBytes(traffic[comm.rank()], comm.rank(), false),
           layers * (ranks - 1) / ranks);
      reducer->ReduceScatter({});
    }
  };
  testing::RunThreadRanks(ranks, run, {.traffic = &traffic, .most_moved_bytes = 4 << 10});
}

TEST(LargeModelTest, EightBillionParametersTakeAndSendWhatTheFormulasSay) {
  const char* const source = std::getenv("ANYORDER_SOURCE");
  RunConfig config =
      LoadRunConfig(absl::StrCat(source != nullptr ? source : ".", "/configs/llada-8b.toml"),
                    {"data.shards=x"})
          .value();
  config.Resolve();
  EXPECT_EQ(config.dist.leaves_per_exchange, 1);
  EXPECT_EQ(config.dist.shard_weights, dist::WeightSharding::kAll);
  const ParameterLayout layout(config.TrainedModel(), kVocabulary);
  EXPECT_GT(layout.num_elements(), 8'000'000'000);
  for (const int ranks : {8, 64}) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    RunRanks(layout, ranks);
  }
}

}  // namespace
}  // namespace anyorder
