#include "ckpt/rank_file.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
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
  SafetensorsMetadata metadata = MetadataFor(id, rank, keys, plan.pieces);
  for (size_t i = 0; i < ranges.size(); ++i)
    if (!ranges[i].contents.empty()) metadata["contents." + keys[i]] = ranges[i].contents;
  ASSIGN_OR_RETURN(plan.layout, LayOutSafetensors(entries, metadata));
  for (size_t i = 0; i < plan.pieces.size(); ++i) plan.pieces[i].offset = plan.layout.offsets[i];
  return plan;
}

namespace {

// What one thread takes at a time, and what is worth a second thread.
constexpr int64_t kChunksOfBlock = 4;
constexpr int64_t kCopiedBlockBytes = kChunksOfBlock * kCrcChunkBytes;

// Bytes of a rank file, from `offset` on, that lie in one piece of memory, or that `read` writes.
struct Source {
  int64_t offset = 0;
  const char* data = nullptr;
  int64_t bytes = 0;
  std::function<absl::Status(int64_t begin, int64_t end, void* out)> read = {};  // bytes of it
};

// In the order of the file, without a gap.
std::vector<Source> SourcesOf(const RankFilePlan& plan, const std::vector<TensorRange>& ranges) {
  std::vector<Source> sources = {
      {0, plan.layout.header.data(), static_cast<int64_t>(plan.layout.header.size())}};
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].begin == ranges[i].end) continue;
    int64_t offset = plan.layout.offsets[i];
    const int64_t size = SizeOf(ranges[i].dtype);
    if (ranges[i].read) {
      const auto read = [range = ranges[i], size](int64_t begin, int64_t end, void* out) {
        return range.read(range.begin + begin / size, range.begin + end / size, out);
      };
      sources.push_back({offset, nullptr, (ranges[i].end - ranges[i].begin) * size, read});
      continue;
    }
    for (const MemoryPiece& piece : PiecesOf(ranges[i])) {
      const int64_t bytes = piece.elements * size;
      sources.push_back({offset, static_cast<const char*>(piece.data), bytes});
      offset += bytes;
    }
  }
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.offset < b.offset; });
  return sources;
}

// Bytes [begin, end) of the file, to `out`. REQUIRES: begin is a multiple of kCrcChunkBytes.
absl::StatusOr<std::vector<uint32_t>> CopyBlock(const std::vector<Source>& sources, int64_t begin,
                                                int64_t end, uint8_t* out) {
  ChunkedCrc32c crc;
  auto source = std::upper_bound(sources.begin(), sources.end(), begin,
                                 [](int64_t at, const Source& s) { return at < s.offset; });
  for (--source; begin < end; ++source) {
    const int64_t skip = begin - source->offset;
    const int64_t bytes = std::min(end - begin, source->bytes - skip);
    if (source->read) RETURN_IF_ERROR(source->read(skip, skip + bytes, out));
    crc.Append(out, source->read ? nullptr : source->data + skip, bytes);
    out += bytes;
    begin += bytes;
  }
  return crc.Finish();
}

}  // namespace

std::vector<uint32_t> CopyRankFile(const RankFilePlan& plan, const std::vector<TensorRange>& ranges,
                                   uint8_t* buffer, int num_threads) {
  const std::vector<Source> sources = SourcesOf(plan, ranges);
  const int64_t file_bytes = plan.layout.file_bytes;
  std::vector<uint32_t> crcs(static_cast<size_t>(NumCrcChunks(file_bytes)));
  std::atomic<int64_t> next = 0;
  const auto drain = [&] {
    for (int64_t block = next++; block * kCopiedBlockBytes < file_bytes; block = next++) {
      const int64_t begin = block * kCopiedBlockBytes;
      // Memory is there.
      const std::vector<uint32_t> of_block = *CopyBlock(
          sources, begin, std::min(begin + kCopiedBlockBytes, file_bytes), buffer + begin);
      std::copy(of_block.begin(), of_block.end(), crcs.begin() + block * kChunksOfBlock);
    }
  };
  std::vector<std::thread> threads;
  const int64_t num_blocks = static_cast<int64_t>(crcs.size()) / kChunksOfBlock;
  for (int64_t i = 1; i < std::min<int64_t>(num_threads, num_blocks); ++i)
    threads.emplace_back(drain);
  drain();
  for (std::thread& thread : threads) thread.join();
  return crcs;
}

StagedFile StreamRankFile(const RankFilePlan& plan, const std::vector<TensorRange>& ranges,
                          int rank) {
  StagedFile file = {rank, nullptr, plan.layout.file_bytes, {}, plan.pieces};
  file.crcs.resize(static_cast<size_t>(NumCrcChunks(file.bytes)));
  file.make_block = [sources = SourcesOf(plan, ranges)](int64_t begin, int64_t end, uint8_t* out) {
    return CopyBlock(sources, begin, end, out);
  };
  return file;
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
