// Two owners of one run directory, as processes: exactly one writes, and what the other left is not
// damaged.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "ckpt/commit.h"
#include "ckpt/layout.h"
#include "ckpt/lease.h"
#include "tests/ckpt/service_fixture.h"
#include "tests/ckpt/staged_save.h"

namespace anyorder::ckpt {
namespace {

constexpr absl::Duration kLeaseLifetime = absl::Milliseconds(300);

// Where the old owner is stopped, and what the new one must find.
struct Sleep {
  const char* name;
  FaultyCall call;
  const char* path_part;  // of the path with "$" at its end
  bool is_voted;
};

void PrintTo(const Sleep& sleep, std::ostream* out) { *out << sleep.name; }

class SleepingOwnerTest : public ServiceTest, public ::testing::WithParamInterface<Sleep> {
 protected:
  // Commits step 100, and stops (SIGSTOP) in the middle of the next step.
  pid_t ForkService() {
    const pid_t pid = fork();
    if (pid == 0) {
      bool has_slept = false;  // only the writer's thread makes such calls
      fault_fs_.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
        if (call != GetParam().call || !absl::StrContains(path + "$", GetParam().path_part)) return;
        if (!std::exchange(has_slept, true)) raise(SIGSTOP);
      });
      ServiceOptions options = FaultyOptions();
      options.lease_lifetime = kLeaseLifetime;
      const auto service = Service::Start(options);
      if (!service.ok()) _exit(1);
      const absl::Status end = (*service)->Run();
      _exit(ExitStatusFor(end));
    }
    return pid;
  }
};

TEST_P(SleepingOwnerTest, WakesUpFencedAndNeitherCommitsNorDamages) {
  const pid_t pid = ForkService();
  auto clients = ConnectAll(2, 1);
  ASSERT_EQ(clients.size(), 2u);
  CommitAll(clients, 100, State(1));
  SaveAll(clients, 200, State(2));
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;

  // On its own machine it is asleep, not dead.
  const auto here = Lease::Acquire(FileSystem::Posix(), run_dir(),
                                   DescribeThisProcess("test", 2, "s"), kLeaseLifetime);
  EXPECT_THAT(here.status(), Says(absl::StrCat("process ", pid, " on ")));
  // From another machine it looks dead. What its trainers staged is finished, if it had been voted
  // for.
  LeaseOwner stranger = DescribeThisProcess("test", 2, "s");
  stranger.machine = "another machine";
  const auto lease =
      Lease::Acquire(FileSystem::Posix(), run_dir(), stranger, kLeaseLifetime).value();
  CommitLog log(FileSystem::Posix(), run_dir(), 1);
  const auto recovered = Recover(log, 2, [&] { return lease->CheckHeld(); });
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_EQ(recovered->has_value(), GetParam().is_voted);
  ASSERT_TRUE(log.RemoveLeftovers(2).ok());
  const std::string newest = StepPath(GetParam().is_voted ? 200 : 100);
  EXPECT_EQ(*FindNewestGood(run_dir(), false), newest);

  kill(pid, SIGCONT);
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WEXITSTATUS(status), kExitDoNotRestart) << status;
  EXPECT_EQ(*FindNewestGood(run_dir(), false), newest);
  ExpectHolds(Checkpoint::Open(newest).value(), State(GetParam().is_voted ? 2 : 1), 2);
  EXPECT_TRUE(lease->CheckHeld().ok());
  for (const SaveEvent& event : clients[0]->PollEvents())
    EXPECT_FALSE(event.step == 200 && event.state == SaveState::kCommitted);
}

INSTANTIATE_TEST_SUITE_P(
    Sleeps, SleepingOwnerTest,
    ::testing::Values(Sleep{"in a rank file", FaultyCall::kSync, "step-000000200.g1", false},
                      Sleep{"before its vote", FaultyCall::kRename, "0002000.tmp/prepared", false},
                      Sleep{"after its vote", FaultyCall::kCreate, "0002000.tmp/MANIFEST", true},
                      // The fence has been asked and has said yes.
                      Sleep{"before the commit point", FaultyCall::kRename, "/step-000000200$",
                            true}));

class RaceTest : public ServiceTest {};

TEST_F(RaceTest, OfManyClaimantsOfADeadLeaseOneHasIt) {
  constexpr int kNumClaimants = 6;
  constexpr int kNumRounds = 3;
  for (int round = 0; round < kNumRounds; ++round) {
    LeaveLeaseOfDeadProcess(run_dir(), 10 * round + 1);
    std::array<int, 2> start{};
    ASSERT_EQ(pipe(start.data()), 0);
    std::vector<pid_t> claimants;
    for (int i = 0; i < kNumClaimants; ++i) {
      claimants.push_back(fork());
      if (claimants.back() != 0) continue;
      close(start[1]);
      char byte = 0;
      if (read(start[0], &byte, 1) != 0) _exit(9);  // all at once, when the parent closes its end
      // Two launches read the ledger at the same time, so they have the same number.
      auto lease = Lease::Acquire(FileSystem::Posix(), run_dir(),
                                  DescribeThisProcess("test", 10 * round + 2, "s"), kLeaseLifetime);
      // Refused with a name, or found out before writing, or the owner.
      if (!lease.ok()) _exit(absl::IsAlreadyExists(lease.status()) ? 1 : 8);
      absl::SleepFor(absl::Milliseconds(300));
      const absl::Status held = (*lease)->CheckHeld();
      lease->release();
      _exit(held.ok() ? 0 : absl::IsAborted(held) ? 2 : 7);
    }
    close(start[0]);
    close(start[1]);
    int num_owners = 0;
    for (const pid_t pid : claimants) {
      int status = 0;
      ASSERT_EQ(waitpid(pid, &status, 0), pid);
      ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 2) << status;
      num_owners += WEXITSTATUS(status) == 0 ? 1 : 0;
    }
    EXPECT_EQ(num_owners, 1);
  }
  // Nothing but the lease: claims that lost are gone.
  for (const auto& entry : std::filesystem::directory_iterator(run_dir()))
    EXPECT_EQ(entry.path().filename(), "LEASE");
}

}  // namespace
}  // namespace anyorder::ckpt
