#include "ckpt/commit.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "ckpt/chunk_sums.h"
#include "ckpt/json_values.h"
#include "ckpt/reader.h"
#include "core/base/check.h"
#include "core/base/crc32c.h"
#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/mutex.h"
#include "core/base/status.h"

namespace anyorder::ckpt {

namespace {

// One write call. 8 MiB keeps a disk busy; a multiple of the CRC chunk and of what O_DIRECT wants.
constexpr int64_t kBlockBytes = 8 * kCrcChunkBytes;
// Room for votes, manifest and directory blocks.
constexpr int64_t kSpaceMargin = int64_t{16} << 20;
// Of NodeWait: quick while a commit takes milliseconds, gentle on a shared file system later.
constexpr absl::Duration kFirstPause = absl::Milliseconds(2);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);
constexpr absl::Duration kLongestPausePerNode = absl::Milliseconds(20);

double Seconds(absl::Time from, absl::Time to) { return absl::ToDoubleSeconds(to - from); }

// Compares the staged bytes, `block`, with the CRCs that the client took while it copied them: host
// memory that changed in between must not be committed.
absl::Status CheckStaged(const StagedFile& file, int64_t begin, int64_t bytes,
                         const uint8_t* block) {
  for (int64_t done = 0; done < bytes; done += kCrcChunkBytes) {
    const int64_t chunk_bytes = std::min(kCrcChunkBytes, bytes - done);
    if (Crc32c(block + done, chunk_bytes) == file.crcs[(begin + done) / kCrcChunkBytes]) continue;
    return DataLoss("staged bytes of rank ", file.rank, " changed in memory, at bytes [",
                    begin + done, ", ", begin + done + chunk_bytes,
                    "); check this machine's memory");
  }
  return absl::OkStatus();
}

// Memory for a block is made of pages, since O_DIRECT wants aligned memory.
struct alignas(4096) Page {
  uint8_t bytes[4096];
};

// The blocks of all files of a job, handed out to threads; checking one block overlaps writing
// another.
class BlockQueue {
 public:
  explicit BlockQueue(const SaveJob& job) {
    for (size_t f = 0; f < job.files.size(); ++f) {
      for (int64_t begin = 0; begin < job.files[f].bytes; begin += kBlockBytes)
        blocks_.push_back({f, begin, std::min(kBlockBytes, job.files[f].bytes - begin)});
    }
  }

  // Takes the sums of files that are not in memory.
  void Drain(SaveJob& job, const std::vector<std::unique_ptr<WritableFile>>& files) {
    std::vector<Page> made;  // a block of a file that is not in memory
    for (size_t i = next_++; i < blocks_.size(); i = next_++) {
      const auto& [f, begin, bytes] = blocks_[i];
      StagedFile& file = job.files[f];
      absl::Status status;
      if (file.data == nullptr) {
        made.resize(kBlockBytes / sizeof(Page));
        const auto crcs = file.make_block(begin, begin + bytes, made.front().bytes);
        status = crcs.status();
        if (crcs.ok()) std::copy(crcs->begin(), crcs->end(), &file.crcs[begin / kCrcChunkBytes]);
      }
      const uint8_t* const block = file.data == nullptr ? made.front().bytes : file.data + begin;
      if (status.ok()) status = CheckStaged(file, begin, bytes, block);
      if (status.ok()) status = files[f]->WriteAt(begin, block, bytes);
      if (status.ok()) continue;
      next_ = blocks_.size();  // the other threads stop after their block
      const MutexLock lock(&mutex_);
      status_.Update(status);
      return;
    }
  }

  absl::Status status() {
    const MutexLock lock(&mutex_);
    return status_;
  }

 private:
  struct Block {
    size_t file;
    int64_t begin;
    int64_t bytes;
  };
  std::vector<Block> blocks_;
  std::atomic<size_t> next_ = 0;
  Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

NodeRecords::NodeRecords(FileSystem* fs, std::string directory, int num_nodes, NameOf good,
                         NameOf bad)
    : fs_(fs),
      directory_(std::move(directory)),
      good_(std::move(good)),
      bad_(std::move(bad)),
      missing_(static_cast<size_t>(num_nodes)),
      texts_(static_cast<size_t>(num_nodes)) {
  std::iota(missing_.begin(), missing_.end(), 0);
}

absl::Status NodeRecords::Look() {
  std::vector<int> missing;
  for (const int node : missing_) {
    absl::StatusOr<std::string> text = ReadSmallFile(fs_, PathOf(node));
    if (absl::IsNotFound(text.status())) {
      RETURN_IF_ERROR(CheckNotBad(node));
      missing.push_back(node);
      continue;
    }
    RETURN_IF_ERROR(text.status());
    texts_[static_cast<size_t>(node)] = *std::move(text);
  }
  missing_ = std::move(missing);
  if (!missing_.empty()) return Unavailable("nothing from node ", absl::StrJoin(missing_, ", "));
  // Some may have changed their mind after the record that was seen.
  for (size_t node = 0; node < texts_.size(); ++node)
    RETURN_IF_ERROR(CheckNotBad(static_cast<int>(node)));
  return absl::OkStatus();
}

absl::Duration LongestPauseOf(int num_nodes) {
  return std::max(kLongestPause, num_nodes * kLongestPausePerNode);
}

NodeWait::NodeWait(absl::Duration limit, absl::Duration ended_grace, absl::Duration longest_pause)
    : limit_(limit),
      ended_grace_(ended_grace),
      longest_pause_(longest_pause),
      deadline_(MonotonicNow() + limit),
      pause_(kFirstPause) {}

absl::Status NodeWait::Pause(const absl::Status& undecided, const std::string& ended,
                             const std::function<bool(absl::Duration)>& sleep) {
  const absl::Time now = MonotonicNow();
  if (!ended.empty()) ended_since_ = std::min(ended_since_, now);
  if (!ended.empty() && now - ended_since_ >= ended_grace_) return DeadlineExceeded(ended);
  if (now > deadline_)
    return DeadlineExceeded(undecided.message(), " after ", absl::FormatDuration(limit_));
  if (!sleep(pause_)) return absl::CancelledError("the service lost the run directory");
  pause_ = std::min(pause_ * 2, longest_pause_);
  return absl::OkStatus();
}

absl::Status CommitLog::PrepareRunDirectory() {
  const absl::Status made = fs_->MakeDirectory(CheckpointsPath(run_dir_));
  // Also one that was there: it may be this very call's, which NFS repeated.
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  return fs_->SyncDirectory(run_dir_);
}

absl::Status CommitLog::CheckSpace(const SaveJob& job) {
  int64_t wanted = kSpaceMargin;
  for (const StagedFile& file : job.files) wanted += file.bytes;
  ASSIGN_OR_RETURN(const int64_t free, fs_->FreeBytes(run_dir_));
  if (free >= wanted) return absl::OkStatus();
  return ResourceExhausted("'", run_dir_, "' has ", free >> 20, " MiB free, this save needs ",
                           wanted >> 20, " MiB; free some space or keep fewer");
}

absl::Status CommitLog::WriteFiles(SaveJob& job, const std::string& directory, WriteTimes* times) {
  std::vector<std::unique_ptr<WritableFile>> files;
  const absl::Time start = MonotonicNow();
  for (const StagedFile& staged : job.files) {
    const std::string path = JoinPath(directory, RankFileName(staged.rank, job.id.world_size));
    ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs_->CreateNew(path, /*large=*/true));
    RETURN_IF_ERROR(file->Preallocate(staged.bytes));
    files.push_back(std::move(file));
  }
  BlockQueue blocks(job);
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads_; ++i) threads.emplace_back([&] { blocks.Drain(job, files); });
  blocks.Drain(job, files);
  for (std::thread& thread : threads) thread.join();
  RETURN_IF_ERROR(blocks.status());
  const absl::Time written = MonotonicNow();
  for (const std::unique_ptr<WritableFile>& file : files) {
    RETURN_IF_ERROR(file->SyncData());
    RETURN_IF_ERROR(file->Close());
  }
  RETURN_IF_ERROR(fs_->SyncDirectory(directory));
  times->write_seconds = Seconds(start, written);
  times->sync_seconds = Seconds(written, MonotonicNow());
  return absl::OkStatus();
}

absl::Status CommitLog::WriteAndVote(SaveJob job, WriteTimes* times) {
  const absl::StatusOr<Checkpoint> existing =
      Checkpoint::Open(CheckpointPath(run_dir_, job.id.step), fs_);
  const absl::Status whole = existing.ok() ? existing->CheckFiles() : existing.status();
  if (whole.ok()) {
    return AlreadyExists("step ", job.id.step, " is committed already, as generation ",
                         existing->generation());
  }
  if (!IsDamage(whole)) return whole;
  RETURN_IF_ERROR(CheckSpace(job));
  const std::string directory = TemporaryPath(run_dir_, job.id);
  const absl::Status made = fs_->MakeDirectory(directory);
  // Another node may have made it; rank files are created exclusively, so nothing is overwritten.
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  RETURN_IF_ERROR(fs_->SyncDirectory(CheckpointsPath(run_dir_)));
  RETURN_IF_ERROR(WriteFiles(job, directory, times));
  Vote vote{job.id, job.node, job.metadata, {}};
  for (const StagedFile& file : job.files) {
    vote.files.push_back({{RankFileName(file.rank, job.id.world_size), file.bytes, file.crcs},
                          file.rank,
                          file.pieces});
  }
  return WriteFileAtomically(fs_, JoinPath(directory, VoteName(job.node)), SerializeVote(vote));
}

absl::StatusOr<Manifest> CommitLog::CollectVotes(const SaveIdentity& id, NodeRecords& votes) {
  RETURN_IF_ERROR(votes.Look());
  return MergeVotesOf(id, votes);
}

// REQUIRES: none is missing.
absl::StatusOr<Manifest> CommitLog::MergeVotesOf(const SaveIdentity& id,
                                                 const NodeRecords& records) {
  std::vector<Vote> votes;
  for (int node = 0; node < id.num_nodes; ++node) {
    const std::string path = records.PathOf(node);
    ASSIGN_OR_RETURN(Vote vote, ParseVote(records.texts()[static_cast<size_t>(node)], path));
    if (!(vote.id == id) || vote.node != node)
      return DataLoss("'", path, "' is the vote of another save");
    votes.push_back(std::move(vote));
  }
  return MergeVotes(votes);
}

// Aborted with the reason if the coordinator has decided against the save in `directory`.
absl::Status CommitLog::CheckUndecided(const std::string& directory) {
  const absl::StatusOr<std::string> reason =
      ReadSmallFile(fs_, JoinPath(directory, kDecidedAgainstName));
  return reason.ok() ? absl::AbortedError(*reason) : absl::OkStatus();
}

absl::Status CommitLog::Commit(const Manifest& manifest,
                               const std::function<absl::Status()>& fence) {
  const std::string directory = TemporaryPath(run_dir_, manifest.id);
  RETURN_IF_ERROR(
      WriteFileAtomically(fs_, JoinPath(directory, kManifestName), SerializeManifest(manifest)));
  return Publish(directory, manifest.id, fence);
}

// A complete directory becomes the checkpoint of its step.
absl::Status CommitLog::Publish(const std::string& directory, const SaveIdentity& id,
                                const std::function<absl::Status()>& fence) {
  const std::string target = CheckpointPath(run_dir_, id.step);
  RETURN_IF_ERROR(fence());
  // Whatever has this name by now stays: the rename fails on a directory that is not empty.
  RETURN_IF_ERROR(fs_->Rename(directory, target));
  // The name is never taken back: somebody may have loaded it.
  RETURN_IF_ERROR(
      Annotate(fs_->SyncDirectory(CheckpointsPath(run_dir_)),
               absl::StrCat("'", target, "' is whole, but a power cut may take its name away")));
  // From here on it is committed; CURRENT is only a hint, so its failure is only worth a line.
  const Json current = {{"checkpoint", StepName(id.step)}, {"generation", id.generation}};
  const absl::Status hinted =
      WriteFileAtomically(fs_, JoinPath(run_dir_, kCurrentName), SealJson(current));
  if (!hinted.ok()) LogWarning(absl::StrCat("CURRENT not updated: ", hinted.message()));
  return absl::OkStatus();
}

absl::Status CommitLog::ReadOutcome(const SaveIdentity& id) {
  const absl::StatusOr<Checkpoint> committed =
      Checkpoint::Open(CheckpointPath(run_dir_, id.step), fs_);
  if (committed.ok() && committed->generation() == id.generation) {
    return fs_->SyncDirectory(
        CheckpointsPath(run_dir_));  // the coordinator's sync may still be to come
  }
  RETURN_IF_ERROR(CheckUndecided(TemporaryPath(run_dir_, id)));
  return absl::UnavailableError("the coordinator has not decided yet");
}

void CommitLog::RecordEnd(int64_t attempt, int node, bool is_coordinator) {
  std::vector<std::string> names = {EndedName(attempt, node)};
  if (is_coordinator) names.push_back(CoordinatorEndedName(attempt));
  for (const std::string& name : names) {
    const absl::Status recorded =
        WriteFileAtomically(fs_, JoinPath(CheckpointsPath(run_dir_), name), "");
    if (!recorded.ok())
      LogWarning(absl::StrCat("the end could not be recorded: ", recorded.message()));
  }
}

std::optional<int> CommitLog::EndedWithout(int64_t attempt, const NodeRecords& records) {
  for (const int node : records.missing()) {
    // The end first: after it comes no record.
    const std::string ended = JoinPath(CheckpointsPath(run_dir_), EndedName(attempt, node));
    if (fs_->OpenForRead(ended).ok() && !records.IsThere(node)) return node;
  }
  return std::nullopt;
}

void CommitLog::Abandon(const SaveIdentity& id, int node, const std::vector<int>& ranks,
                        const std::string& reason, bool is_coordinator) {
  const std::string directory = TemporaryPath(run_dir_, id);
  absl::Status status;
  if (id.num_nodes == 1) {
    // By way of the trash name: a save with its votes but half its files must not be there at
    // any time.
    status = MoveToTrash(directory, id.generation);
    if (status.ok()) status = fs_->SyncDirectory(CheckpointsPath(run_dir_));
    if (status.ok()) {
      status = RemoveDirectoryWithFiles(
          fs_, JoinPath(CheckpointsPath(run_dir_), TrashName(id.generation)));
    }
    if (absl::IsNotFound(status)) status = absl::OkStatus();  // nothing was made yet
  } else {
    // The others may still be writing: the record tells them why. The directory is removed after a
    // later commit.
    const bool has_voted = VoteStands(id, node);
    fs_->MakeDirectory(directory).IgnoreError();
    const std::string record = is_coordinator ? kDecidedAgainstName : AbandonedName(node);
    status = WriteFileAtomically(fs_, JoinPath(directory, record), reason);
    const absl::StatusOr<std::vector<std::string>> names = fs_->ListDirectory(directory);
    for (size_t i = 0; is_coordinator && names.ok() && i < names->size(); ++i) {
      const std::string& name = (*names)[i];
      // After the record, because a vote that is gone sends its node to read it.
      if (absl::StartsWith(name, kRankFilePrefix) || IsVoteName(name))
        fs_->RemoveFile(JoinPath(directory, name)).IgnoreError();
    }
    for (size_t i = 0; !has_voted && i < ranks.size(); ++i)
      fs_->RemoveFile(JoinPath(directory, RankFileName(ranks[i], id.world_size))).IgnoreError();
  }
  if (!status.ok()) LogWarning(absl::StrCat("cleaning '", directory, "': ", status.message()));
}

absl::Status CommitLog::RemoveSaves(int64_t below_generation) {
  const std::string parent = CheckpointsPath(run_dir_);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_->ListDirectory(parent));
  std::vector<std::string> trash;
  absl::Status status;
  for (const std::string& name : names) {
    const std::optional<TemporarySave> save = ParseTemporaryName(name);
    if (absl::StartsWith(name, kTrashPrefix)) {
      trash.push_back(JoinPath(parent, name));
    } else if (absl::StartsWith(name, kRetiredPrefix)) {
      const absl::StatusOr<bool> restored = RestoreIfNewest(JoinPath(parent, name));
      if (restored.ok() && !*restored) trash.push_back(JoinPath(parent, name));
      status.Update(restored.status());
    } else if (save && save->generation < below_generation &&
               save->attempt <= below_generation / kGenerationsPerAttempt) {
      // Its service may be alive after all: out of its reach first.
      const absl::Status moved = MoveToTrash(JoinPath(parent, name), save->generation);
      if (moved.ok()) trash.push_back(JoinPath(parent, TrashName(save->generation)));
      // Two may have one generation, if a late service has made its directory again: then the
      // second goes the next time.
      if (!absl::IsNotFound(moved) && !absl::IsAlreadyExists(moved)) status.Update(moved);
    }
  }
  if (trash.empty()) return status;
  // Before this, a name that was trashed in memory may still be a checkpoint's on disk.
  RETURN_IF_ERROR(fs_->SyncDirectory(parent));
  for (const std::string& directory : trash)
    status.Update(RemoveDirectoryWithFiles(fs_, directory));
  return status;
}

NodeRecords CommitLog::ReadBacksOf(const SaveIdentity& id) const {
  const int64_t generation = id.generation;
  return NodeRecords(
      fs_, CheckpointPath(run_dir_, id.step), id.num_nodes,
      [generation](int node) { return VerifiedName(generation, node); },
      [generation](int node) { return DamagedName(generation, node); });
}

absl::Status CommitLog::RecordReadBack(const SaveIdentity& id, int node,
                                       const absl::Status& found) {
  const std::string name =
      found.ok() ? VerifiedName(id.generation, node) : DamagedName(id.generation, node);
  return WriteFileAtomically(fs_, JoinPath(CheckpointPath(run_dir_, id.step), name),
                             found.message());
}

absl::Status CommitLog::Retire(int keep_last, int64_t keep_every, int64_t generation) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> infos, ListCheckpoints(run_dir_, fs_));
  const int64_t named = StepToKeep(infos, StepOfGeneration(generation));
  int kept = 0;
  bool has_unproven = false;
  for (const CheckpointInfo& info : infos) {
    if (info.step > StepOfGeneration(generation)) continue;
    if (!info.opens) continue;  // evidence, not garbage
    const bool is_one_too_many = info.is_unproven && std::exchange(has_unproven, true);
    const bool is_recent = kept < std::max(keep_last, 2);
    if (!info.is_unproven) ++kept;
    if (is_recent && !is_one_too_many) continue;
    if (keep_every > 0 && info.step % keep_every == 0) continue;
    if (info.step == named) continue;
    RETURN_IF_ERROR(fs_->Rename(info.directory,
                                JoinPath(CheckpointsPath(run_dir_), RetiredName(info.generation))));
  }
  return RemoveSaves(generation);
}

// If it was renamed so late that the newer ones have turned out damaged meanwhile, or that another
// checkpoint has its old name, it may be the newest that is left.
absl::StatusOr<bool> CommitLog::RestoreIfNewest(const std::string& directory) {
  const absl::StatusOr<Checkpoint> retired = Checkpoint::Open(directory, fs_);
  const absl::Status whole = retired.ok() ? retired->CheckFiles() : retired.status();
  if (IsDamage(whole)) return false;  // deleted in part
  RETURN_IF_ERROR(whole);
  ASSIGN_OR_RETURN(const int64_t newest, NewestCommitted());
  if (retired->step() <= newest) return false;
  RETURN_IF_ERROR(fs_->Rename(directory, CheckpointPath(run_dir_, retired->step())));
  return true;
}

absl::StatusOr<int64_t> CommitLog::NewestCommitted() {
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(run_dir_, fs_));
  for (const int64_t step : steps) {
    const absl::StatusOr<Checkpoint> checkpoint =
        Checkpoint::Open(CheckpointPath(run_dir_, step), fs_);
    const absl::Status whole = checkpoint.ok() ? checkpoint->CheckFiles() : checkpoint.status();
    if (whole.ok()) return step;
    if (!IsDamage(whole)) return whole;
  }
  return -1;
}

absl::Status CommitLog::RemoveLeftovers(int64_t attempt) {
  const std::string parent = CheckpointsPath(run_dir_);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_->ListDirectory(parent));
  for (const std::string& name : names) {
    const std::optional<int64_t> ended = ParseEndedName(name);
    if (ended && *ended < attempt) fs_->RemoveFile(JoinPath(parent, name)).IgnoreError();
  }
  return RemoveSaves(attempt * kGenerationsPerAttempt);
}

absl::Status SaveDirectly(const std::string& run_dir, const SaveIdentity& id,
                          const std::vector<TensorRange>& ranges, const std::string& metadata,
                          FileSystem* fs) {
  ANYORDER_CHECK(id.world_size == 1 && id.num_nodes == 1)
      << id.world_size << " ranks, " << id.num_nodes << " nodes";
  ASSIGN_OR_RETURN(const RankFilePlan plan, PlanRankFile(id, /*rank=*/0, ranges));
  const StagedFile file = StreamRankFile(plan, ranges, /*rank=*/0);
  CommitLog log(fs, run_dir, /*num_threads=*/1);
  RETURN_IF_ERROR(log.PrepareRunDirectory());
  const auto save = [&]() -> absl::Status {
    WriteTimes times;
    RETURN_IF_ERROR(log.WriteAndVote({id, /*node=*/0, metadata, {file}}, &times));
    ASSIGN_OR_RETURN(const Manifest manifest, log.CollectVotes(id));
    return log.Commit(manifest, [] { return absl::OkStatus(); });
  };
  if (const absl::Status saved = save(); !saved.ok()) {
    log.Abandon(id, /*node=*/0, {0}, std::string(saved.message()), /*is_coordinator=*/true);
    return saved;
  }
  ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                   Checkpoint::Open(CheckpointPath(run_dir, id.step), fs));
  return checkpoint.Verify();
}

}  // namespace anyorder::ckpt
