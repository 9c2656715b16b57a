#include "launcher/run/run_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "ckpt/commit.h"
#include "ckpt/layout.h"
#include "ckpt/lease.h"
#include "core/base/file_system.h"
#include "tests/launcher/huggingface/hf_directory.h"
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

// A run of which attempt 3 has trained up to step 9 and committed step 8.
class LostLedgerTest : public ::testing::Test {
 protected:
  LostLedgerTest() {
    std::filesystem::create_directories(paths_.launch);
    const std::vector<float> values = {1, 2};
    const ckpt::TensorRange range = {"master", DType::kFloat32, {2}, 0, 2, values.data()};
    const int64_t generation = 3 * ckpt::kGenerationsPerAttempt + 8 * ckpt::kSavesPerStep;
    EXPECT_TRUE(ckpt::SaveDirectly(paths_.root, {"old", 3, generation, 8, 1, 1}, {range}, "{}",
                                   FileSystem::Posix())
                    .ok());
    WriteFile(paths_.metrics, R"({"step":9,"loss":1,"attempt":3,"step_ms":1})"
                              "\n");
  }

  // What a launch says, whose launcher appends to `path`.
  std::string Launch(const std::string& path) {
    testing::internal::CaptureStderr();
    identity_ = NextIdentity(paths_).value();
    Ledger ledger = Ledger::Open(path).value();
    EXPECT_TRUE(RecordCreation(paths_, identity_, RunConfig(), ledger).ok());
    EXPECT_TRUE(ledger.Append(ledger::Start{identity_.run_id, identity_.attempt, 1}).ok());
    return testing::internal::GetCapturedStderr();
  }
  const ledger::Lost* FindLost() {
    records_ = ReadLedger(paths_).value();
    const auto is_lost = [](const LedgerRecord& record) { return record.As<ledger::Lost>(); };
    const auto lost = std::find_if(records_.begin(), records_.end(), is_lost);
    return lost == records_.end() ? nullptr : lost->As<ledger::Lost>();
  }

  const TemporaryDirectory directory_;
  const RunDirectory paths_{directory_.path()};
  RunIdentity identity_;
  std::vector<LedgerRecord> records_;
};

TEST_F(LostLedgerTest, IsReplacedWithAWordAndARecord) {
  EXPECT_THAT(
      Launch(paths_.ledger),
      testing::HasSubstr("the ledger of earlier starts is gone; a new one begins, and which "
                         "samples the steps up to 9 were trained on"));
  EXPECT_EQ(identity_.attempt, 4);
  EXPECT_EQ(identity_.run_id, "old");
  ASSERT_NE(FindLost(), nullptr);
  EXPECT_EQ(FindLost()->step, 9);
  EXPECT_EQ(FindLost()->attempt, 4);
}

TEST_F(LostLedgerTest, OfTheRanksAloneIsNoticedToo) {
  EXPECT_TRUE(Ledger::Open(paths_.launcher_ledger)->Append(ledger::Created{"old", ""}).ok());
  EXPECT_THAT(Launch(paths_.launcher_ledger),
              testing::HasSubstr("ledger of earlier starts is gone"));
  EXPECT_NE(FindLost(), nullptr);
}

TEST_F(LostLedgerTest, OfTheLauncherAloneLosesNoProof) {
  EXPECT_TRUE(Ledger::Open(paths_.ledger)->Append(ledger::Train{"old", 3, 1, 0, "c", "d"}).ok());
  EXPECT_THAT(Launch(paths_.launcher_ledger), testing::HasSubstr("ledger.launcher.jsonl is gone"));
  EXPECT_EQ(FindLost(), nullptr);
  EXPECT_EQ(identity_.attempt, 4);
}

TEST_F(LostLedgerTest, IsNotSaidOfARunThatHasOneOrIsNew) {
  for (const ledger::Event& event : std::vector<ledger::Event>{
           ledger::Created{"old", ""}, ledger::Train{"old", 3, 1, 0, "c", "d"}})
    EXPECT_TRUE(Ledger::Open(paths_.ledger)->Append(event).ok());
  EXPECT_EQ(Launch(paths_.ledger), "");
  const TemporaryDirectory empty;
  std::filesystem::create_directories(RunDirectory(empty.path()).launch);
  Ledger ledger = Ledger::Open(RunDirectory(empty.path()).ledger).value();
  const RunIdentity first = NextIdentity(RunDirectory(empty.path())).value();
  ASSERT_TRUE(RecordCreation(RunDirectory(empty.path()), first, RunConfig(), ledger).ok());
  EXPECT_EQ(ReadLedger(RunDirectory(empty.path()))->size(), 1u);
}

}  // namespace
}  // namespace anyorder::launcher
