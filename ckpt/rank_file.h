// How one rank's tensor ranges become the bytes of one safetensors file (FORMAT.md, "Rank files").

#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "ckpt/client.h"
#include "ckpt/commit.h"
#include "ckpt/layout.h"
#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"

namespace anyorder::ckpt {

struct RankFilePlan {
  std::vector<TensorPiece> pieces;  // in the order of the ranges
  SafetensorsLayout layout;
};

// What `range` lies in, without empty pieces.
std::vector<MemoryPiece> PiecesOf(const TensorRange& range);

// A range that is the whole tensor keeps its shape; others are stored flat. A name's second range
// is stored as "name#1".
absl::StatusOr<RankFilePlan> PlanRankFile(const SaveIdentity& id, int rank,
                                          const std::vector<TensorRange>& ranges);

// Copies header and tensors into `buffer` [plan.layout.file_bytes] and returns the CRCs of its
// chunks, each taken of the source by the thread that copies it. Up to `num_threads` share a large
// file: one that sums while it copies may be slower than a memcpy, two are not.
std::vector<uint32_t> CopyRankFile(const RankFilePlan& plan, const std::vector<TensorRange>& ranges,
                                   uint8_t* buffer, int num_threads = 1);
// The file as a save stages it, without memory for it: it is made a block at a time when it is
// written. The sums are taken now, of what is in memory. `plan` and the memory of `ranges` must
// outlive it.
StagedFile StreamRankFile(const RankFilePlan& plan, const std::vector<TensorRange>& ranges,
                          int rank);

// The copy of one save in the background: first the copier's, then, on a thread, the checksums of
// what arrived. Client polls it in each of its calls.

class BackgroundCopy {
 public:
  // A copy that takes longer than `limit` counts as failed, but its memory stays in use.
  BackgroundCopy(Copier& copier, absl::Duration limit) : copier_(copier), limit_(limit) {}
  // Waits for the copier for a limited time, so that nothing is written to freed memory
  // (is_running).
  ~BackgroundCopy() { AwaitMemory(absl::Seconds(10)); }

  // Writes the header and asks for the copies. REQUIRES: !is_running().
  void Begin(const RankFilePlan& plan, const std::vector<TensorRange>& ranges, uint8_t* buffer);

  // Whether the buffer of the last Begin may still be read or written.
  bool is_running();
  // Once after each Begin: the CRCs, or why there are none (the copier's error; DeadlineExceeded).
  // Nothing: not yet, or told already.
  std::optional<absl::StatusOr<std::vector<uint32_t>>> Poll();
  // Until !is_running(); false after `limit`.
  bool AwaitMemory(absl::Duration limit);

 private:
  enum class State {
    kIdle,
    kCopying,
    kSumming,
    kOverdue,  // told as failed, and still copying
  };

  Copier& copier_;
  const absl::Duration limit_;
  State state_ = State::kIdle;
  absl::Time deadline_;
  uint8_t* buffer_ = nullptr;
  int64_t bytes_ = 0;
  std::future<std::vector<uint32_t>> crcs_;
};

}  // namespace anyorder::ckpt
