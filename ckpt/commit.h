// The two-phase commit as plain functions over a FileSystem: no sockets, no threads after a call.
//
// One save, in this order (PROTOCOL.md, "Write order"); an error anywhere abandons the generation
// for good:
//   WriteAndVote   on every node: rank files, then this node's vote
//   CollectVotes   on the coordinator, until all votes are there and agree
//   Commit         on the coordinator: manifest, then the rename that is the commit point
//   ReadOutcome    on the other nodes, until it is decided

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "ckpt/layout.h"
#include "ckpt/manifest.h"
#include "ckpt/rank_file.h"
#include "core/base/file_system.h"
#include "core/base/status.h"

namespace anyorder::ckpt {

struct SaveJob {
  SaveIdentity id;
  int node = 0;
  std::string metadata = {};
  std::vector<StagedFile> files = {};
};

struct WriteTimes {
  double write_seconds = 0;
  double sync_seconds = 0;
};

// Directories of saves that were claimed, by generation, newest first.
using OldSaves = std::multimap<int64_t, std::string, std::greater<>>;

// What the nodes of a save say about it: one small file each, which the coordinator alone reads. It
// remembers whose it has seen, so that a save costs a few file operations for each node, however
// often the coordinator looks. Thread-compatible.
class NodeRecords {
 public:
  // The name of a node's record inside the directory (layout.h).
  using NameOf = std::function<std::string(int node)>;

  // `good`: what a node says if all is well with its part; `bad`: if it is not, with the reason.
  NodeRecords(FileSystem* fs, std::string directory, int num_nodes, NameOf good, NameOf bad);

  // Looks for the records that were missing at the last call; by name, because network file systems
  // serve listings from an old cache. OK once all nodes have a good one and none has a bad one;
  // Unavailable naming the nodes without; Aborted with node and reason of a bad one; else what the
  // file system says.
  absl::Status Look();
  // Nodes without a good record.
  const std::vector<int>& missing() const { return missing_; }
  // Whether `node`'s good record is there now.
  bool IsThere(int node) const {
    return !absl::IsNotFound(fs_->OpenForRead(PathOf(node)).status());
  }

  std::string PathOf(int node) const { return JoinPath(directory_, good_(node)); }
  // Contents of the good records by node; empty for those that are missing.
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  absl::Status CheckNotBad(int node) const {
    const absl::StatusOr<std::string> reason = ReadSmallFile(fs_, JoinPath(directory_, bad_(node)));
    return reason.ok() ? Aborted("node ", node, ": ", *reason) : absl::OkStatus();
  }

  FileSystem* const fs_;
  const std::string directory_;
  const NameOf good_;
  const NameOf bad_;
  std::vector<int> missing_;
  std::vector<std::string> texts_;
};

// How long nodes wait between two looks for one of them: the more they are, the more rarely they
// look, so that together they do not look more often than a few dozen.
absl::Duration LongestPauseOf(int num_nodes);

// Patience with other nodes: when to look again, and when to stop.
class NodeWait {
 public:
  // Looks grow rarer, up to `longest_pause`. No later than `limit`, and `ended_grace` after a node
  // has ended without a word, there is no use in waiting.
  NodeWait(absl::Duration limit, absl::Duration ended_grace, absl::Duration longest_pause);

  // After a look that found `undecided`; `ended` tells of a node that has ended, or is empty.
  // OK: look again, after `sleep`, which is false if nobody wants to know any more (Cancelled).
  // Else DeadlineExceeded.
  absl::Status Pause(const absl::Status& undecided, const std::string& ended,
                     const std::function<bool(absl::Duration)>& sleep);

 private:
  const absl::Duration limit_;
  const absl::Duration ended_grace_;
  const absl::Duration longest_pause_;
  const absl::Time deadline_;
  absl::Time ended_since_ = absl::InfiniteFuture();
  absl::Duration pause_;
};

class CommitLog {
 public:
  // `num_threads` write one save's files.
  CommitLog(FileSystem* fs, std::string run_dir, int num_threads)
      : fs_(fs), run_dir_(std::move(run_dir)), num_threads_(num_threads) {}

  // Creates run-dir/checkpoints if needed.
  absl::Status PrepareRunDirectory();

  // Space check, rank files, syncs, vote. Payload is compared with the client's CRCs on the way.
  // Errors: ResourceExhausted with the numbers when the disk is full; DataLoss if staged memory
  // changed; AlreadyExists if the step is committed already; otherwise what the file system says.
  absl::Status WriteAndVote(SaveJob job, WriteTimes* times);

  // The votes of a save, of which the coordinator has seen none yet.
  NodeRecords VotesOf(const SaveIdentity& id) const {
    return VotesIn(TemporaryPath(run_dir_, id), id.num_nodes);
  }
  // Looks for those still missing. Unavailable while there are some; Aborted with the reason if a
  // node gave up; DataLoss if votes do not agree.
  absl::StatusOr<Manifest> CollectVotes(const SaveIdentity& id, NodeRecords& votes);
  // Collects them where no vote is known yet.
  absl::StatusOr<Manifest> CollectVotes(const SaveIdentity& id) {
    NodeRecords votes = VotesOf(id);
    return CollectVotes(id, votes);
  }

  // `fence` is asked right before the commit point and must fail if another attempt owns the
  // run.
  absl::Status Commit(const Manifest& manifest, const std::function<absl::Status()>& fence);

  // What the coordinator decided, asked by the other nodes: OK once committed; Unavailable while
  // undecided; Aborted with the reason if given up.
  absl::Status ReadOutcome(const SaveIdentity& id);
  // For a node that has voted: whether its vote is still where it wrote it, by one look at its
  // name. Either decision takes it away, and then ReadOutcome says which.
  bool VoteStands(const SaveIdentity& id, int node) { return VotesOf(id).IsThere(node); }

  // With several nodes: says that `node` votes for no further save of this start and, if it
  // coordinates, decides on none, so that the others need not wait for it. Best effort: without it
  // they wait for their vote_limit.
  void RecordEnd(int64_t attempt, int node, bool is_coordinator);
  // For the coordinator: a node that recorded its end and whose record is still missing; one that
  // it wrote and that a network file system does not show yet looks the same.
  std::optional<int> EndedWithout(int64_t attempt, const NodeRecords& records);
  // For the others: whether the coordinator recorded its end. What it decided, it decided before.
  bool CoordinatorHasEnded(int64_t attempt) {
    return fs_->OpenForRead(JoinPath(CheckpointsPath(run_dir_), CoordinatorEndedName(attempt)))
        .ok();
  }

  // Frees the disk space and, with several nodes, leaves a record for the others. Best effort. A
  // node that has voted keeps its files, because the coordinator may be committing them; the
  // coordinator, which decides, removes all and takes the votes away.
  void Abandon(const SaveIdentity& id, int node, const std::vector<int>& ranks,
               const std::string& reason, bool is_coordinator);

  // What `node` found when it read back its files of a committed save.
  absl::Status RecordReadBack(const SaveIdentity& id, int node, const absl::Status& found);
  // The records of all nodes.
  NodeRecords ReadBacksOf(const SaveIdentity& id) const;

  // Keeps, of the checkpoints up to that of `generation`, which was read back, the newest
  // `keep_last` (>= 2), every step divisible by `keep_every` (0: none), the one that their metadata
  // names (StepToKeep), and those that do not open. The newest unproven one is kept, too, and does
  // not count towards `keep_last`. Newer ones may be damaged yet: they stay and do not count. The
  // others are renamed first, so that a half-deleted checkpoint never looks complete. Also removes
  // saves older than `generation`.
  absl::Status Retire(int keep_last, int64_t keep_every, int64_t generation);

  // Renames what dead attempts (< `attempt`) have voted for, and what they have not. Their services
  // may only have been judged dead: from here on every path that they know leads nowhere, and what
  // the votes say is final. Only with the lease in hand.
  absl::StatusOr<OldSaves> ClaimOldSaves(int64_t attempt);

  // Commits the newest of these saves that all its nodes voted for, that no node gave up, and that
  // is newer than every committed step: its service died between the last vote and the commit
  // point. Every byte is compared first. Nothing if there is none; errors leave the save for the
  // next start.
  absl::StatusOr<std::optional<SaveIdentity>> RecoverVoted(
      const OldSaves& saves, const std::string& run_id, const std::function<absl::Status()>& fence);

  // Removes what dead attempts (< `attempt`) left half-made, and takes back the newest checkpoint
  // if one of them has retired it too late. Only with the lease in hand.
  absl::Status RemoveLeftovers(int64_t attempt);

  absl::StatusOr<int64_t> FreeBytes() { return fs_->FreeBytes(run_dir_); }

 private:
  absl::Status CheckSpace(const SaveJob& job);
  absl::Status WriteFiles(SaveJob& job, const std::string& directory, WriteTimes* times);
  absl::Status CheckUndecided(const std::string& directory);
  NodeRecords VotesIn(const std::string& directory, int num_nodes) const {
    return NodeRecords(fs_, directory, num_nodes, &VoteName, &AbandonedName);
  }
  absl::StatusOr<Manifest> MergeVotesOf(const SaveIdentity& id, const NodeRecords& votes);
  absl::Status Publish(const std::string& directory, const SaveIdentity& id,
                       const std::function<absl::Status()>& fence);
  absl::StatusOr<int64_t> NewestCommitted();  // the highest step that opens; -1 if there is none
  absl::StatusOr<Manifest> ReadVoted(const std::string& directory, const std::string& run_id,
                                     int64_t generation);
  absl::StatusOr<bool> RestoreIfNewest(const std::string& directory);
  absl::Status MoveToTrash(const std::string& directory, int64_t generation) {
    return fs_->Rename(directory, JoinPath(CheckpointsPath(run_dir_), TrashName(generation)));
  }
  absl::Status RemoveSaves(int64_t below_generation);

  FileSystem* const fs_;
  const std::string run_dir_;
  const int num_threads_;
};

// A committed checkpoint without a service and without ranks: for programs that make a run's first
// checkpoint from something else than training. The files, their order on disk and the commit point
// are those of the service (PROTOCOL.md, "Write order").

// Writes `ranges` as the checkpoint of `id`, waits until it is committed, and reads it back, in
// pieces of some MiB. REQUIRES: id.world_size and id.num_nodes are 1, so that the ranges cover
// their tensors; nobody else uses `run_dir`.
// Errors: those of CommitLog and of TensorRange::read; DataLoss if what was written reads back
// otherwise. An error leaves no checkpoint, unless only its name could not be synced.
absl::Status SaveDirectly(const std::string& run_dir, const SaveIdentity& id,
                          const std::vector<TensorRange>& ranges, const std::string& metadata,
                          FileSystem* fs = FileSystem::Posix());

}  // namespace anyorder::ckpt
