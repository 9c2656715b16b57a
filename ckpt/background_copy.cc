#include "ckpt/background_copy.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "ckpt/chunk_sums.h"
#include "core/base/check.h"

namespace anyorder::ckpt {

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
  deadline_ = absl::Now() + limit_;
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
      if (absl::Now() < deadline_) return std::nullopt;
      state_ = State::kOverdue;
      return absl::DeadlineExceededError(
          absl::StrCat("the device's copy was not done within ", absl::FormatDuration(limit_)));
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
  const absl::Time deadline = absl::Now() + limit;
  if (state_ == State::kSumming) {
    crcs_.wait();
    state_ = State::kIdle;
  }
  if (state_ == State::kCopying) state_ = State::kOverdue;
  while (is_running()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace anyorder::ckpt
