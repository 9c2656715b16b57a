// Saves of state that only a copier can read: whole paths through a service, with copies that end
// late, fail, or never end.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "absl/time/clock.h"

#include "ckpt/layout.h"
#include "ckpt/rank_file.h"
#include "core/base/monotonic_clock.h"
#include "tests/ckpt/service_fixture.h"
#include "tests/testing/patience.h"

namespace anyorder::ckpt {
namespace {

using ::testing::HasSubstr;

// A device whose copies are done when the test says so.
class HeldCopier final : public Copier {
 public:
  ~HeldCopier() override { EXPECT_TRUE(prepared_.empty()) << "staging memory was not released"; }
  void Prepare(void* staging, int64_t) override { prepared_.insert(staging); }
  void Release(void* staging) override {
    EXPECT_TRUE(is_done_ || !status_.ok()) << "memory goes that the device writes to";
    EXPECT_EQ(prepared_.erase(staging), 1u);
  }
  void Begin() override { is_done_ = false; }
  void Copy(const void* data, void* staging, int64_t bytes) override {
    copies_.push_back({data, staging, bytes});
  }
  void End() override {}
  absl::StatusOr<bool> IsDone() override {
    if (!status_.ok()) return status_;
    return is_done_;
  }

  void Finish() {
    for (const auto& copy : copies_) std::memcpy(copy.to, copy.from, copy.bytes);
    copies_.clear();
    is_done_ = true;
  }
  // Of this copy and all later ones.
  void Fail(const absl::Status& status) { status_ = status; }

 private:
  struct Pending {
    const void* from;
    void* to;
    int64_t bytes;
  };
  std::set<void*> prepared_;
  std::vector<Pending> copies_;
  bool is_done_ = true;
  absl::Status status_;
};

class BackgroundCopyTest : public ServiceTest {
 protected:
  // Rank 0 of 2 saves with `copier`, rank 1 without.
  std::vector<std::unique_ptr<Client>> Connect(Copier& copier,
                                               absl::Duration limit = absl::Minutes(1)) {
    std::vector<std::unique_ptr<Client>> clients;
    for (int rank = 0; rank < 2; ++rank) {
      ClientOptions options = Trainer(rank, 2);
      options.copier = rank == 0 ? &copier : nullptr;
      options.copy_limit = limit;
      clients.push_back(Client::Connect(options).value());
    }
    return clients;
  }
  // All events of one client until one of `state`.
  static SaveEvent AwaitEvent(Client& client, SaveState state) {
    SaveEvent found;
    const bool has_come = Await([&] {
      for (const SaveEvent& event : client.PollEvents()) {
        found = event;
        if (event.state == state) return true;
      }
      return false;
    });
    EXPECT_TRUE(has_come) << "no " << Name(state);
    return found;
  }
};

TEST_F(BackgroundCopyTest, PiecesOfARangeAreCopiedOneBehindTheOther) {
  Serve(Options());
  HeldCopier copier;
  const std::vector<int32_t> values = {5, 6, 7, 0, 1, 2, 3, 4};
  TensorRange range = {"ring", DType::kInt32, {2, 4}, 0, 8, nullptr};
  range.pieces = {{values.data() + 3, 5}, {values.data(), 3}};
  ClientOptions options = Trainer(0, 1);
  options.copier = &copier;
  {
    const auto client = Client::Connect(options).value();
    ASSERT_TRUE(client->Save(7, {range}, "").ok());
    copier.Finish();
    ExpectCommitted(*client, 7);
  }
  const auto checkpoint = Checkpoint::Open(CheckpointPath(options.run_dir, 7)).value();
  std::vector<int32_t> read(8);
  ASSERT_TRUE(checkpoint.Read("ring", 0, 8, read.data()).ok());
  EXPECT_EQ(read, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(BackgroundCopyTest, SaveReturnsBeforeTheCopyAndCommitsItsBytes) {
  Serve(Options());
  HeldCopier copier;
  const State state(3);
  {
    auto clients = Connect(copier);
    int asked = 0;
    const auto before_stage = [&asked] { return ++asked, absl::OkStatus(); };
    EXPECT_TRUE(clients[0]->Save(40, state.Ranges(0, 2), "{}", before_stage)->accepted);
    EXPECT_TRUE(clients[1]->Save(40, state.Ranges(1, 2), "")->accepted);
    // Nobody has what the device has not copied, and nothing else is taken meanwhile.
    EXPECT_TRUE(absl::IsDeadlineExceeded(clients[0]->WaitStaged(40, absl::Milliseconds(50))));
    EXPECT_TRUE(absl::IsDeadlineExceeded(clients[0]->WaitCommitted(40, absl::Milliseconds(50))));
    std::string reason;
    EXPECT_FALSE(clients[0]->CanSave(&reason));
    EXPECT_THAT(reason, HasSubstr("still being copied out of the device's memory"));
    for (const SaveEvent& event : clients[1]->PollEvents())
      EXPECT_EQ(event.state, SaveState::kCopying);
    EXPECT_EQ(asked, 0);

    copier.Finish();
    EXPECT_TRUE(clients[0]->WaitStaged(40, kPatience).ok());
    EXPECT_EQ(asked, 1);
    ExpectCommitted(*clients[0], 40);
    EXPECT_TRUE(clients[0]->CanSave(&reason)) << reason;
  }
  StopAll();
  const auto checkpoint = Checkpoint::Open(StepPath(40)).value();
  EXPECT_TRUE(checkpoint.Verify().ok());
  ExpectHolds(checkpoint, state, 3);
}

TEST_F(BackgroundCopyTest, AFailedCopyIsAFailedSaveOnAllRanks) {
  Serve(Options());
  HeldCopier copier;
  auto clients = Connect(copier);
  const State earlier(1);  // read until the copier is finished
  SaveAll(clients, 7, earlier);
  copier.Fail(absl::InternalError("an illegal address was read"));
  EXPECT_TRUE(clients[0]->WaitStaged(7, kPatience).ok());
  for (const auto& client : clients) {
    const SaveEvent event = AwaitEvent(*client, SaveState::kAbandoned);
    EXPECT_EQ(event.step, 7);
    EXPECT_EQ(event.reason, "rank 0 could not copy its state: an illegal address was read");
  }
  EXPECT_THAT(clients[0]->WaitCommitted(7, absl::Seconds(1)),
              Fails(absl::IsUnavailable, "an illegal address was read"));
  // Once for all.
  for (const SaveEvent& event : clients[0]->PollEvents())
    EXPECT_NE(event.state, SaveState::kAbandoned);

  copier.Fail(absl::OkStatus());
  copier.Finish();
  const State later(2);
  SaveAll(clients, 8, later);
  copier.Finish();
  ExpectCommitted(*clients[0], 8);
  ExpectHolds(*Checkpoint::Open(StepPath(8)), later, 2);
}

TEST_F(BackgroundCopyTest, ACopyThatDoesNotEndIsGivenUpAndItsMemoryLeftAlone) {
  Serve(Options());
  HeldCopier copier;
  auto clients = Connect(copier, absl::Milliseconds(100));
  const State earlier(1);  // read until the copier is finished
  SaveAll(clients, 7, earlier);
  for (const auto& client : {clients[0].get(), clients[1].get()}) {
    EXPECT_EQ(AwaitEvent(*client, SaveState::kAbandoned).reason,
              "rank 0 could not copy its state: the device's copy was not done within 100ms");
  }
  std::string reason;
  EXPECT_FALSE(clients[0]->CanSave(&reason));
  EXPECT_THAT(reason, HasSubstr("still being copied"));
  copier.Finish();
  EXPECT_TRUE(clients[0]->CanSave(&reason)) << reason;
  const State later(2);
  SaveAll(clients, 8, later);
  copier.Finish();
  ExpectCommitted(*clients[0], 8);
}

// As when the trainer is killed between the copy's begin and its end.
TEST_F(BackgroundCopyTest, ATrainerThatGoesDuringItsCopyLeavesTheOlderCheckpoint) {
  CommitStep(5, State(5), 2);
  Serve(Options(2));
  HeldCopier copier;
  ClientOptions options = Trainer(0, 2, 2);
  options.copier = &copier;
  auto first = Client::Connect(options).value();
  auto second = Client::Connect(Trainer(1, 2, 2)).value();
  const State state(6);
  ASSERT_TRUE(first->Save(6, state.Ranges(0, 2), "{}")->accepted);
  ASSERT_TRUE(second->Save(6, state.Ranges(1, 2), "")->accepted);
  copier.Finish();  // on the device, after its trainer has ended
  first.reset();
  EXPECT_EQ(AwaitEvent(*second, SaveState::kAbandoned).reason,
            "rank 0 disconnected before it had staged");
  second.reset();
  StopAll();
  EXPECT_FALSE(Checkpoint::Open(StepPath(6)).ok());
  ExpectHolds(Checkpoint::Open(StepPath(5)).value(), State(5), 2);
}

}  // namespace
}  // namespace anyorder::ckpt
