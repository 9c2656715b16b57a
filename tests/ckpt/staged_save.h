// Saves of three ranks with known values, and a run directory on the model file system, for tests
// below the service.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"

#include "ckpt/commit.h"
#include "ckpt/layout.h"
#include "ckpt/rank_file.h"
#include "ckpt/reader.h"
#include "core/base/status.h"
#include "tests/testing/model_file_system.h"

namespace anyorder::ckpt {

inline constexpr char kRunDir[] = "/run";
inline constexpr int kWorldSize = 3;
inline constexpr int64_t kNumValues = 3000;

// The values of a save: each tells the step and its place.
inline std::vector<float> ValuesOf(int64_t step, int64_t begin, int64_t end) {
  std::vector<float> values(end - begin);
  std::iota(values.begin(), values.end(), static_cast<float>(step + begin));
  return values;
}

// A save of such values, as many for each rank. Each node has as many ranks.
class StagedSave {
 public:
  StagedSave(int64_t step, int num_nodes, int64_t attempt = 1, std::string run_id = "test",
             int world_size = kWorldSize, int64_t num_values = kNumValues)
      : id_{std::move(run_id),
            attempt,
            attempt * kGenerationsPerAttempt + step * kSavesPerStep,
            step,
            world_size,
            num_nodes} {
    values_ = ValuesOf(step, 0, num_values);
    for (int rank = 0; rank < world_size; ++rank) {
      const int64_t share = num_values / world_size;
      const TensorRange range = {"master",     DType::kFloat32,    {num_values},
                                 rank * share, (rank + 1) * share, values_.data() + rank * share};
      const absl::StatusOr<RankFilePlan> plan = PlanRankFile(id_, rank, {range});
      EXPECT_TRUE(plan.ok()) << plan.status();
      files_.emplace_back(plan->layout.file_bytes);
      uint8_t* const file = files_.back().data();
      staged_.push_back(
          {rank, file, plan->layout.file_bytes, CopyRankFile(*plan, {range}, file), plan->pieces});
    }
  }

  SaveJob JobOf(int node) const {
    SaveJob job{id_, node, metadata_};
    for (const StagedFile& file : staged_) {
      if (file.rank * id_.num_nodes / id_.world_size == node) job.files.push_back(file);
    }
    return job;
  }

  const SaveIdentity& id() const { return id_; }
  void set_metadata(std::string metadata) { metadata_ = std::move(metadata); }

 private:
  const SaveIdentity id_;
  std::string metadata_ = "{}";
  std::vector<float> values_;
  std::vector<std::vector<uint8_t>> files_;
  std::vector<StagedFile> staged_;
};

inline absl::Status NotFenced() { return absl::OkStatus(); }

// First phase on the nodes [first, last).
inline absl::Status VoteOnNodes(FileSystem* fs, const StagedSave& save, int first, int last) {
  CommitLog log(fs, kRunDir, /*num_threads=*/1);
  for (int node = first; node < last; ++node) {
    WriteTimes times;
    RETURN_IF_ERROR(log.WriteAndVote(save.JobOf(node), &times));
  }
  return absl::OkStatus();
}

inline absl::Status CommitVoted(FileSystem* fs, const StagedSave& save,
                                const std::function<absl::Status()>& fence = NotFenced) {
  CommitLog log(fs, kRunDir, /*num_threads=*/1);
  ASSIGN_OR_RETURN(const Manifest manifest, log.CollectVotes(save.id()));
  return log.Commit(manifest, fence);
}

inline absl::Status RetireOld(FileSystem* fs, const StagedSave& save) {
  return CommitLog(fs, kRunDir, 1).Retire(2, 0, save.id().generation);
}

inline absl::Status Save(FileSystem* fs, int64_t step, int num_nodes, int64_t attempt = 1) {
  const StagedSave save(step, num_nodes, attempt);
  absl::Status status = VoteOnNodes(fs, save, 0, num_nodes);
  if (status.ok()) status = CommitVoted(fs, save);
  // Retiring is part of every save but not of its success.
  if (status.ok()) RetireOld(fs, save).IgnoreError();
  return status;
}

// The step that a restart would load, its every value checked; -1 and a failure if there is none.
inline int64_t LoadNewest(FileSystem* fs, const std::string& run_dir = kRunDir) {
  const absl::StatusOr<std::string> newest = FindNewestGood(run_dir, true, fs);
  EXPECT_TRUE(newest.ok()) << newest.status();
  if (!newest.ok()) return -1;
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(*newest, fs);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  if (!checkpoint.ok()) return -1;
  std::vector<float> values(kNumValues);
  const absl::Status read = checkpoint->Read("master", 0, kNumValues, values.data());
  EXPECT_TRUE(read.ok()) << read;
  EXPECT_EQ(values, ValuesOf(checkpoint->step(), 0, kNumValues));
  return checkpoint->step();
}

// Saves and trash that are still there.
inline std::vector<std::string> HalfMade(FileSystem* fs) {
  std::vector<std::string> found;
  const auto names = fs->ListDirectory(CheckpointsPath(kRunDir));
  EXPECT_TRUE(names.ok()) << names.status();
  for (size_t i = 0; names.ok() && i < names->size(); ++i) {
    if (!ParseStepName((*names)[i]) && !absl::StrContains((*names)[i], ".quarantine"))
      found.push_back((*names)[i]);
  }
  return found;
}

inline absl::StatusOr<std::optional<SaveIdentity>> Recover(
    CommitLog& log, int64_t attempt, const std::function<absl::Status()>& fence = NotFenced,
    const std::string& run_id = "test") {
  ASSIGN_OR_RETURN(const OldSaves saves, log.ClaimOldSaves(attempt));
  return log.RecoverVoted(saves, run_id, fence);
}

// What node 0's service does before it listens.
inline absl::Status StartAgain(FileSystem* fs, int64_t attempt) {
  CommitLog log(fs, kRunDir, 1);
  const auto recovered = Recover(log, attempt);
  return recovered.ok() ? log.RemoveLeftovers(attempt) : recovered.status();
}

inline void MakeRun(ModelFileSystem* fs) {
  ASSERT_TRUE(fs->MakeDirectory(kRunDir).ok());
  ASSERT_TRUE(fs->SyncDirectory("/").ok());
}

inline void PrepareRun(ModelFileSystem* fs) {
  MakeRun(fs);
  ASSERT_TRUE(CommitLog(fs, kRunDir, 1).PrepareRunDirectory().ok());
}

inline void PrepareWithTwoCommits(ModelFileSystem* fs, int num_nodes) {
  PrepareRun(fs);
  for (const int64_t step : {50, 100}) {
    const absl::Status saved = Save(fs, step, num_nodes);
    ASSERT_TRUE(saved.ok()) << saved;
  }
}

// Holds such a run.
struct RunWithTwoCommits final : ModelFileSystem {
  explicit RunWithTwoCommits(int num_nodes) { PrepareWithTwoCommits(this, num_nodes); }
};

}  // namespace anyorder::ckpt
