// Who is blamed for a gradient that is not finite, where gradients are examined while they already
// travel and are added up.

#include "core/train/health/nonfinite_finder.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "dist/gradient_reducer.h"
#include "tests/dist/training_run.h"
#include "tests/testing/fake_nccl.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder {
namespace {

using testing::FakeWire;
using testing::Lag;

constexpr int64_t kSize = 2 * kernels::kNormBlockElements + 77;
constexpr int64_t kLeaves = 8;

// What the ranks find in a step whose leaf `bad` is infinite here and there, and in a good step
// after it.
std::vector<std::string> Findings(int ranks, int64_t bad, Lag lag, int64_t leaves_per_exchange) {
  std::vector<std::string> texts(2);
  FakeWire wire;
  testing::RunThreadRanks(ranks, [&](dist::Communicator& comm) {
    testing::NcclRank device(wire, comm, kernels::MakeReferenceBackend(), lag);
    kernels::Backend& backend = device.backend;
    dist::GradientReducerOptions options{kSize, kLeaves, /*num_scalars=*/0, leaves_per_exchange};
    options.window_begins = {0, 999, 20'000};
    options.min_slice_elements = 1;
    options.bucket_bytes = 40'000;
    std::unique_ptr<NonfiniteFinder> finder;
    options.examine = [&finder](ConstTensorView window) { finder->ExamineWindow(window); };
    const auto reducer =
        dist::GradientReducer::Create(comm, backend, *device.transport, options).value();
    const std::vector<int64_t>& leaves = reducer->leaves();
    finder = NonfiniteFinder::Create(backend, kSize, 3, /*micro_batch_size=*/2,
                                     static_cast<int64_t>(leaves.size()))
                 .value();
    for (std::string& text : texts) {
      finder->Clear();
      for (const int64_t leaf : leaves) {
        std::vector<float> gradient(kSize, 0.5f);
        const bool is_bad = leaf == bad && &text == &texts[0];
        // In every rank's slice of every bucket.
        for (int64_t i = 0; is_bad && i < kSize; i += 1000)
          gradient[i] = std::numeric_limits<float>::infinity();
        dist::AddLeaf(*reducer, backend, leaf, gradient, {});
        finder->EndLeaf(leaf, 1.0);
      }
      reducer->ReduceScatter({});
      const std::string found = finder->Gather(comm).text;
      if (comm.rank() == 0) text = found;
    }
  });
  return texts;
}

TEST(NonfiniteFinderTest, GradientIsBlamedOnItsOwnLanesWhileItTravels) {
  for (const int64_t leaves_per_exchange : {0, 1, 2}) {
    for (const Lag lag : {Lag::kMain, Lag::kSide, Lag::kRandom}) {
      for (int ranks = 1; ranks <= 3; ++ranks) {
        for (int64_t bad = 0; bad < kLeaves; ++bad) {
          const dist::LeafSchedule schedule(kLeaves, ranks, leaves_per_exchange);
          const int64_t owner = bad / schedule.leaves_per_exchange() % ranks;
          const std::vector<std::string> expected = {
              absl::StrCat("rank ", owner, " on thread", owner, ": gradient of lanes ", 2 * bad,
                           " to ", 2 * bad + 1),
              ""};
          EXPECT_EQ(Findings(ranks, bad, lag, leaves_per_exchange), expected) << ranks << " ranks";
        }
      }
    }
  }
}

}  // namespace
}  // namespace anyorder
