// The whole path: trainers, service, disk, reader.

#include "ckpt/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <numeric>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"

#include "ckpt/layout.h"
#include "ckpt/protocol.h"
#include "ckpt/rank_file.h"
#include "core/base/monotonic_clock.h"
#include "core/base/whole_file.h"
#include "tests/ckpt/service_fixture.h"
#include "tests/ckpt/staged_save.h"
#include "tests/testing/patience.h"

namespace anyorder::ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST_F(ServiceTest, StateComesBackWhateverTheNumberOfRanks) {
  const State first(11);
  std::string digest;
  // 1 -> 3 -> 2 ranks: each start reads what the one before wrote, and writes it again under the
  // next step.
  int64_t attempt = 0;
  for (const int world_size : {1, 3, 2}) {
    ++attempt;
    CommitStep(100 * attempt, first, world_size, attempt);
    if (HasFatalFailure()) return;
    const std::string newest = FindNewestGood(run_dir(), true).value();
    EXPECT_EQ(newest, StepPath(100 * attempt));
    const Checkpoint checkpoint = Checkpoint::Open(newest).value();
    EXPECT_EQ(checkpoint.world_size(), world_size);
    EXPECT_EQ(checkpoint.metadata_json(), "{\"k\":1}");
    for (const int readers : {1, 2, 3, 5}) ExpectHolds(checkpoint, first, readers);
    const std::string found = checkpoint.StateDigest().value();
    if (digest.empty()) digest = found;
    EXPECT_EQ(found, digest);
  }
}

// As many saves are staged while the disk hangs as there are copies; the next one is refused.
TEST_F(ServiceTest, ASkippedSaveNeverWaitsForTheDisk) {
  const State state(1);
  for (const int64_t copies : {1, 2}) {
    staged_copies_ = static_cast<int>(copies);
    auto clients = ServeAndConnect(FaultyOptions(copies), 2);
    fault_fs_.Hang();
    const int64_t first = 1000 * copies;
    for (int64_t i = 0; i < copies; ++i) SaveAll(clients, first + i, state);
    for (const auto& client : clients) {
      std::string reason;
      EXPECT_FALSE(client->CanSave(&reason));
      EXPECT_THAT(reason,
                  HasSubstr(copies == 1 ? "the staging buffer is busy" : "buffers are busy"));
    }
    EXPECT_FALSE(clients[0]->Save(first + copies, state.Ranges(0, 2), "")->accepted);
    fault_fs_.Continue();
    for (int64_t i = 0; i < copies; ++i) ExpectCommitted(*clients[1], first + i);
    EXPECT_TRUE(clients[0]->CanSave());
    CommitAll(clients, first + 100, State(4));
    clients.clear();
    StopAll();
  }
}

TEST_F(ServiceTest, EventsTellTheStatesInOrder) {
  auto clients = ServeAndConnect(Options(), 1);
  CommitAll(clients, 100, State(1));
  std::vector<SaveState> states;
  for (const SaveEvent& event : clients[0]->PollEvents()) {
    EXPECT_EQ(event.step, 100);
    EXPECT_EQ(event.generation, 100'000'001'000);
    states.push_back(event.state);
  }
  EXPECT_THAT(states, ElementsAre(SaveState::kCopying, SaveState::kStaged, SaveState::kWriting,
                                  SaveState::kDurable, SaveState::kCommitted));
}

TEST_F(ServiceTest, AnotherAttemptIsRefused) {
  Serve(Options(/*attempt=*/2));
  for (const int64_t attempt : {1, 3}) {
    const auto client = Client::Connect(Trainer(0, 1, attempt));
    EXPECT_THAT(client.status(),
                Fails(absl::IsFailedPrecondition, "attempt 2, not run 'test' attempt"));
  }
}

TEST_F(ServiceTest, AStaleMessageOnAGoodConnectionIsDropped) {
  Serve(Options(/*attempt=*/2));
  Channel channel = ConnectChannel(DefaultSocketPath(run_dir(), 0)).value();
  const absl::Time deadline = MonotonicNow() + kPatience;
  ASSERT_TRUE(channel.Send({"test", 1, Shutdown{}}, deadline).ok());
  const Message reply = channel.Receive(deadline).value();
  EXPECT_FALSE(std::get<ShuttingDown>(reply.body).ok);
  EXPECT_EQ(ConnectAll(1, 2).size(), 1u);  // it still serves
}

TEST_F(ServiceTest, TooLittleSpaceIsSeenBeforeWriting) {
  auto clients = ServeAndConnect(FaultyOptions(), 1);
  fault_fs_.set_free_bytes(3 << 20);
  SaveAll(clients, 100, State(1));
  ExpectNotCommitted(*clients[0], 100, "has 3 MiB free, this save needs 18 MiB");
}

TEST_F(ServiceTest, KeepsTheNewestCheckpointsOnly) {
  ServiceOptions options = Options();
  options.keep_every = 300;
  auto clients = ServeAndConnect(options, 1);
  for (int64_t step = 100; step <= 600; step += 100) CommitAll(clients, step, State(1));
  clients.clear();
  StopAll();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CheckpointsPath(run_dir())))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, UnorderedElementsAre("step-000000300", "step-000000500", "step-000000600"));
}

TEST_F(ServiceTest, SeveralNodesCommitTogetherByFiles) {
  for (int node = 0; node < 3; ++node) Serve(Options(1, node, 3));
  const State state(5);
  std::vector<std::unique_ptr<Client>> clients;
  for (int rank = 0; rank < 4; ++rank) {
    ClientOptions options = Trainer(rank, 4);
    options.num_nodes = 3;
    options.node = std::min(rank, 2);  // ranks 2 and 3 share node 2
    options.local_world_size = options.node == 2 ? 2 : 1;
    auto client = Client::Connect(options);
    ASSERT_TRUE(client.ok()) << client.status();
    clients.push_back(*std::move(client));
  }
  CommitAll(clients, 100, state);
  ExpectHolds(Checkpoint::Open(StepPath(100)).value(), state, 2);

  // A trainer lost on one node takes the save down on all of them.
  for (int rank = 0; rank < 3; ++rank)
    ASSERT_TRUE(clients[rank]->Save(200, state.Ranges(rank, 4), "").ok());
  clients.pop_back();
  for (const auto& client : clients) {
    ExpectNotCommitted(*client, 200, "rank 3 disconnected");
  }
}

TEST_F(ServiceTest, ASecondStartIsRefusedWhileTrainersRun) {
  auto clients = ServeAndConnect(Options(1), 1);
  const auto second = Service::Start(Options(2));
  EXPECT_THAT(second.status(),
              Fails(absl::IsAlreadyExists, "in use by run 'test', attempt 1, process",
                    "1 trainers are connected"));
  EXPECT_TRUE(clients[0]->CanSave());
}

TEST_F(ServiceTest, ANewStartWaitsForTheOldOnesStagedSaves) {
  Serve(Options(1));
  auto clients = ConnectAll(2, 1);
  SaveAll(clients, 100, State(1));
  clients.clear();    // the trainers are killed; their service works on
  Serve(Options(2));  // returns when the old service has finished
  EXPECT_EQ(FindNewestGood(run_dir(), true).value(), StepPath(100));
}

TEST_F(ServiceTest, ReadingBackDoesNotHoldUpTheNextSave) {
  std::atomic<bool> may_read = false;
  fault_fs_.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
    if (call != FaultyCall::kRead || !absl::StrContains(path, "/step-000000100/rank-")) return;
    while (!may_read) absl::SleepFor(absl::Milliseconds(1));
  });
  auto clients = ServeAndConnect(FaultyOptions(), 1);
  for (const int64_t step : {100, 200}) {
    CommitAll(clients, step, State(step));
  }
  may_read = true;
  StopAll();
  const std::string events =
      ReadWholeFile(run_dir() + "/ckptd.node00.jsonl", kMaxTextBytes).value();
  const size_t first = events.find("VERIFIED");
  ASSERT_NE(first, std::string::npos);
  EXPECT_NE(events.find("VERIFIED", first + 1), std::string::npos);
}

TEST_F(ServiceTest, ALongRecoveryKeepsTheLease) {
  CommitLog log(FileSystem::Posix(), run_dir(), 1);
  ASSERT_TRUE(log.PrepareRunDirectory().ok());
  WriteTimes times;
  ASSERT_TRUE(log.WriteAndVote(StagedSave(100, 1).JobOf(0), &times).ok());
  ServiceOptions options = FaultyOptions(/*attempt=*/2);
  options.lease_lifetime = absl::Milliseconds(30);
  std::atomic<int> num_beats = 0;
  fault_fs_.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
    if (call == FaultyCall::kRename && absl::StrContains(path, kLeaseName)) ++num_beats;
    if (call != FaultyCall::kRead || !absl::StrContains(path, ".r2.tmp/rank-00000")) return;
    // A disk that takes longer than the lease lives.
    const int before = num_beats;
    EXPECT_TRUE(Await([&] { return num_beats >= before + 3; }));
  });
  Serve(options);
  EXPECT_EQ(FindNewestGood(run_dir(), true).value(), StepPath(100));
  StopAll();
}

// The protocol relies on it that an earlier start's service, which may live after all, finds none
// of its saves; on deleting them it does not.
TEST_F(ServiceTest, ASaveThatCannotBePutOutOfReachEndsTheStart) {
  for (const std::string& left : {TemporaryPath(run_dir(), StagedSave(200, 1).id()),
                                  JoinPath(CheckpointsPath(run_dir()), TrashName(1))}) {
    std::filesystem::create_directories(left);
    std::ofstream(left + "/file") << "x";
  }
  fault_fs_.Break(FaultyCall::kRename, ".r2.tmp", EACCES, 1 << 20);
  EXPECT_THAT(Service::Start(FaultyOptions(2)).status(),
              Fails(absl::IsPermissionDenied, "which its service could still commit",
                    "mend the file system and start again"));
  fault_fs_.Heal();
  fault_fs_.Break(FaultyCall::kRemove, "/file", EACCES, 1 << 20);
  Serve(FaultyOptions(3));
}

TEST_F(ServiceTest, AFullDiskThatStopsTheHeartbeatDoesNotStopTheService) {
  ServiceOptions options = FaultyOptions();
  options.lease_lifetime = absl::Milliseconds(60);
  auto clients = ServeAndConnect(options, 1);
  fault_fs_.Break(FaultyCall::kCreate, "LEASE", ENOSPC, 1 << 20);
  ASSERT_TRUE(Await([&] { return fault_fs_.num_faults() >= 10; }));
  ASSERT_TRUE(clients[0]->CanSave());
  CommitAll(clients, 100, State(1));
}

TEST_F(ServiceTest, ALeaseThatCannotBeReadIsNotLostButNothingIsCommitted) {
  ServiceOptions options = FaultyOptions();
  options.lease_lifetime = absl::Milliseconds(30);
  auto clients = ServeAndConnect(options, 1);
  fault_fs_.Break(FaultyCall::kOpen, "LEASE", EIO, 1 << 20);
  SaveAll(clients, 100, State(1));
  ExpectNotCommitted(*clients[0], 100, "LEASE");
  absl::SleepFor(10 * options.lease_lifetime);
  fault_fs_.Heal();
  CommitAll(clients, 200, State(2));
}

TEST_F(ServiceTest, AFileSystemThatNeverAnswersEndsTheService) {
  ServiceOptions options = FaultyOptions();
  options.lease_lifetime = options.file_system_limit = absl::Milliseconds(30);
  auto clients = ServeAndConnect(options, 1);
  fault_fs_.Break(FaultyCall::kOpen, "LEASE", EIO, 1 << 20);
  while (clients[0]->CanSave()) absl::SleepFor(absl::Milliseconds(5));
  fault_fs_.Heal();
  StopAll();
  EXPECT_TRUE(absl::IsAborted(run_status())) << run_status();
}

TEST_F(ServiceTest, TheServiceLeavesWhenNobodyComes) {
  ServiceOptions options = Options();
  options.first_client_limit = absl::Milliseconds(50);
  const auto service = Service::Start(options).value();
  EXPECT_TRUE(service->Run().ok());
  EXPECT_TRUE(absl::IsNotFound(ReadLease(FileSystem::Posix(), run_dir()).status()));
}

TEST_F(ServiceTest, TrainingGoesOnWithoutTheService) {
  const State state(1);
  auto clients = ServeAndConnect(Options(), 1);
  CommitAll(clients, 100, state);
  StopAll();
  const SaveResult saved = clients[0]->Save(200, state.Ranges(0, 1), "").value();
  EXPECT_FALSE(saved.accepted);
  EXPECT_THAT(saved.skip_reason, HasSubstr("service is gone"));
  // Started again under the same attempt, it is found without a word from the trainer.
  Serve(Options());
  CommitAll(clients, 300, state);
}

TEST_F(ServiceTest, WhatMustBeDurableFirstIsAwaitedBeforeTheHandOver) {
  const State state(2);
  auto clients = ServeAndConnect(Options(), 2);
  const auto save = [&](int64_t step, const absl::Status& ready) {
    EXPECT_TRUE(clients[1]->Save(step, state.Ranges(1, 2), "")->accepted);
    return clients[0]->Save(step, state.Ranges(0, 2), "{}", [&clients, ready, step] {
      for (const SaveEvent& event : clients[1]->PollEvents())
        EXPECT_TRUE(event.step != step || event.state == SaveState::kCopying);  // not staged by all
      return ready;
    });
  };
  EXPECT_TRUE(save(100, absl::OkStatus())->accepted);
  ExpectCommitted(*clients[0], 100);

  const SaveResult given_up = save(200, absl::UnavailableError("its metrics are lost")).value();
  EXPECT_FALSE(given_up.accepted);
  EXPECT_EQ(given_up.skip_reason, "its metrics are lost");
  ExpectNotCommitted(*clients[1], 200, "its metrics are lost");
  for (const SaveEvent& event : clients[0]->PollEvents())
    EXPECT_NE(event.state, SaveState::kAbandoned) << "its caller knows";
  EXPECT_TRUE(save(300, absl::OkStatus())->accepted);
  ExpectCommitted(*clients[0], 300);
}

TEST_F(ServiceTest, SenselessRangesAreRefused) {
  auto clients = ServeAndConnect(Options(), 1);
  const std::vector<float> data(10);
  const float* const x = data.data();
  const TensorRange senseless[] = {
      {"x", DType::kFloat32, {10}, 0, 11, x},
      {"x", DType::kFloat32, {10}, 0, 10, nullptr},
      {"\xff", DType::kFloat32, {10}, 0, 10, x},
      // Pieces that are not all of it.
      {"x", DType::kFloat32, {10}, 0, 10, nullptr, {{x, 6}, {x, 3}}},
      {"x", DType::kFloat32, {10}, 0, 10, nullptr, {{x, 12}, {x, -2}}},
      {"x", DType::kFloat32, {10}, 0, 10, nullptr, {{x, 6}, {nullptr, 4}}}};
  for (const TensorRange& range : senseless)
    EXPECT_TRUE(absl::IsInvalidArgument(clients[0]->Save(1, {range}, "").status()));
  const TensorRange whole = {
      "x", DType::kFloat32, {10}, 0, 10, nullptr, {{x, 6}, {nullptr, 0}, {x, 4}}};
  EXPECT_TRUE(clients[0]->Save(1, {whole}, "").ok());
}

// The same file, whether the range lies together or not.
TEST(RankFileTest, PiecesAreNotToBeSeenInTheFile) {
  std::vector<uint16_t> dense(700'000);
  std::iota(dense.begin(), dense.end(), uint16_t{3});
  const std::vector<uint16_t> head(dense.begin(), dense.begin() + 600'001);
  const std::vector<uint16_t> tail(dense.begin() + 600'001, dense.end());
  const SaveIdentity id = {"test", 1, kGenerationsPerAttempt + 10, 1, 1, 1};
  TensorRange range = {"x", DType::kBFloat16, {900'000}, 5, 700'005, dense.data()};
  std::vector<std::vector<uint8_t>> files;
  std::vector<std::vector<uint32_t>> crcs;
  for (const bool in_pieces : {false, true}) {
    if (in_pieces) {
      range.data = nullptr;
      range.pieces = {{head.data(), 600'001}, {tail.data(), 99'999}};
    }
    const RankFilePlan plan = PlanRankFile(id, 0, {range}).value();
    files.emplace_back(plan.layout.file_bytes);
    crcs.push_back(CopyRankFile(plan, {range}, files.back().data()));
  }
  EXPECT_EQ(files[1], files[0]);
  EXPECT_EQ(crcs[1], crcs[0]);
}

TEST_F(ServiceTest, OneRankMayGiveSeveralRangesOfATensor) {
  auto clients = ServeAndConnect(Options(), 1);
  const std::vector<int32_t> data = {0, 1, 2, 3, 4, 5};
  const auto saved = clients[0]->Save(1,
                                      {{"lanes", DType::kInt32, {6}, 4, 6, data.data() + 4},
                                       {"lanes", DType::kInt32, {6}, 0, 4, data.data()}},
                                      "");
  ASSERT_TRUE(saved.ok() && saved->accepted);
  ExpectCommitted(*clients[0], 1);
  const auto checkpoint = Checkpoint::Open(StepPath(1)).value();
  std::vector<int32_t> read(6);
  ASSERT_TRUE(checkpoint.Read("lanes", 0, 6, read.data()).ok());
  EXPECT_EQ(read, data);
}

}  // namespace
}  // namespace anyorder::ckpt
