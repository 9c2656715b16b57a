// Two and three owners of one run in every order of their file calls that differs: each may stop
// for any time inside any call, and go on when others have taken the run over.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "ckpt/commit.h"
#include "ckpt/layout.h"
#include "ckpt/lease.h"
#include "ckpt/reader.h"
#include "ckpt/save_writer.h"
#include "core/base/unique_fd.h"
#include "tests/ckpt/staged_save.h"
#include "tests/testing/interleaving.h"

namespace anyorder::ckpt {
namespace {

constexpr absl::Duration kAnyLifetime = absl::Seconds(15);

// The programs' warnings, thousands of them, are expected.
class QuietStderr {
 public:
  QuietStderr() : saved_(dup(STDERR_FILENO)) {
    const UniqueFd nothing(open("/dev/null", O_WRONLY | O_CLOEXEC));
    dup2(nothing.get(), STDERR_FILENO);
  }
  ~QuietStderr() { dup2(saved_.get(), STDERR_FILENO); }

 private:
  const UniqueFd saved_;
};

// One small file by each of `num_nodes` nodes.
StagedSave SmallSave(int64_t step, int64_t attempt, int num_nodes = 1) {
  return StagedSave(step, num_nodes, attempt, "test", num_nodes, num_nodes);
}

class EveryOrderTest : public ::testing::Test {
 protected:
  EveryOrderTest() { PrepareRun(&start_); }

  void CommitAtStart(int64_t step, int64_t attempt = 1) {
    const StagedSave save = SmallSave(step, attempt);
    ASSERT_TRUE(VoteOnNodes(&start_, save, 0, 1).ok());
    ASSERT_TRUE(CommitVoted(&start_, save).ok());
    start_committed_ = std::max(start_committed_, step);
  }
  // A lease whose owner does not answer, and may come back.
  void LeaseAtStart(int64_t attempt) {
    LongSleepClock clock;
    auto lease = Lease::Acquire(&start_, kRunDir, Owner(attempt), kAnyLifetime, nullptr, &clock);
    ASSERT_TRUE(lease.ok()) << lease.status();
    const std::string path = JoinPath(kRunDir, kLeaseName);
    const std::string held = start_.Contents(path);
    *lease = nullptr;
    start_.Overwrite(path, held);
    start_attempt_ = attempt;
  }

  // Each on a machine of its own.
  static LeaseOwner Owner(int64_t attempt) {
    LeaseOwner owner;
    owner.run_id = "test";
    owner.attempt = attempt;
    owner.host = owner.machine = absl::StrCat("node", attempt);
    owner.pid = 10 + attempt;
    return owner;
  }

  absl::StatusOr<std::unique_ptr<Lease>> Acquire(FileSystem* fs, int64_t attempt) {
    LongSleepClock clock;
    auto lease = Lease::Acquire(fs, kRunDir, Owner(attempt), kAnyLifetime, nullptr, &clock);
    if (!lease.ok()) return lease;
    // Unless it was taken again after the last call of Acquire.
    const auto now = ReadLease(all_->files(), kRunDir);
    if (now.ok() && now->attempt == attempt) attempt_ = std::max(attempt_, attempt);
    return lease;
  }

  // The answer of Service::CheckFence, which must notice every takeover that was complete before
  // the question.
  absl::Status Fence(FileSystem* fs, int64_t attempt) {
    const bool is_lost = attempt_ > attempt;
    const absl::StatusOr<LeaseOwner> owner = ReadLease(fs, kRunDir);
    if (!owner.ok() && !absl::IsNotFound(owner.status())) return owner.status();
    if (!owner.ok() || owner->attempt != attempt) return absl::AbortedError("another owner");
    Require(!is_lost, "attempt ", attempt, " still holds the lease after ", attempt_, " took it");
    return absl::OkStatus();
  }

  // Of a checkpoint's files but records that were begun before the commit and are never read
  // (PROTOCOL.md, "Late calls"); 0 if it is not there.
  uint64_t ContentOf(const std::string& path) {
    const auto names = all_->files()->ListDirectory(path);
    uint64_t hash = 0;
    for (size_t i = 0; names.ok() && i < names->size(); ++i) {
      const std::string& name = (*names)[i];
      if (!absl::EndsWith(name, ".tmp"))
        hash = MixHash(MixHash(hash, std::hash<std::string>()(name)),
                       all_->files()->Fingerprint(JoinPath(path, name)));
    }
    return hash;
  }

  // What a service reports and what ranks load is committed from then on.
  void Commits(int64_t step) {
    committed_ = std::max(committed_, step);
    const std::string path = CheckpointPath(kRunDir, step);
    contents_[step] = ContentOf(path);
    Require(contents_[step] != 0, "step ", step, " is committed but not there");
  }

  void Save(FileSystem* fs, const StagedSave& save) {
    const ServiceOptions options = {.run_dir = kRunDir,
                                    .run_id = "test",
                                    .attempt = save.id().attempt,
                                    .verify_after_commit = false,
                                    .fs = fs};
    CommitLog log(fs, kRunDir, 1);
    SaveWriter writer(
        &log, options, [&] { return Fence(fs, save.id().attempt); },
        [&](const SaveProgress& progress) {
          if (progress.state == SaveState::kCommitted) Commits(progress.id.step);
          // Later, the vote may come after the new owner has looked for it.
          const bool is_owner = attempt_ == progress.id.attempt;
          if (progress.state == SaveState::kDurable && is_owner) voted_ = progress.id.step;
          if (progress.state == SaveState::kAbandoned && is_owner) voted_ = 0;
        });
    writer.Enqueue({.job = save.JobOf(0), .is_coordinator = true, .began = MonotonicNow()});
  }
  // What a start does before its ranks train, and they before their first step: -1 if it ends.
  int64_t TakeOver(FileSystem* fs, int64_t attempt) {
    CommitLog log(fs, kRunDir, 1);
    const auto fence = [&] { return Fence(fs, attempt); };
    const auto recovered = Recover(log, attempt, fence);
    if (recovered.ok() && recovered->has_value()) Commits((*recovered)->step);
    if (recovered.ok()) log.RemoveLeftovers(attempt).IgnoreError();
    if (!fence().ok()) return -1;
    const absl::StatusOr<std::string> newest = FindNewestGood(kRunDir, true, fs);
    if (!newest.ok()) return -1;
    const int64_t step = *ParseStepName(BaseName(*newest));
    // Ranks of a start that has lost its lease meanwhile end before they commit anything.
    if (attempt == attempt_) Commits(step);
    return step;
  }

  // A later start, which takes the run over and, when it can go on, saves `next`.
  Interleaving::Program Successor(int64_t attempt, const StagedSave* next = nullptr) {
    return [=, this](FileSystem* fs) {
      const auto lease = Acquire(fs, attempt);
      if (lease.ok() && TakeOver(fs, attempt) >= 0 && next != nullptr) Save(fs, *next);
    };
  }

  template <typename... Parts>
  void Require(bool holds, const Parts&... parts) {
    if (!holds && broken_.ok()) broken_ = absl::InternalError(absl::StrCat(parts...));
  }

  absl::Status Check(const FileCall& call, const absl::Status& result) {
    if (!broken_.ok()) return broken_;
    if (!result.ok()) return absl::OkStatus();
    if (call.kind == FaultyCall::kRename && ParseStepName(BaseName(call.to)) &&
        ParseTemporaryName(BaseName(call.path))) {
      const int64_t step = *ParseStepName(BaseName(call.to));
      Require(published_.insert(step).second, "step ", step, " was published twice");
    }
    if (call.kind == FaultyCall::kRename || call.kind == FaultyCall::kRemove) {
      for (const auto& [step, content] : contents_) {
        if (step == committed_)
          Require(ContentOf(CheckpointPath(kRunDir, step)) == content, "step ", step,
                  ", the newest that was committed, is hidden or changed");
      }
    }
    if (BaseName(call.to) == kLeaseName) {
      const auto owner = ReadLease(all_->files(), kRunDir);
      const bool is_release = absl::IsNotFound(owner.status());
      const bool is_by_owner = absl::StrContains(call.path, absl::StrCat("LEASE.", attempt_, "."));
      Require(is_release ? is_by_owner : owner->attempt >= attempt_, call.path,
              " replaces the lease of attempt ", attempt_);
      if (is_release) attempt_ = 0;
    }
    return broken_;
  }

  // Whoever comes next, whenever all others end: it gets the run, and goes on from the newest.
  absl::Status CheckStart(ModelFileSystem* files) {
    LongSleepClock clock;
    const auto lease = Lease::Acquire(files, kRunDir, Owner(9), kAnyLifetime, nullptr, &clock);
    if (!lease.ok()) return Annotate(lease.status(), "no start is possible");
    CommitLog log(files, kRunDir, 1);
    const auto recovered = Recover(log, 9);
    if (!recovered.ok()) return Annotate(recovered.status(), "recovery fails");
    if (const auto tidy = log.RemoveLeftovers(9); !tidy.ok()) return Annotate(tidy, "leftovers");
    const auto newest = FindNewestGood(kRunDir, false, files);
    if (!newest.ok()) return Annotate(newest.status(), "nothing to resume from");
    const int64_t step = *ParseStepName(BaseName(*newest));
    if (step < std::max(committed_, voted_))
      return absl::InternalError(absl::StrCat("the next start resumes from step ", step, " after ",
                                              committed_, " was committed, ", voted_, " voted"));
    const StagedSave next = SmallSave(900, 9);
    absl::Status saved = VoteOnNodes(files, next, 0, 1);
    if (saved.ok()) saved = CommitVoted(files, next);
    if (saved.ok()) saved = RetireOld(files, next);
    if (!saved.ok()) return Annotate(saved, "the next save");
    const std::vector<std::string> names = files->ListDirectory(CheckpointsPath(kRunDir)).value();
    for (const std::string& name : names)
      if (ParseTemporaryName(name) || absl::StartsWith(name, "."))
        return absl::InternalError(name + " stays");
    return absl::OkStatus();
  }

  void RunAll(std::vector<Interleaving::Program> programs, int max_switches = -1) {
    Interleaving::Setting setting;
    setting.programs = std::move(programs);
    setting.begin = [this] {
      attempt_ = start_attempt_;
      committed_ = start_committed_;
      voted_ = start_voted_;
      contents_.clear();
      published_.clear();
      broken_ = absl::OkStatus();
      if (committed_ > 0) Commits(committed_);
    };
    setting.memory = [this] {
      uint64_t hash = MixHash(MixHash(attempt_, committed_), MixHash(voted_, broken_.ok()));
      for (const auto& [step, content] : contents_) hash = MixHash(MixHash(hash, step), content);
      for (const int64_t step : published_) hash = MixHash(hash, step);
      return hash;
    };
    setting.check = [this](auto& call, auto& result) { return Check(call, result); };
    setting.check_state = [this](auto* files) { return CheckStart(files); };
    const bool is_long = std::getenv("ANYORDER_EVERY_ORDER") != nullptr;
    setting.max_switches = is_long ? -1 : max_switches;
    Interleaving all(start_, std::move(setting));
    all_ = &all;
    absl::Status status;
    {
      const QuietStderr quiet;
      status = all.Run();
    }
    EXPECT_TRUE(status.ok()) << status.message();
    std::cout << all.num_orders() << " orders, " << all.num_states() << " states, "
              << all.num_calls() << " file calls\n";
    RecordProperty("orders", static_cast<int>(all.num_orders()));
    RecordProperty("states", static_cast<int>(all.num_states()));
  }

  ModelFileSystem start_;
  int64_t start_attempt_ = 0;
  int64_t start_committed_ = 0;
  int64_t start_voted_ = 0;
  Interleaving* all_ = nullptr;

  // Of one order
  int64_t attempt_ = 0;                   // the newest that has taken the lease
  int64_t committed_ = 0;                 // the newest step
  int64_t voted_ = 0;                     // by all nodes, and not given up
  std::map<int64_t, uint64_t> contents_;  // of committed steps
  std::set<int64_t> published_;
  absl::Status broken_;
};

// Claims, renewals and releases.
TEST_F(EveryOrderTest, OneOfThreeHasTheLease) {
  CommitAtStart(50);
  const auto owner = [this](int64_t attempt) {
    return [this, attempt](FileSystem* fs) {
      const auto lease = Acquire(fs, attempt);
      if (!lease.ok()) return;
      (*lease)->Renew().IgnoreError();
      if (attempt == 1) Fence(fs, attempt).IgnoreError();
    };
  };
  RunAll({owner(1), owner(2)}, 3);
  RunAll({owner(1), owner(2), owner(3)}, 1);
}

// The old owner may stop in any call of its save, its commit or its retiring.
TEST_F(EveryOrderTest, ASaveThatIsTakenOver) {
  CommitAtStart(50);
  CommitAtStart(100);
  LeaseAtStart(1);
  const StagedSave old = SmallSave(200, 1);
  RunAll({[&](FileSystem* fs) { Save(fs, old); }, Successor(2)}, 2);
}

// All that the new owner does may be late as well.
TEST_F(EveryOrderTest, ThreeOwnersOfOneVotedSave) {
  CommitAtStart(50);
  CommitAtStart(100);
  LeaseAtStart(1);
  const StagedSave voted = SmallSave(200, 1);
  ASSERT_TRUE(VoteOnNodes(&start_, voted, 0, 1).ok());
  start_voted_ = 200;
  const StagedSave next = SmallSave(300, 3);
  RunAll({[&](FileSystem* fs) {
            if (CommitVoted(fs, voted, [&] { return Fence(fs, 1); }).ok()) Commits(200);
          },
          Successor(2), Successor(3, &next)},
         1);
}

// On several nodes the coordinator gives up a save that another node votes for at last.
TEST_F(EveryOrderTest, AVoteThatComesWhileTheSaveIsGivenUp) {
  CommitAtStart(100);
  LeaseAtStart(1);
  const StagedSave save = SmallSave(200, 1, /*num_nodes=*/2);
  ASSERT_TRUE(VoteOnNodes(&start_, save, 0, 1).ok());
  RunAll({[&](FileSystem* fs) {
            if (Fence(fs, 1).ok())
              CommitLog(fs, kRunDir, 1).Abandon(save.id(), 0, {0}, "no vote of node 1", true);
          },
          [&](FileSystem* fs) {
            if (!VoteOnNodes(fs, save, 1, 2).ok()) return;
            CommitLog log(fs, kRunDir, 1);
            log.VoteStands(save.id(), 1);
            if (log.ReadOutcome(save.id()).ok()) Commits(200);
          },
          Successor(2)},
         2);
}

// Both of two owners find the newest checkpoint damaged, and save its step again; and what was
// voted for may be damaged, too.
TEST_F(EveryOrderTest, DamageThatTwoOwnersFind) {
  CommitAtStart(50);
  start_committed_ = 50;
  const StagedSave damaged = SmallSave(100, 1);
  ASSERT_TRUE(VoteOnNodes(&start_, damaged, 0, 1).ok());
  LeaseAtStart(2);
  const StagedSave again = SmallSave(100, 2);
  const StagedSave next = SmallSave(100, 3);
  const auto run_with_damage_in = [&](const std::string& path) {
    const std::string good = start_.Contents(path);
    std::string bad = good;
    bad[bad.size() / 2] ^= 1;
    start_.Overwrite(path, bad);
    RunAll({[&](FileSystem* fs) {
              if (TakeOver(fs, 2) >= 0) Save(fs, again);
            },
            Successor(3, &next)},
           1);
    start_.Overwrite(path, good);
  };
  run_with_damage_in(JoinPath(TemporaryPath(kRunDir, damaged.id()), RankFileName(0, 1)));
  ASSERT_TRUE(CommitVoted(&start_, damaged).ok());
  for (const std::string& name : {std::string(kManifestName), RankFileName(0, 1)})
    run_with_damage_in(JoinPath(CheckpointPath(kRunDir, 100), name));
}

}  // namespace
}  // namespace anyorder::ckpt
