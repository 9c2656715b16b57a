// Real processes and SIGKILL: anyorder-ckptd on one side, forked trainers on the other.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "tests/ckpt/service_fixture.h"
#include "tests/ckpt/staged_save.h"

namespace anyorder::ckpt {
namespace {

class CrashTest : public ServiceTest {
 protected:
  ~CrashTest() override {
    for (const pid_t pid : processes_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  pid_t StartService(int64_t attempt) {
    const std::string program = std::string(std::getenv("ANYORDER_BIN")) + "/anyorder-ckptd";
    const std::string number = std::to_string(attempt);
    const pid_t pid = fork();
    if (pid == 0) {
      execl(program.c_str(), program.c_str(), "--run-dir", run_dir().c_str(), "--run-id", "test",
            "--attempt", number.c_str(), nullptr);
      _exit(127);
    }
    processes_.push_back(pid);
    return pid;
  }

  // A trainer that saves step 100 and is killed at once. All are connected before one of them goes,
  // since a save that only some can stage is given up when nobody is left.
  pid_t StartTrainer(int rank, const State& state) {
    const pid_t pid = fork();
    if (pid == 0) {
      auto client = Client::Connect(Trainer(rank, kWorldSize));
      if (!client.ok()) _exit(1);
      ++*num_connected_;
      while (*num_connected_ < kWorldSize) absl::SleepFor(absl::Milliseconds(1));
      if (!(*client)->Save(100, state.Ranges(rank, kWorldSize), "").ok()) _exit(2);
      raise(SIGKILL);  // no destructor runs: the kernel closes the socket
    }
    return pid;
  }

  int ExitStatusOf(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    processes_.erase(std::remove(processes_.begin(), processes_.end(), pid), processes_.end());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  std::vector<pid_t> processes_;
  // Shared by the trainers.
  std::atomic<int>* const num_connected_ =
      new (mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0);
};

TEST_F(CrashTest, TheSaveCommitsAfterAllTrainersWereKilledOnceStaged) {
  const State state(3);
  const pid_t service = StartService(1);
  std::vector<pid_t> trainers;
  for (int rank = 0; rank < kWorldSize; ++rank) trainers.push_back(StartTrainer(rank, state));
  for (const pid_t pid : trainers) ASSERT_EQ(ExitStatusOf(pid), -SIGKILL);
  kill(service, SIGTERM);
  EXPECT_EQ(ExitStatusOf(service), 0);
  const std::string newest = FindNewestGood(run_dir(), true).value();
  const Checkpoint checkpoint = Checkpoint::Open(newest).value();
  EXPECT_EQ(checkpoint.step(), 100);
  ExpectHolds(checkpoint, state, 2);
  EXPECT_TRUE(absl::IsNotFound(ReadLease(FileSystem::Posix(), run_dir()).status()));
}

TEST_F(CrashTest, BadOptionsAreUsageErrors) { EXPECT_EQ(ExitStatusOf(StartService(0)), 64); }

}  // namespace
}  // namespace anyorder::ckpt
