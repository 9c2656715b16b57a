// The whole path: trainers, service, disk, reader.

#include "ckpt/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/time/clock.h"

#include "ckpt/layout.h"
#include "tests/ckpt/service_fixture.h"

namespace anyorder::ckpt {
namespace {

using ::testing::HasSubstr;

TEST_F(ServiceTest, StateComesBackWhateverTheNumberOfRanks) {
  const State first(11);
  std::string digest;
  // 1 -> 3 -> 2 ranks: each start reads what the one before wrote, and writes it again under the next step.
  int64_t incarnation = 0;
  for (const int world_size : {1, 3, 2}) {
    ++incarnation;
    CommitStep(100 * incarnation, first, world_size, incarnation);
    if (HasFatalFailure()) return;
    const absl::StatusOr<std::string> newest = FindNewestGood(run_dir(), true);
    ASSERT_TRUE(newest.ok()) << newest.status();
    EXPECT_EQ(*newest, StepPath(100 * incarnation));
    const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(*newest);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ(checkpoint->world_size(), world_size);
    EXPECT_EQ(checkpoint->metadata_json(), "{\"k\":1}");
    for (const int readers : {1, 2, 3, 5})
      ExpectHolds(*checkpoint, first, readers);
    const absl::StatusOr<std::string> found = checkpoint->StateDigest();
    ASSERT_TRUE(found.ok()) << found.status();
    if (digest.empty()) digest = *found;
    EXPECT_EQ(*found, digest);
  }
}

}  // namespace
}  // namespace anyorder::ckpt
