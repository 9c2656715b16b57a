// What services of several nodes and a scheduler above them add: the end of some before others,
// signals to all at once, and an owner of the lease whose end the launcher knows.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"

#include "ckpt/commit.h"
#include "ckpt/layout.h"
#include "ckpt/lease.h"
#include "core/base/mutex.h"
#include "core/base/whole_file.h"
#include "tests/ckpt/service_fixture.h"
#include "tests/testing/patience.h"

namespace anyorder::ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// Far beyond the test's time limit: waiting so long fails the test.
constexpr absl::Duration kForever = absl::Hours(1);

class SeveralNodesTest : public ServiceTest {
 protected:
  ClientOptions TrainerOfNode(int node) const {
    ClientOptions options = Trainer(node, 2);
    options.node = node;
    options.num_nodes = 2;
    options.local_world_size = 1;
    return options;
  }
  // Both nodes' services on the faulty disk, and one trainer each.
  std::vector<std::unique_ptr<Client>> ServeTwoNodes() {
    std::vector<std::unique_ptr<Client>> clients;
    for (int node = 0; node < 2; ++node) Serve(FaultyOptions(1, node, 2));
    for (int node = 0; node < 2; ++node)
      clients.push_back(Client::Connect(TrainerOfNode(node)).value());
    return clients;
  }
  std::string EventsOfNode(int node) const {
    return ReadWholeFile(run_dir() + "/ckptd.node0" + std::to_string(node) + ".jsonl",
                         kMaxTextBytes)
        .value();
  }
};

TEST_F(SeveralNodesTest, AServiceThatEndedIsNotWaitedFor) {
  for (int node = 0; node < 2; ++node) {
    ServiceOptions options = Options(1, node, 2);
    options.vote_limit = kForever;
    options.ended_grace = absl::Milliseconds(50);
    Serve(options);
  }
  // The trainers die when one of two nodes has staged.
  auto first = Client::Connect(TrainerOfNode(0));
  auto second = Client::Connect(TrainerOfNode(1));
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  const State state(1);
  ASSERT_TRUE((*first)->Save(100, state.Ranges(0, 2), "").ok());
  first->reset();
  second->reset();
  StopAll();
  EXPECT_THAT(EventsOfNode(0), HasSubstr("the service of node 1 ended and has not voted"));
  EXPECT_TRUE(absl::IsNotFound(FindNewestGood(run_dir(), true).status()));

  // The next start removes the records of this one.
  CommitLog log(FileSystem::Posix(), run_dir(), 1);
  EXPECT_TRUE(std::filesystem::exists(CheckpointsPath(run_dir()) + "/" + EndedName(1, 1)));
  ASSERT_TRUE(log.RemoveLeftovers(2).ok());
  EXPECT_FALSE(std::filesystem::exists(CheckpointsPath(run_dir()) + "/" + EndedName(1, 1)));
}

TEST_F(SeveralNodesTest, AVoteBeforeTheEndCounts) {
  for (int node = 0; node < 2; ++node) {
    ServiceOptions options = Options(1, node, 2);
    options.ended_grace = absl::ZeroDuration();
    Serve(options);
  }
  const State state(2);
  for (int node = 0; node < 2; ++node) {
    auto client = Client::Connect(TrainerOfNode(node)).value();
    ASSERT_TRUE(client->Save(100, state.Ranges(node, 2), "").ok());
  }
  StopAll();
  ExpectHolds(Checkpoint::Open(StepPath(100)).value(), state, 1);
}

TEST_F(SeveralNodesTest, EachNodeReadsItsOwnFilesBackAndTheCoordinatorActs) {
  struct {
    Mutex mutex;
    std::map<std::string, int> num ABSL_GUARDED_BY(mutex);
  } reads;
  fault_fs_.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
    if (call != FaultyCall::kRead || !absl::StrContains(path, "/step-000000100/rank-")) return;
    const MutexLock lock(&reads.mutex);
    ++reads.num[BaseName(path)];
    if (BaseName(path) == RankFileName(1, 2)) FlipByte(path, 5000);
  });
  CommitAll(ServeTwoNodes(), 100, State(100));
  StopAll();
  const MutexLock lock(&reads.mutex);
  EXPECT_THAT(reads.num, ElementsAre(Pair(RankFileName(0, 2), 1), Pair(RankFileName(1, 2), 1)));
  EXPECT_THAT(EventsOfNode(0), HasSubstr("DAMAGED"));
  EXPECT_THAT(EventsOfNode(0), HasSubstr("node 1: 'rank-00001-of-00002.safetensors': CRC"));
  EXPECT_THAT(EventsOfNode(1), HasSubstr("DAMAGED"));
  EXPECT_TRUE(std::filesystem::exists(StepPath(100) + ".g100000001000.quarantine"));
}

TEST_F(SeveralNodesTest, OlderOnesGoWhenAllNodesHaveReadBack) {
  std::atomic<bool> may_read = false;
  fault_fs_.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
    if (call != FaultyCall::kRead || !absl::StrContains(path, "/step-000000300/rank-00001")) return;
    while (!may_read) absl::SleepFor(absl::Milliseconds(1));
  });
  const auto clients = ServeTwoNodes();
  for (const int64_t step : {100, 200, 300}) CommitAll(clients, step, State(step));
  const std::string mine =
      StepPath(300) + "/" + VerifiedName(kGenerationsPerAttempt + 300 * kSavesPerStep, /*node=*/0);
  EXPECT_TRUE(Await([&] { return std::filesystem::exists(mine); }));
  EXPECT_TRUE(std::filesystem::exists(StepPath(100)));  // node 1 has not said anything
  may_read = true;
  StopAll();
  EXPECT_FALSE(std::filesystem::exists(StepPath(100)));
  EXPECT_TRUE(std::filesystem::exists(StepPath(200)));
}

// Rank 0 is not on node 0, so that its service, which commits, does not own the lease.
TEST_F(SeveralNodesTest, ACoordinatorThatCannotReadTheLeaseDoesNotCommit) {
  Serve(Options(1, 0, 2));
  Serve(FaultyOptions(1, 1, 2));
  fault_fs_.Break(FaultyCall::kOpen, "LEASE", EIO, 1 << 20);
  const State state(4);
  std::vector<std::unique_ptr<Client>> clients;
  for (const int rank : {0, 1}) {
    ClientOptions options = TrainerOfNode(1 - rank);
    options.rank = rank;
    clients.push_back(Client::Connect(options).value());
    ASSERT_TRUE(clients[rank]->Save(100, state.Ranges(rank, 2), "").ok());
  }
  ExpectNotCommitted(*clients[0], 100, "LEASE");
  EXPECT_TRUE(absl::IsNotFound(FindNewestGood(run_dir(), true).status()));
}

TEST_F(SeveralNodesTest, ASignalToAllLeavesTheTrainersTheirLastSave) {
  ServiceOptions options = Options(1);
  options.idle_limit = kForever;
  const auto service = Service::Start(options).value();
  absl::Status end;
  std::thread serving([&] { end = service->Run(); });
  auto clients = ConnectAll(2);
  service->RequestStopAfterTrainers();
  absl::SleepFor(absl::Milliseconds(200));  // a service that stops at once would have by now
  CommitAll(clients, 100, State(3));
  clients.clear();
  serving.join();
  EXPECT_TRUE(end.ok()) << end;
}

TEST_F(SeveralNodesTest, AnOwnerThatHasEndedIsKnownByItsAttempt) {
  LeaseOwner stranger = DescribeThisProcess("test", 1, "socket");
  stranger.machine = "another machine";
  const auto lease =
      Lease::Acquire(FileSystem::Posix(), run_dir(), stranger, absl::Milliseconds(10)).value();
  ServiceOptions options = Options(2);
  options.lease_lifetime = kForever;
  options.ended_attempt = 1;
  Serve(options);
  EXPECT_EQ(ConnectAll(1, 2).size(), 1u);
}

}  // namespace
}  // namespace anyorder::ckpt
