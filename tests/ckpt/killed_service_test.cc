// A service process that is killed right before each of its file calls, and the start after it.
// Trainers live on in the test; that the save also survives their death is crash_test.cc.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "ckpt/commit.h"
#include "ckpt/layout.h"
#include "ckpt/protocol.h"
#include "tests/ckpt/service_fixture.h"
#include "tests/ckpt/staged_save.h"
#include "tests/testing/patience.h"

namespace anyorder::ckpt {
namespace {

class KilledServiceTest : public ServiceTest {
 protected:
  // A service in a process of its own that kills itself before call `kill_at`, counted from when it
  // listens.
  pid_t Fork(int64_t attempt, int64_t kill_at) {
    std::array<int, 2> ready{};
    EXPECT_EQ(pipe(ready.data()), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      close(ready[0]);
      bool listens = false;
      int64_t first = 0;
      fault_fs_.set_before_call([&](int64_t index, FaultyCall, const std::string&) {
        if (listens && index - first == kill_at) raise(SIGKILL);
      });
      ServiceOptions options = FaultyOptions(attempt);
      options.lease_lifetime = absl::Hours(1);  // no heartbeat gets between the calls
      const auto service = Service::Start(options);
      if (!service.ok()) _exit(1);
      first = fault_fs_.num_calls();
      listens = true;
      if (write(ready[1], "x", 1) != 1) _exit(2);
      _exit((*service)->Run().ok() ? 0 : 3);
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1) << "the service did not start";
    close(ready[0]);
    return pid;
  }

  // Whether a save at `step` has its only vote.
  bool IsVoted(int64_t step) const {
    for (const auto& entry : std::filesystem::directory_iterator(CheckpointsPath(run_dir()))) {
      const std::string name = entry.path().filename();
      if (absl::StartsWith(name, StepName(step)) && absl::EndsWith(name, ".tmp") &&
          std::filesystem::exists(entry.path() / VoteName(0))) {
        return true;
      }
    }
    return false;
  }
};

TEST_F(KilledServiceTest, BeforeAnyCallTheNextStartLoadsWhatWasCommittedOrVotedFor) {
  int64_t newest = 0;  // that must load
  int num_recovered = 0;
  int num_lost = 0;
  for (int64_t kill_at = 0;; ++kill_at) {
    SCOPED_TRACE(absl::StrCat("killed before call ", kill_at));
    const int64_t attempt = 2 * kill_at + 1;
    const int64_t step = kill_at + 1;
    const pid_t pid = Fork(attempt, kill_at);
    if (HasFailure()) return;
    const std::vector<float> values = ValuesOf(step, 0, kNumValues);
    const TensorRange range = {"master", DType::kFloat32, {kNumValues},
                               0,        kNumValues,      values.data()};
    bool is_committed = false;
    {
      auto clients = ConnectAll(1, attempt);
      ASSERT_EQ(clients.size(), 1u);
      const auto saved = clients[0]->Save(step, {range}, "");
      ASSERT_TRUE(saved.ok()) << saved.status();  // a dead service is no error of the trainer's
      is_committed = clients[0]->WaitCommitted(step, kPatience).ok();
    }
    // Asked to stop, it verifies and retires first, and may be killed in that.
    const std::string socket = DefaultSocketPath(run_dir(), 0);
    if (is_committed) ShutDownService(socket, "test", attempt, false).IgnoreError();
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    const bool is_voted = IsVoted(step);
    if (is_committed || is_voted) newest = step;
    const bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    ASSERT_TRUE(was_killed || status == 0) << status;

    // The next start, in this process: it has recovered when it listens.
    Serve(Options(attempt + 1));
    if (HasFatalFailure()) return;
    StopAll();
    if (newest == 0) {
      ASSERT_TRUE(absl::IsNotFound(FindNewestGood(run_dir(), false).status()));
    } else {
      ASSERT_EQ(LoadNewest(FileSystem::Posix(), run_dir()), newest);
    }
    for (const auto& entry : std::filesystem::directory_iterator(CheckpointsPath(run_dir())))
      ASSERT_TRUE(ParseStepName(entry.path().filename().string())) << entry.path() << " stays";
    num_recovered += is_voted && !is_committed ? 1 : 0;
    num_lost += newest < step ? 1 : 0;
    if (!was_killed) break;
    // Killed before it retired, each start would have one more checkpoint to look at than the last,
    // and more calls.
    const int64_t generation = attempt * kGenerationsPerAttempt + step * kSavesPerStep;
    ASSERT_TRUE(CommitLog(FileSystem::Posix(), run_dir(), 1).Retire(2, 0, generation).ok());
  }
  EXPECT_GT(num_recovered, 5);
  EXPECT_GT(num_lost, 10);
}

}  // namespace
}  // namespace anyorder::ckpt
