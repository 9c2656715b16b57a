// A rank's part of a checkpoint: the tensor ranges that it saves, and how they become the bytes of
// one safetensors file (FORMAT.md, "Rank files").

#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "ckpt/layout.h"
#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"
#include "core/base/dtype.h"
#include "core/base/tensor.h"

namespace anyorder::ckpt {

// Contiguous elements of a tensor.
struct MemoryPiece {
  const void* data = nullptr;
  int64_t elements = 0;
};

// One rank's part of one logical tensor. The ranges of all ranks must cover [0, elements) exactly
// once. A rank may give several ranges of one name, and empty ranges.
struct TensorRange {
  std::string name;  // "master", "adam_m", "memory.0", or a parameter's name; UTF-8
  DType dtype = DType::kFloat32;
  Shape global_shape;
  int64_t begin = 0;  // flat elements [begin, end) of the global tensor
  int64_t end = 0;
  // end - begin elements in host memory, valid until Save returns; with a copier in its memory,
  // valid until that is done.
  const void* data = nullptr;
  // Instead of `data`, for a range that is not contiguous: its end - begin elements in order. The
  // file does not show them.
  std::vector<MemoryPiece> pieces = {};
  // Instead of both, for values that are nowhere in memory: writes elements [begin, end) of the
  // global tensor to `out`. SaveDirectly's only.
  std::function<absl::Status(int64_t begin, int64_t end, void* out)> read = {};
  // What a tensor consists of that is several in one, for readers of the file: JSON for its header,
  // or nothing.
  std::string contents = {};
};

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

// One rank's file, complete in memory, as the client staged it, or made a block at a time.
struct StagedFile {
  int rank = 0;
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
  std::vector<uint32_t> crcs;
  std::vector<TensorPiece> pieces;
  // Where `data` is null: writes bytes [begin, end) of the file to `out` and returns the CRCs of
  // their chunks; `begin` is a multiple of kCrcChunkBytes. Errors: those of TensorRange::read.
  std::function<absl::StatusOr<std::vector<uint32_t>>(int64_t begin, int64_t end, uint8_t* out)>
      make_block = {};
};

// The file as a save stages it, without memory for it: it is made, and summed, a block at a time
// when it is written. `plan` and what `ranges` point to or read must outlive it.
StagedFile StreamRankFile(const RankFilePlan& plan, const std::vector<TensorRange>& ranges,
                          int rank);

// Brings tensors into staging memory where the host cannot read them itself: out of a GPU's memory,
// in the background. The trainer gives one to Client (core/train/state/snapshot_copier.h); ckpt
// knows no device.
//
// One copy at a time: Begin, Copy for each range or each piece of it, End. All calls but IsDone
// return without waiting for data.
class Copier {
 public:
  virtual ~Copier() = default;

  // `staging` is what copies go to until Release. May make that quicker; may do nothing.
  virtual void Prepare(void* staging, int64_t bytes) = 0;
  // REQUIRES: the last copy is done.
  virtual void Release(void* staging) = 0;

  // Copies the tensors as they are when Begin is called: their owner makes later changes wait for
  // the copy.
  virtual void Begin() = 0;
  virtual void Copy(const void* data, void* staging, int64_t bytes) = 0;
  virtual void End() = 0;

  // Whether the copy is complete. An error is final: the copy failed, and nothing writes to the
  // staging memory any more.
  virtual absl::StatusOr<bool> IsDone() = 0;
};

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
