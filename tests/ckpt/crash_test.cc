// Real processes and SIGKILL: anyorder-ckptd on one side, forked trainers on the other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/clock.h"

#include "ckpt/protocol.h"
#include "tests/ckpt/service_fixture.h"

namespace anyorder::ckpt {
namespace {

constexpr int kWorldSize = 3;

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

  // A trainer that saves step 100 and is killed at once, or is killed before it saves.
  pid_t StartTrainer(int rank, bool saves, const State& state) {
    const pid_t pid = fork();
    if (pid == 0) {
      auto client = Client::Connect(Trainer(rank, kWorldSize));
      if (!client.ok()) _exit(1);
      if (saves) {
        const auto saved = (*client)->Save(100, state.Ranges(rank, kWorldSize), "");
        if (!saved.ok()) _exit(2);
      }
      raise(SIGKILL);  // no destructor runs: the kernel closes the socket
    }
    return pid;
  }

  // Step 100 by trainers that are all killed, one of them before it has staged; then the service is
  // told to stop.
  void SaveAndKillAll(const State& state, int killed_before_staging) {
    const pid_t service = StartService(1);
    std::vector<pid_t> trainers;
    for (int rank = 0; rank < kWorldSize; ++rank)
      trainers.push_back(StartTrainer(rank, rank != killed_before_staging, state));
    for (const pid_t pid : trainers) {
      int status = 0;
      ASSERT_EQ(waitpid(pid, &status, 0), pid);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "exit " << status;
    }
    kill(service, SIGTERM);
    EXPECT_EQ(ExitStatusOf(service), 0);
  }

  int ExitStatusOf(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    processes_.erase(std::remove(processes_.begin(), processes_.end(), pid), processes_.end());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  std::vector<pid_t> processes_;
};

TEST_F(CrashTest, TheSaveCommitsAfterAllTrainersWereKilledOnceStaged) {
  const State state(3);
  SaveAndKillAll(state, /*killed_before_staging=*/-1);
  const std::string newest = FindNewestGood(run_dir(), true).value();
  const Checkpoint checkpoint = Checkpoint::Open(newest).value();
  EXPECT_EQ(checkpoint.step(), 100);
  ExpectHolds(checkpoint, state, 2);
  EXPECT_FALSE(std::filesystem::exists(run_dir() + "/LEASE"));
}

TEST_F(CrashTest, TheSaveIsAbandonedWhenOneWasKilledBeforeItStaged) {
  SaveAndKillAll(State(3), /*killed_before_staging=*/1);
  EXPECT_TRUE(absl::IsNotFound(FindNewestGood(run_dir(), true).status()));
  EXPECT_TRUE(std::filesystem::is_empty(run_dir() + "/checkpoints"));
}

TEST_F(CrashTest, AKilledServiceIsReplacedAndItsHalfWorkRemoved) {
  const pid_t first = StartService(1);
  auto clients = ConnectAll(1);
  SaveAll(clients, 100, State(1));
  ExpectCommitted(*clients[0], 100);
  kill(first, SIGKILL);
  EXPECT_EQ(ExitStatusOf(first), -SIGKILL);
  std::filesystem::create_directory(run_dir() + "/checkpoints/step-000000200.g100000002000.tmp");
  // The lease of a dead process on this machine is taken at once.
  const pid_t second = StartService(2);
  auto next = ConnectAll(1, 2);
  ASSERT_EQ(next.size(), 1u);
  SaveAll(next, 300, State(3));
  ExpectCommitted(*next[0], 300);
  EXPECT_FALSE(
      std::filesystem::exists(run_dir() + "/checkpoints/step-000000200.g100000002000.tmp"));
  // An orderly request ends it, with everything committed.
  ASSERT_TRUE(ShutDownService(DefaultSocketPath(run_dir(), 0), "test", 2, false).ok());
  EXPECT_EQ(ExitStatusOf(second), 0);
}

TEST_F(CrashTest, WhateverWasReportedCommittedLoadsAfterTheServiceIsKilledAnywhere) {
  RandomStream random(17, RandomPurpose::kPermutation, 0, 0);
  int64_t newest_committed = 0;
  int64_t step = 0;
  for (int64_t attempt = 1; attempt <= 8; ++attempt) {
    const pid_t service = StartService(attempt);
    auto clients = ConnectAll(1, attempt);
    ASSERT_EQ(clients.size(), 1u);
    // After a random number of state changes, so that every state is hit on fast and slow machines.
    const uint32_t last_event = 1 + random.Below(20);
    for (uint32_t num_events = 0; num_events < last_event;) {
      if (clients[0]->CanSave()) {
        step += 100;
        ASSERT_TRUE(clients[0]->Save(step, State(step).Ranges(0, 1), "").ok());
      }
      for (const SaveEvent& event : clients[0]->PollEvents()) {
        ++num_events;
        if (event.state == SaveState::kCommitted) newest_committed = event.step;
      }
      absl::SleepFor(absl::Microseconds(200));
    }
    kill(service, SIGKILL);
    ASSERT_EQ(ExitStatusOf(service), -SIGKILL);
    for (const SaveEvent& event : clients[0]->PollEvents()) {
      if (event.state == SaveState::kCommitted) newest_committed = event.step;
    }
    const absl::StatusOr<std::string> newest = FindNewestGood(run_dir(), false);
    if (newest_committed == 0 && absl::IsNotFound(newest.status())) continue;
    ASSERT_TRUE(newest.ok()) << newest.status();
    const Checkpoint checkpoint = Checkpoint::Open(*newest).value();
    ASSERT_GE(checkpoint.step(), newest_committed);
    ExpectHolds(checkpoint, State(checkpoint.step()), 1);
  }
  EXPECT_GT(newest_committed, 0);
}

TEST_F(CrashTest, BadOptionsAreUsageErrors) { EXPECT_EQ(ExitStatusOf(StartService(0)), 64); }

}  // namespace
}  // namespace anyorder::ckpt
