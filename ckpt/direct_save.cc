#include "ckpt/direct_save.h"

#include <memory>

#include "ckpt/commit.h"
#include "ckpt/manifest.h"
#include "ckpt/rank_file.h"
#include "ckpt/reader.h"
#include "ckpt/staging_buffer.h"
#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

absl::Status WriteAndCommit(CommitLog& log, const SaveJob& job) {
  WriteTimes times;
  ANYORDER_RETURN_IF_ERROR(log.WriteAndVote(job, &times));
  ANYORDER_ASSIGN_OR_RETURN(const Manifest manifest, log.CollectVotes(job.id));
  return log.Commit(manifest, [] { return absl::OkStatus(); });
}

}  // namespace

absl::Status SaveDirectly(const std::string& run_dir, const SaveIdentity& id,
                          const std::vector<TensorRange>& ranges, const std::string& metadata,
                          FileSystem* fs) {
  ANYORDER_CHECK(id.world_size == 1 && id.num_nodes == 1)
      << id.world_size << " ranks, " << id.num_nodes << " nodes";
  ANYORDER_ASSIGN_OR_RETURN(const RankFilePlan plan, PlanRankFile(id, /*rank=*/0, ranges));
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<StagingBuffer> buffer,
                            StagingBuffer::Create(plan.layout.file_bytes));
  const StagedFile file = StageRankFile(plan, ranges, /*rank=*/0, buffer->data());
  CommitLog log(fs, run_dir, /*num_threads=*/1);
  ANYORDER_RETURN_IF_ERROR(log.PrepareRunDirectory());
  const absl::Status saved = WriteAndCommit(log, SaveJob{id, /*node=*/0, metadata, {file}});
  if (!saved.ok()) {
    log.Abandon(id, /*node=*/0, {0}, std::string(saved.message()), /*is_coordinator=*/true);
    return saved;
  }
  ANYORDER_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                            Checkpoint::Open(CheckpointPath(run_dir, id.step), fs));
  return checkpoint.Verify();
}

}  // namespace anyorder::ckpt
