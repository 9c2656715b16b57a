// Which ranks of which generation have staged, on one node. Pure bookkeeping: no sockets, no files,
// no threads.
//
// Invariants: a generation is decided once, either complete (every local rank staged, then nothing
// that happens to the trainers matters any more) or abandoned; a decided generation never opens
// again.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "ckpt/save_writer.h"

namespace anyorder::ckpt {

struct StagedRank {
  StagedFile file;
  std::shared_ptr<StagingBuffer> buffer;  // shared with the connection, which may end first
  std::string metadata;
  double copy_ms = 0;
};

class SaveAssembly {
 public:
  explicit SaveAssembly(int node) : node_(node) {}

  // `rank` has begun to copy. Abandons older generations that it has not staged: it will not come
  // back to them. True for the first rank of a generation.
  // Errors: FailedPrecondition if the generation is decided or another rank gives it another
  // identity.
  absl::StatusOr<bool> Begin(const SaveIdentity& id, int rank, int local_world_size,
                             absl::Time now);

  // `rank` has staged. Errors: FailedPrecondition with the reason if the generation is no longer
  // open.
  absl::Status Stage(const SaveIdentity& id, int rank, StagedRank staged);

  // The trainer's connection ended: generations that it has not staged, open now or begun later,
  // cannot complete until it comes again.
  void RankGone(int rank);
  void RankCame(int rank) { gone_.erase(rank); }
  // `rank` cannot stage it. FailedPrecondition with the reason, or the one for which it was decided
  // before.
  absl::Status GiveUp(const SaveIdentity& id, const std::string& reason);
  // Abandons generations that began before `limit`.
  void AbandonBegunBefore(absl::Time limit, const std::string& reason);

  // Generations decided since the last call, oldest first.
  std::vector<QueuedSave> TakeDecided() { return std::exchange(newly_decided_, {}); }

  bool has_open() const { return !open_.empty(); }
  int64_t newest_step() const { return newest_step_; }

 private:
  struct OpenSave {
    SaveIdentity id;
    int local_world_size = 0;
    absl::Time began;
    std::map<int, StagedRank> ranks;  // those that have staged
  };
  using OpenSaves = std::map<int64_t, OpenSave>;

  void AbandonMissing();
  OpenSaves::iterator Abandon(OpenSaves::iterator save, const std::string& reason);
  void Complete(OpenSaves::iterator save);
  void Remember(int64_t generation, const std::string& reason) {
    constexpr size_t kNumRemembered = 64;  // late messages come from the last few saves at most
    decided_[generation] = reason;
    if (decided_.size() > kNumRemembered) decided_.erase(decided_.begin());
  }

  const int node_;
  std::set<int> gone_;                      // ranks that were here and left
  OpenSaves open_;                          // by generation
  std::map<int64_t, std::string> decided_;  // reason, empty for complete; bounded
  std::vector<QueuedSave> newly_decided_;
  int64_t newest_step_ = 0;
};

}  // namespace anyorder::ckpt
