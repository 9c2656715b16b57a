#include "ckpt/lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/ckpt/service_fixture.h"
#include "tests/testing/fault_file_system.h"

namespace anyorder::ckpt {
namespace {

constexpr absl::Duration kLifetime = absl::Milliseconds(100);

class LeaseTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Lease>> Acquire(
      const LeaseOwner& owner, absl::Duration lifetime = kLifetime,
      const std::function<bool(const LeaseOwner&)>& has_ended = nullptr) {
    return Lease::Acquire(FileSystem::Posix(), directory_.path(), owner, lifetime, has_ended);
  }
  static LeaseOwner Owner(int64_t attempt) {
    return DescribeThisProcess("test", attempt, "socket");
  }
  // One that this machine cannot look at.
  static LeaseOwner Stranger(int64_t attempt) {
    LeaseOwner owner = Owner(attempt);
    owner.machine = "another machine";
    owner.host = "node7";
    owner.job = "4711";
    return owner;
  }

  TemporaryDirectory directory_;
};

TEST_F(LeaseTest, ALivingOwnerIsNamed) {
  setenv("SLURM_JOB_ID", "4711", 1);
  const auto first = Acquire(Owner(1)).value();
  const auto second = Acquire(Owner(2));
  EXPECT_THAT(
      second.status(),
      Fails(absl::IsAlreadyExists,
            "in use by run 'test', attempt 1, process " + std::to_string(getpid()), "(job 4711"));
  EXPECT_TRUE(first->Renew().ok());
}

TEST_F(LeaseTest, ALivingOwnerElsewhereIsSeenByItsHeartbeat) {
  const auto first = Acquire(Stranger(1)).value();
  std::atomic<bool> is_decided = false;
  std::thread heart([&] {
    while (!is_decided) {
      absl::SleepFor(absl::Milliseconds(300));  // not before the claimant has begun to watch
      EXPECT_TRUE(first->Renew().ok());
    }
  });
  // Long, because a busy machine may stop the heart for a while; one beat is enough to decide.
  const auto second = Acquire(Owner(2), absl::Seconds(5));
  is_decided = true;
  heart.join();
  EXPECT_THAT(second.status(), Fails(absl::IsAlreadyExists, "on node7 (job 4711)"));
}

TEST_F(LeaseTest, ASilentOwnerElsewhereLosesItAndNotices) {
  const auto first = Acquire(Stranger(1)).value();
  const auto second = Acquire(Owner(2)).value();
  EXPECT_TRUE(second->CheckHeld().ok());
  EXPECT_THAT(first->Renew(), Fails(absl::IsAborted, "was taken by run 'test', attempt 2"));
  // Release by the loser must not remove the winner's lease.
  EXPECT_FALSE(first->Release().ok());
  EXPECT_TRUE(second->CheckHeld().ok());
}

TEST_F(LeaseTest, ADeadProcessOfThisMachineIsReplacedAtOnce) {
  LeaveLeaseOfDeadProcess(directory_.path(), /*attempt=*/1);
  ASSERT_TRUE(std::filesystem::exists(directory_.path() + "/LEASE"));
  EXPECT_TRUE(Acquire(Owner(2)).ok());
}

// The number of a dead owner was given to another process: to this very one.
TEST_F(LeaseTest, AReusedProcessNumberDoesNotKeepALeaseAlive) {
  LeaseOwner dead = Owner(1);
  dead.pid_start -= 1;
  EXPECT_TRUE(IsKnownDead(dead));
  auto first = Acquire(dead).value();
  const auto second = Acquire(Owner(2), absl::Hours(1));  // at once, without watching
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(absl::IsAborted(first->CheckHeld()));
}

TEST_F(LeaseTest, AProcessOfThisMachineThatLivesIsNeverJudgedDead) {
  EXPECT_FALSE(IsKnownDead(Owner(1)));
  LeaseOwner init = Owner(1);
  init.pid = 1;
  init.pid_start = 0;
  // Its true start time is another, so it is a reused number; unless it is hidden, and then nobody
  // can tell.
  EXPECT_EQ(IsKnownDead(init), std::filesystem::exists("/proc/1/stat"));
}

// Whatever it is, it was written before the lease was ours, and must not be renamed over it. The
// owner's goes by its name: a network file system may not list it yet.
TEST_F(LeaseTest, WhatOtherClaimantsLeftIsRemoved) {
  class Unlisted final : public WatchedFileSystem {
   public:
    Unlisted() : WatchedFileSystem(FileSystem::Posix()) {}
    absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string&) override {
      return std::vector<std::string>{"LEASE.1.4711.tmp", "LEASE.9.4711.tmp", "LEASE.x.tmp"};
    }

   private:
    absl::Status Around(FileCall&, Operation operation, Answer) override { return operation(); }
  } fs;
  const auto first = Acquire(Stranger(1)).value();
  const std::string renewal = absl::StrCat("LEASE.1.", getpid(), ".tmp");
  for (const std::string& name : {std::string("LEASE.1.4711.tmp"), std::string("LEASE.9.4711.tmp"),
                                  std::string("LEASE.x.tmp"), renewal})
    std::ofstream(directory_.path() + "/" + name) << "half";
  ASSERT_TRUE(Lease::Acquire(&fs, directory_.path(), Owner(2), kLifetime).ok());
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/LEASE.1.4711.tmp"));
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/LEASE.9.4711.tmp"));
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/" + renewal));
  EXPECT_TRUE(std::filesystem::exists(directory_.path() + "/LEASE.x.tmp"));  // not ours
}

// Before its file is there, so that nobody could remove it; and after it was renamed.
TEST_F(LeaseTest, AClaimThatAnotherOvertookIsRefused) {
  for (const FaultyCall overtaken_at : {FaultyCall::kCreate, FaultyCall::kList}) {
    FaultFileSystem fs;
    std::unique_ptr<Lease> other;
    fs.set_before_call([&](int64_t, FaultyCall call, const std::string&) {
      if (call != overtaken_at || other != nullptr) return;
      other = Acquire(Owner(3), kLifetime, [](const LeaseOwner&) { return true; }).value();
    });
    EXPECT_TRUE(absl::IsAlreadyExists(
        Lease::Acquire(&fs, directory_.path(), Stranger(2), kLifetime).status()));
    EXPECT_TRUE(other->CheckHeld().ok());
    other = nullptr;
    std::filesystem::remove(directory_.path() + "/LEASE");
  }
}

TEST_F(LeaseTest, AnOlderStartNeverTakesOverFromALaterOne) {
  const auto first = Acquire(Stranger(5)).value();
  const auto second = Acquire(Owner(4));
  EXPECT_THAT(second.status(), Says("claimed by a later start"));
}

TEST_F(LeaseTest, AnEndedOwnerOfALaterClaimIsStillLater) {
  const auto first = Acquire(Stranger(1)).value();
  const auto second = Acquire(Owner(1), absl::Hours(1), [](const LeaseOwner&) { return true; });
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
}

TEST_F(LeaseTest, ADamagedLeaseIsWatchedThenReplaced) {
  std::ofstream(directory_.path() + "/LEASE") << "{\"run_id\"";
  EXPECT_TRUE(absl::IsDataLoss(ReadLease(FileSystem::Posix(), directory_.path()).status()));
  EXPECT_TRUE(Acquire(Owner(2)).ok());
}

TEST_F(LeaseTest, AReleasedLeaseIsNobodysAndFreeForAll) {
  const auto first = Acquire(Stranger(3)).value();
  ASSERT_TRUE(first->Release().ok());
  EXPECT_TRUE(absl::IsNotFound(ReadLease(FileSystem::Posix(), directory_.path()).status()));
  EXPECT_TRUE(absl::IsAborted(first->CheckHeld()));
  EXPECT_TRUE(absl::IsAborted(first->Renew()));
  EXPECT_TRUE(Acquire(Owner(2), absl::Hours(1)).ok());  // without watching
}

}  // namespace
}  // namespace anyorder::ckpt
