// Checkpoint::Verify: every byte once, as fast as the disk gives them.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "ckpt/chunk_sums.h"
#include "ckpt/manifest.h"
#include "ckpt/reader.h"
#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

// One thread sums while others wait for the disk; a queue of four requests keeps an NVMe disk busy.
constexpr int kNumThreads = 4;
constexpr int64_t kBlockBytes = 4 * kCrcChunkBytes;
// A trainer that wants the core gets nine tenths of it.
constexpr int kBackgroundNice = 10;

// What has bytes in [begin, end) of a file, for messages.
std::string PartsIn(const Manifest& manifest, int file, int64_t begin, int64_t end) {
  std::vector<std::string> parts;
  int64_t header_end = manifest.files[file].bytes;
  for (const auto& [name, tensor] : manifest.tensors) {
    bool is_touched = false;
    for (const Segment& segment : tensor.segments) {
      if (segment.file != file) continue;
      const int64_t bytes = (segment.end - segment.begin) * SizeOf(tensor.dtype);
      header_end = std::min(header_end, segment.offset);
      is_touched = is_touched || (segment.offset < end && segment.offset + bytes > begin);
    }
    if (is_touched) parts.push_back(absl::StrCat("tensor '", name, "'"));
  }
  if (begin < header_end) parts.insert(parts.begin(), "header");
  return absl::StrJoin(parts, ", ");
}

// The blocks of all files in order, shared by the threads.
class Verification {
 public:
  Verification(const Manifest& manifest, const std::vector<std::unique_ptr<ReadableFile>>& files)
      : manifest_(manifest), files_(files) {
    for (size_t f = 0; f < files.size(); ++f) {
      for (int64_t begin = 0; begin < manifest.files[f].bytes; begin += kBlockBytes)
        blocks_.emplace_back(static_cast<int>(f), begin);
    }
  }

  // A small checkpoint is read before a thread has started.
  int64_t num_threads() const {
    return std::clamp<int64_t>(manifest_.num_bytes() / kBlockBytes, 1, kNumThreads);
  }

  void Drain() {
    std::string buffer(static_cast<size_t>(std::min(kBlockBytes, manifest_.num_bytes())), '\0');
    for (size_t i = next_++; i < blocks_.size(); i = next_++) {
      const auto [f, begin] = blocks_[i];
      const FileRecord& file = manifest_.files[f];
      const int64_t bytes = std::min(kBlockBytes, file.bytes - begin);
      const absl::Status read = files_[f]->ReadAt(begin, buffer.data(), bytes);
      if (!read.ok()) Add(f, begin, read);
      for (int64_t done = 0; read.ok() && done < bytes; done += kCrcChunkBytes) {
        const int64_t size = std::min(kCrcChunkBytes, bytes - done);
        const int64_t chunk = (begin + done) / kCrcChunkBytes;
        const absl::Status status = CheckChunk(file, chunk, buffer.data() + done, size);
        if (!status.ok()) Add(f, begin + done, status);
      }
    }
  }

  // The first fault in the order of the files, whichever thread found it.
  absl::Status Result(const std::string& directory) const {
    if (faults_.empty()) return absl::OkStatus();
    const auto& [where, status] = *faults_.begin();
    const auto [file, begin] = where;
    // Naming the parts is a search, so it is made only for a fault.
    const int64_t end = std::min(begin + kCrcChunkBytes, manifest_.files[file].bytes);
    const size_t more = faults_.size() - 1;
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(), " (", PartsIn(manifest_, file, begin, end), ", checkpoint '",
                     directory, "')",
                     more == 0 ? "" : absl::StrCat(", and ", more, " more chunks are bad")));
  }

 private:
  void Add(int file, int64_t begin, const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    faults_.emplace(std::make_pair(file, begin), status);
  }

  const Manifest& manifest_;
  const std::vector<std::unique_ptr<ReadableFile>>& files_;
  std::vector<std::pair<int, int64_t>> blocks_;  // file, first byte
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;
  std::map<std::pair<int, int64_t>, absl::Status> faults_;
};

}  // namespace

absl::Status Checkpoint::Verify(VerifyPace pace) const {
  Verification verification(*manifest_, files_);
  std::vector<std::thread> threads;
  if (pace == VerifyPace::kBackground) {
    // A thread of its own even so: a priority that was lowered cannot be raised again without
    // privileges.
    threads.emplace_back([&] {
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kBackgroundNice);
      verification.Drain();
    });
  } else {
    for (int64_t i = 1; i < verification.num_threads(); ++i)
      threads.emplace_back([&] { verification.Drain(); });
    verification.Drain();
  }
  for (std::thread& thread : threads) thread.join();
  return verification.Result(dir_);
}

}  // namespace anyorder::ckpt
