#include "ckpt/rank_file.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "ckpt/chunk_sums.h"
#include "core/base/check.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"

namespace anyorder::ckpt {

std::vector<MemoryPiece> PiecesOf(const TensorRange& range) {
  std::vector<MemoryPiece> pieces = range.pieces;
  if (pieces.empty()) pieces.push_back({range.data, range.end - range.begin});
  std::erase_if(pieces, [](const MemoryPiece& piece) { return piece.elements == 0; });
  return pieces;
}

absl::StatusOr<RankFilePlan> PlanRankFile(const SaveIdentity& id, int rank,
                                          const std::vector<TensorRange>& ranges) {
  RankFilePlan plan;
  std::vector<SafetensorsEntry> entries;
  std::vector<std::string> keys;
  std::set<std::string> used;
  for (const TensorRange& range : ranges) {
    plan.pieces.push_back({range.name, range.dtype, range.global_shape, range.begin, range.end, 0});
    std::string key = range.name;
    for (int copy = 1; !used.insert(key).second; ++copy) key = absl::StrCat(range.name, "#", copy);
    const int64_t count = range.end - range.begin;
    const bool is_whole = count == range.global_shape.num_elements();
    entries.push_back({key, range.dtype, is_whole ? range.global_shape : Shape({count})});
    keys.push_back(std::move(key));
  }
  ANYORDER_ASSIGN_OR_RETURN(plan.layout,
                            LayOutSafetensors(entries, MetadataFor(id, rank, keys, plan.pieces)));
  for (size_t i = 0; i < plan.pieces.size(); ++i) plan.pieces[i].offset = plan.layout.offsets[i];
  return plan;
}

std::vector<uint32_t> CopyRankFile(const RankFilePlan& plan, const std::vector<TensorRange>& ranges,
                                   uint8_t* buffer) {
  std::vector<size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return plan.layout.offsets[a] < plan.layout.offsets[b];
  });
  ChunkedCrc32c crc;
  crc.Append(buffer, plan.layout.header.data(), static_cast<int64_t>(plan.layout.header.size()));
  for (const size_t i : order) {
    uint8_t* to = buffer + plan.layout.offsets[i];
    for (const MemoryPiece& piece : PiecesOf(ranges[i])) {
      const int64_t bytes = piece.elements * SizeOf(ranges[i].dtype);
      crc.Append(to, piece.data, bytes);
      to += bytes;
    }
  }
  return crc.Finish();
}

StagedFile StageRankFile(const RankFilePlan& plan, const std::vector<TensorRange>& ranges, int rank,
                         uint8_t* buffer) {
  return {rank, buffer, plan.layout.file_bytes, CopyRankFile(plan, ranges, buffer), plan.pieces};
}

void BackgroundCopy::Begin(const RankFilePlan& plan, const std::vector<TensorRange>& ranges,
                           uint8_t* buffer) {
  ANYORDER_CHECK(state_ == State::kIdle) << "two copies at a time";
  std::memcpy(buffer, plan.layout.header.data(), plan.layout.header.size());
  copier_.Begin();
  for (size_t i = 0; i < ranges.size(); ++i) {
    uint8_t* to = buffer + plan.layout.offsets[i];
    for (const MemoryPiece& piece : PiecesOf(ranges[i])) {
      const int64_t bytes = piece.elements * SizeOf(ranges[i].dtype);
      copier_.Copy(piece.data, to, bytes);
      to += bytes;
    }
  }
  copier_.End();
  buffer_ = buffer;
  bytes_ = plan.layout.file_bytes;
  deadline_ = MonotonicNow() + limit_;
  state_ = State::kCopying;
}

bool BackgroundCopy::is_running() {
  if (state_ == State::kOverdue) {
    const absl::StatusOr<bool> is_done = copier_.IsDone();
    if (!is_done.ok() || *is_done) state_ = State::kIdle;
  }
  return state_ != State::kIdle;
}

std::optional<absl::StatusOr<std::vector<uint32_t>>> BackgroundCopy::Poll() {
  if (state_ == State::kCopying) {
    const absl::StatusOr<bool> is_done = copier_.IsDone();
    if (!is_done.ok()) {
      state_ = State::kIdle;
      return is_done.status();
    }
    if (!*is_done) {
      if (MonotonicNow() < deadline_) return std::nullopt;
      state_ = State::kOverdue;
      return DeadlineExceeded("the device's copy was not done within ",
                              absl::FormatDuration(limit_));
    }
    // Gigabytes, which no step should wait for.
    crcs_ = std::async(std::launch::async, [buffer = buffer_, bytes = bytes_] {
      ChunkedCrc32c crc;
      crc.Append(buffer, nullptr, bytes);
      return crc.Finish();
    });
    state_ = State::kSumming;
  }
  if (state_ != State::kSumming ||
      crcs_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    return std::nullopt;
  state_ = State::kIdle;
  return crcs_.get();
}

bool BackgroundCopy::AwaitMemory(absl::Duration limit) {
  const absl::Time deadline = MonotonicNow() + limit;
  if (state_ == State::kSumming) {
    crcs_.wait();
    state_ = State::kIdle;
  }
  if (state_ == State::kCopying) state_ = State::kOverdue;
  while (is_running()) {
    if (MonotonicNow() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace anyorder::ckpt
