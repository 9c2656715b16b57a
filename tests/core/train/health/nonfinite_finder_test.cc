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
std::vector<std::string> Findings(int ranks, int64_t bad, Lag lag, dist::Reduction reduction) {
  std::vector<std::string> texts(2);
  FakeWire wire;
  testing::RunThreadRanks(ranks, [&](dist::Communicator& comm) {
    testing::NcclRank device(wire, comm, kernels::MakeReferenceBackend(), lag);
    kernels::Backend& backend = device.backend;
    dist::GradientReducerOptions options{kSize, kLeaves, /*num_scalars=*/0, reduction};
    options.transport = device.transport.get();
    options.bucket_bytes = 40'000;
    const auto reducer = dist::GradientReducer::Create(comm, backend, options).value();
    const dist::Range leaves = reducer->leaves();
    const auto finder = NonfiniteFinder::Create(backend, kSize, /*micro_batch_size=*/2, leaves);
    const dist::DeviceArray<float> sum(backend, reducer->owned().size());
    for (std::string& text : texts) {
      (*finder)->Clear();
      for (int64_t leaf = leaves.begin; leaf < leaves.end; ++leaf) {
        std::vector<float> gradient(kSize, 0.5f);
        const bool is_bad = leaf == bad && &text == &texts[0];
        // In every rank's slice of every bucket.
        for (int64_t i = 0; is_bad && i < kSize; i += 1000)
          gradient[i] = std::numeric_limits<float>::infinity();
        float* const buffer = reducer->LeafBuffer();
        backend.CopyToDevice(gradient.data(), buffer, kSize * 4, {});
        // All of it is on its way before it is examined.
        reducer->GradientReady(0);
        (*finder)->Examine(leaf, 1.0, buffer);
        reducer->CommitLeaf(leaf, {});
      }
      reducer->ReduceScatter(sum.view(), {});
      const std::string found = (*finder)->Gather(comm).text;
      if (comm.rank() == 0) text = found;
    }
  });
  return texts;
}

TEST(NonfiniteFinderTest, GradientIsBlamedOnItsOwnLanesWhileItTravels) {
  for (const dist::Reduction reduction : {dist::Reduction::kTree, dist::Reduction::kFast}) {
    for (const Lag lag : {Lag::kMain, Lag::kSide, Lag::kRandom}) {
      for (int ranks = 1; ranks <= 3; ++ranks) {
        for (int64_t bad = 0; bad < kLeaves; ++bad) {
          int owner = 0;
          while (dist::LeafRange(kLeaves, ranks, owner).end <= bad) ++owner;
          const std::vector<std::string> expected = {
              absl::StrCat("rank ", owner, " on thread", owner, ": gradient of lanes ", 2 * bad,
                           " to ", 2 * bad + 1),
              ""};
          EXPECT_EQ(Findings(ranks, bad, lag, reduction), expected) << ranks << " ranks";
        }
      }
    }
  }
}

}  // namespace
}  // namespace anyorder
