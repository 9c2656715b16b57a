#include "launcher/run/run_identity.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "ckpt/lease.h"
#include "core/base/file_system.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

// A launch that died between its claim and its first record has used up its number.
TEST(RunIdentityTest, ANumberThatWasClaimedIsNotGivenAgain) {
  const TemporaryDirectory directory;
  const RunDirectory paths(directory.path());
  std::filesystem::create_directories(paths.launch);
  Ledger ledger = Ledger::Open(paths.ledger).value();
  const RunIdentity first = NextIdentity(paths).value();
  EXPECT_EQ(first.attempt, 1);
  ASSERT_TRUE(RecordCreation(paths, first, RunConfig(), ledger).ok());
  const ckpt::LeaseOwner dead = {.run_id = first.run_id, .attempt = 4};
  const auto lease =
      ckpt::Lease::Acquire(FileSystem::Posix(), paths.launch, dead, absl::Seconds(1));
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(NextIdentity(paths)->attempt, 5);
  EXPECT_EQ(NextIdentity(paths)->run_id, first.run_id);
}

}  // namespace
}  // namespace anyorder::launcher
