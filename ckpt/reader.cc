#include "ckpt/reader.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "ckpt/chunk_sums.h"
#include "ckpt/json_values.h"
#include "ckpt/layout.h"
#include "core/base/crc32c.h"
#include "core/base/digest.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/status.h"

namespace anyorder::ckpt {

namespace {

// Pieces for passes over everything: long enough for the disk, short enough for the cache.
constexpr int64_t kReadBytes = 4 * kCrcChunkBytes;
// One thread sums while others wait for the disk; a queue of four requests keeps an NVMe disk busy,
// and a file system of many servers gives more to a machine that has the cores to sum it.
constexpr unsigned kLeastThreads = 4;
constexpr unsigned kMostThreads = 16;
// What is worth starting a thread for, of kReadBytes each.
constexpr int64_t kBlocksPerThread = 2;
// Open at a time by one reader: a checkpoint of a thousand ranks has more files than a process may
// hold open.
constexpr size_t kMostOpenFiles = 64;
// A trainer that wants the core gets nine tenths of it.
constexpr int kBackgroundNice = 10;

// DataLoss naming file and bytes unless `data` are the `bytes` bytes of chunk `chunk` of `file`.
absl::Status CheckChunk(const FileRecord& file, int64_t chunk, const void* data, int64_t bytes) {
  const uint32_t found = Crc32c(data, bytes);
  if (found == file.crcs[chunk]) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("'%s': CRC %08x instead of %08x in bytes [%d, %d)", file.name, found,
                      file.crcs[chunk], chunk * kCrcChunkBytes, chunk * kCrcChunkBytes + bytes));
}

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

// `file` of the checkpoint in `dir`; DataLoss unless it is there with its exact size.
absl::StatusOr<std::shared_ptr<ReadableFile>> OpenRankFile(FileSystem* fs, const std::string& dir,
                                                           const FileRecord& file) {
  absl::StatusOr<std::unique_ptr<ReadableFile>> opened = fs->OpenForRead(JoinPath(dir, file.name));
  if (absl::IsNotFound(opened.status()))
    return DataLoss("'", dir, "': file '", file.name, "' is missing");
  RETURN_IF_ERROR(opened.status());
  if ((*opened)->size() != file.bytes) {
    return DataLoss("'", dir, "': file '", file.name, "' has ", (*opened)->size(),
                    " bytes instead of ", file.bytes);
  }
  return std::shared_ptr<ReadableFile>(*std::move(opened));
}

// A part of a range that one thread reads.
struct Block {
  int file = 0;
  int64_t offset = 0;  // in the file
  int64_t bytes = 0;
  char* to = nullptr;
};

// Elements [begin, end) of `tensor`, cut where a file has a multiple of kReadBytes, so that no two
// blocks share a chunk inside a file.
std::vector<Block> BlocksOf(const LogicalTensor& tensor, int64_t begin, int64_t end, char* to) {
  const int64_t width = SizeOf(tensor.dtype);
  std::vector<Block> blocks;
  auto segment =
      std::upper_bound(tensor.segments.begin(), tensor.segments.end(), begin,
                       [](int64_t element, const Segment& s) { return element < s.end; });
  for (; begin < end; ++segment) {
    const int64_t stop = std::min(end, segment->end);
    int64_t offset = segment->offset + (begin - segment->begin) * width;
    for (int64_t left = (stop - begin) * width; left > 0;) {
      const int64_t bytes = std::min(left, kReadBytes - offset % kReadBytes);
      blocks.push_back({segment->file, offset, bytes, to});
      to += bytes;
      offset += bytes;
      left -= bytes;
    }
    begin = stop;
  }
  return blocks;
}

// `work` in `num_threads` threads at once, this one of them.
void InThreads(int64_t num_threads, const std::function<void()>& work) {
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < num_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

// The blocks of the chosen files in order, shared by the threads.
class Verification {
 public:
  Verification(const Manifest& manifest, FileSystem* fs, const std::string& directory,
               const VerifyOptions& options)
      : manifest_(manifest), fs_(fs), directory_(directory), options_(options) {
    for (size_t f = 0; f < manifest.files.size(); ++f) {
      const FileRecord& file = manifest.files[f];
      if (!options.files.empty() && !absl::c_linear_search(options.files, file.name)) continue;
      total_ += file.bytes;
      for (int64_t begin = 0; begin < file.bytes; begin += kReadBytes)
        blocks_.emplace_back(static_cast<int>(f), begin);
    }
  }

  // A small checkpoint is read before a thread has started.
  int64_t num_threads() const {
    const unsigned most =
        std::clamp(std::thread::hardware_concurrency(), kLeastThreads, kMostThreads);
    return std::clamp<int64_t>(total_ / kReadBytes, 1, most);
  }

  void Drain() {
    std::string buffer(static_cast<size_t>(std::min(kReadBytes, total_)), '\0');
    int opened = -1;
    std::shared_ptr<ReadableFile> file;
    for (size_t i = next_++; i < blocks_.size() && !is_cancelled_; i = next_++) {
      const auto [f, begin] = blocks_[i];
      const FileRecord& record = manifest_.files[f];
      const int64_t bytes = std::min(kReadBytes, record.bytes - begin);
      if (f != opened) {
        absl::StatusOr<std::shared_ptr<ReadableFile>> next = OpenRankFile(fs_, directory_, record);
        if (!next.ok()) Add(f, /*begin=*/0, next.status());
        file = next.ok() ? *std::move(next) : nullptr;
        opened = f;
      }
      if (file != nullptr) CheckBlock(f, begin, bytes, *file, buffer.data());
      const int64_t done = done_ += bytes;
      if (options_.proceed && !options_.proceed(done, total_)) is_cancelled_ = true;
    }
  }

  // The first fault in the order of the files, whichever thread found it.
  absl::Status Result() {
    const MutexLock lock(&mutex_);
    if (is_cancelled_) return absl::CancelledError("the reading of a checkpoint was ended");
    if (faults_.empty()) return absl::OkStatus();
    const auto& [where, status] = *faults_.begin();
    const auto [file, begin] = where;
    // Naming the parts is a search, so it is made only for a fault.
    const int64_t end = std::min(begin + kCrcChunkBytes, manifest_.files[file].bytes);
    const size_t more = faults_.size() - 1;
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(), " (", PartsIn(manifest_, file, begin, end), ", checkpoint '",
                     directory_, "')",
                     more == 0 ? "" : absl::StrCat(", and ", more, " more chunks are bad")));
  }

 private:
  void CheckBlock(int f, int64_t begin, int64_t bytes, const ReadableFile& file, char* buffer) {
    const absl::Status read = file.ReadAt(begin, buffer, bytes);
    if (!read.ok()) return Add(f, begin, read);
    for (int64_t done = 0; done < bytes; done += kCrcChunkBytes) {
      const int64_t size = std::min(kCrcChunkBytes, bytes - done);
      const int64_t chunk = (begin + done) / kCrcChunkBytes;
      const absl::Status status = CheckChunk(manifest_.files[f], chunk, buffer + done, size);
      if (!status.ok()) Add(f, begin + done, status);
    }
  }

  void Add(int file, int64_t begin, const absl::Status& status) {
    const MutexLock lock(&mutex_);
    faults_.emplace(std::make_pair(file, begin), status);
  }

  const Manifest& manifest_;
  FileSystem* const fs_;
  const std::string& directory_;
  const VerifyOptions& options_;
  std::vector<std::pair<int, int64_t>> blocks_;  // file, first byte
  int64_t total_ = 0;
  std::atomic<size_t> next_ = 0;
  std::atomic<int64_t> done_ = 0;
  std::atomic<bool> is_cancelled_ = false;
  Mutex mutex_;
  std::map<std::pair<int, int64_t>, absl::Status> faults_ ABSL_GUARDED_BY(mutex_);
};

// The checkpoint under the name of `step`; DataLoss if it is another step's.
absl::StatusOr<Checkpoint> OpenStep(const std::string& run_dir, int64_t step, FileSystem* fs) {
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(CheckpointPath(run_dir, step), fs));
  if (checkpoint.step() == step) return checkpoint;
  return DataLoss("'", checkpoint.directory(), "' holds step ", checkpoint.step());
}

// What retention asks of the metadata, which is the trainer's.
void ReadRetention(const std::string& metadata, CheckpointInfo& info) {
  const absl::StatusOr<ParsedJson> json = ParseJsonObject(metadata);
  if (!json.ok()) return;
  MemberReader take(*json);
  take("unproven", info.is_unproven);
  take("keep_step", info.keep_step);
}

// Whether the run has ever committed a checkpoint, of which none is left in `steps`.
absl::StatusOr<bool> HasEverCommitted(const std::string& run_dir, FileSystem* fs) {
  // CURRENT is only a hint about names, but it proves that there was a commit.
  const absl::Status current = fs->OpenForRead(JoinPath(run_dir, kCurrentName)).status();
  const absl::StatusOr<std::vector<std::string>> names =
      fs->ListDirectory(CheckpointsPath(run_dir));
  // NotFound allows a fresh start, so it must not be a disk's way of not answering.
  for (const absl::Status& status : {current, names.status()}) {
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  if (current.ok()) return true;
  return names.ok() && absl::c_any_of(*names, [](const std::string& name) {
           return absl::EndsWith(name, kQuarantineSuffix);
         });
}

}  // namespace

// Of one checkpoint, opened when they are first wanted. Thread-safe.
class Checkpoint::OpenFiles {
 public:
  // A chunk that was read and is good.
  struct Chunk {
    int file = -1;
    int64_t index = 0;
    std::string bytes;
  };

  absl::StatusOr<std::shared_ptr<ReadableFile>> Get(const Checkpoint& checkpoint, int file) {
    const MutexLock lock(&mutex_);
    for (const auto& [index, opened] : files_)
      if (index == file) return opened;
    ASSIGN_OR_RETURN(
        std::shared_ptr<ReadableFile> opened,
        OpenRankFile(checkpoint.fs_, checkpoint.dir_, checkpoint.manifest_.files[file]));
    if (files_.size() == kMostOpenFiles) files_.pop_front();
    files_.emplace_back(file, opened);
    return opened;
  }

  // The last chunk that somebody wanted a part of: who reads a range piece by piece, or up to a
  // border inside a chunk, wants the rest of it next. Null if it is another one.
  std::shared_ptr<const Chunk> Last(int file, int64_t index) {
    const MutexLock lock(&mutex_);
    return last_ != nullptr && last_->file == file && last_->index == index ? last_ : nullptr;
  }
  void Remember(std::shared_ptr<const Chunk> chunk) {
    const MutexLock lock(&mutex_);
    last_ = std::move(chunk);
  }

 private:
  Mutex mutex_;
  std::shared_ptr<const Chunk> last_ ABSL_GUARDED_BY(mutex_);
  // Oldest first.
  std::deque<std::pair<int, std::shared_ptr<ReadableFile>>> files_ ABSL_GUARDED_BY(mutex_);
};

Checkpoint::Checkpoint(std::string dir, FileSystem* fs)
    : dir_(std::move(dir)), fs_(fs), files_(std::make_unique<OpenFiles>()) {}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& dir, FileSystem* fs) {
  const std::string path = JoinPath(dir, kManifestName);
  absl::StatusOr<std::string> text = ReadSmallFile(fs, path);
  if (absl::IsNotFound(text.status()))
    return NotFound("'", dir, "' is not a checkpoint: it has no ", kManifestName);
  RETURN_IF_ERROR(text.status());
  Checkpoint checkpoint(dir, fs);
  ASSIGN_OR_RETURN(checkpoint.manifest_, ParseManifest(*text, path));
  return checkpoint;
}

absl::Status Checkpoint::CheckFiles() const {
  for (const FileRecord& file : manifest_.files)
    RETURN_IF_ERROR(OpenRankFile(fs_, dir_, file).status());
  return absl::OkStatus();
}

std::vector<TensorInfo> Checkpoint::tensors() const {
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : manifest_.tensors)
    infos.push_back({name, tensor.dtype, tensor.shape});
  return infos;
}

absl::Status Checkpoint::ReadChunk(int file, int64_t chunk, void* dst) const {
  const FileRecord& record = manifest_.files[file];
  const int64_t begin = chunk * kCrcChunkBytes;
  const int64_t bytes = std::min(kCrcChunkBytes, record.bytes - begin);
  ASSIGN_OR_RETURN(const std::shared_ptr<ReadableFile> opened, files_->Get(*this, file));
  const absl::Status read = opened->ReadAt(begin, dst, bytes);
  // It has lost bytes since it was opened.
  if (absl::IsOutOfRange(read)) return absl::DataLossError(read.message());
  return read.ok() ? CheckChunk(record, chunk, dst, bytes) : read;
}

absl::Status Checkpoint::ReadFileRange(int file, int64_t offset, int64_t bytes, char* to) const {
  while (bytes > 0) {
    const int64_t chunk = offset / kCrcChunkBytes;
    const int64_t chunk_begin = chunk * kCrcChunkBytes;
    const int64_t chunk_bytes = std::min(kCrcChunkBytes, manifest_.files[file].bytes - chunk_begin);
    const int64_t skip = offset - chunk_begin;
    const int64_t wanted = std::min(bytes, chunk_bytes - skip);
    // Whole chunks land in place; the two ends go through a chunk of their own.
    if (wanted == chunk_bytes) {
      RETURN_IF_ERROR(ReadChunk(file, chunk, to));
    } else {
      std::shared_ptr<const OpenFiles::Chunk> whole = files_->Last(file, chunk);
      if (whole == nullptr) {
        OpenFiles::Chunk next{file, chunk, std::string(static_cast<size_t>(chunk_bytes), '\0')};
        RETURN_IF_ERROR(ReadChunk(file, chunk, next.bytes.data()));
        whole = std::make_shared<const OpenFiles::Chunk>(std::move(next));
        files_->Remember(whole);
      }
      std::memcpy(to, whole->bytes.data() + skip, static_cast<size_t>(wanted));
    }
    to += wanted;
    offset += wanted;
    bytes -= wanted;
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::Read(absl::string_view name, int64_t begin, int64_t end, void* dst) const {
  const auto it = manifest_.tensors.find(std::string(name));
  if (it == manifest_.tensors.end())
    return NotFound("checkpoint '", dir_, "' has no tensor '", name, "'");
  const LogicalTensor& tensor = it->second;
  const int64_t count = tensor.shape.num_elements();
  if (begin < 0 || end < begin || end > count)
    return OutOfRange("tensor '", name, "': [", begin, ", ", end, ") of ", count, " elements");
  const std::vector<Block> blocks = BlocksOf(tensor, begin, end, static_cast<char*>(dst));
  std::atomic<size_t> next = 0;
  struct {
    Mutex mutex;
    absl::Status status ABSL_GUARDED_BY(mutex);
  } result;
  const auto drain = [&] {
    for (size_t i = next++; i < blocks.size(); i = next++) {
      const absl::Status read =
          ReadFileRange(blocks[i].file, blocks[i].offset, blocks[i].bytes, blocks[i].to);
      if (read.ok()) continue;
      next = blocks.size();  // the other threads stop after their block
      const MutexLock lock(&result.mutex);
      result.status.Update(read);
    }
  };
  InThreads(
      std::min<int64_t>(static_cast<int64_t>(blocks.size()) / kBlocksPerThread, kLeastThreads),
      drain);
  const MutexLock lock(&result.mutex);
  if (result.status.ok()) return result.status;
  return absl::Status(result.status.code(), absl::StrCat(result.status.message(), " (tensor '",
                                                         name, "', checkpoint '", dir_, "')"));
}

absl::StatusOr<std::string> Checkpoint::StateDigest() const {
  StreamingDigest digest;
  std::string buffer(static_cast<size_t>(kReadBytes), '\0');
  for (const auto& [name, tensor] : manifest_.tensors) {
    // The terminating zero keeps "ab" + "c" apart from "a" + "bc".
    const std::string head =
        absl::StrCat(name, " ", Name(tensor.dtype), " ", tensor.shape.ToString());
    digest.Update({head.c_str(), head.size() + 1});
    const int64_t count = tensor.shape.num_elements();
    const int64_t width = SizeOf(tensor.dtype);
    const int64_t piece = kReadBytes / width;
    for (int64_t begin = 0; begin < count; begin += piece) {
      const int64_t end = std::min(count, begin + piece);
      RETURN_IF_ERROR(Read(name, begin, end, buffer.data()));
      digest.Update({buffer.data(), static_cast<size_t>((end - begin) * width)});
    }
  }
  return digest.Value().Hex();
}

absl::StatusOr<std::vector<int64_t>> ListSteps(const std::string& run_dir, FileSystem* fs) {
  std::vector<int64_t> steps;
  const absl::StatusOr<std::vector<std::string>> names =
      fs->ListDirectory(CheckpointsPath(run_dir));
  if (absl::IsNotFound(names.status())) return steps;
  RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const std::optional<int64_t> step = ParseStepName(name);
    if (step && name == StepName(*step)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

int64_t StepToKeep(const std::vector<CheckpointInfo>& infos, int64_t newest_step) {
  for (const CheckpointInfo& info : infos) {
    if (info.step > newest_step) continue;
    const auto is_named = [&info](const CheckpointInfo& other) {
      return other.opens && other.step == info.keep_step;
    };
    if (std::any_of(infos.begin(), infos.end(), is_named)) return info.keep_step;
  }
  return -1;
}

absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(const std::string& run_dir,
                                                            FileSystem* fs) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(run_dir, fs));
  std::vector<CheckpointInfo> infos;
  for (const int64_t step : steps) {
    CheckpointInfo info;
    info.directory = CheckpointPath(run_dir, step);
    info.step = step;
    const absl::StatusOr<Checkpoint> checkpoint = OpenStep(run_dir, step, fs);
    info.status = checkpoint.ok() ? checkpoint->CheckFiles() : checkpoint.status();
    if (info.status.ok()) {
      info.opens = true;
      info.generation = checkpoint->generation();
      info.world_size = checkpoint->world_size();
      info.num_bytes = checkpoint->num_bytes();
      ReadRetention(checkpoint->metadata_json(), info);
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

absl::Status Quarantine(const std::string& dir, int64_t generation, FileSystem* fs) {
  // The name has one taker. If somebody else has set this one aside, `dir` may be a good one since,
  // and the rename must fail: that of a file in a way of its own.
  const std::string aside = QuarantineName(dir, generation);
  const absl::Status moved = fs->Rename(dir, aside);
  if (!moved.ok() && !absl::IsNotFound(fs->OpenForRead(aside).status()))
    return AlreadyExists(moved.message());
  return moved.ok() ? fs->SyncDirectory(ParentPath(dir)) : moved;
}

absl::StatusOr<std::string> FindNewest(const std::string& run_dir, bool quarantine_bad,
                                       FileSystem* fs, bool must_verify) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(run_dir, fs));
  std::string last_fault;
  for (const int64_t step : steps) {
    const absl::StatusOr<Checkpoint> checkpoint = OpenStep(run_dir, step, fs);
    const absl::Status status =
        checkpoint.ok() && must_verify ? checkpoint->Verify() : checkpoint.status();
    if (status.ok()) return checkpoint->directory();
    // Anything but bad bytes is the machine's trouble: calling the checkpoint bad would be rash.
    if (!IsDamage(status)) return status;
    last_fault = std::string(status.message());
    LogWarning(absl::StrCat("checkpoint of step ", step, " is damaged: ", last_fault));
    if (quarantine_bad) {
      const int64_t generation = checkpoint.ok() ? checkpoint->generation() : 0;
      const absl::Status aside = Quarantine(CheckpointPath(run_dir, step), generation, fs);
      // Somebody else has set it aside, and what has its name now is for the next start to judge.
      if (!aside.ok() && !absl::IsAlreadyExists(aside) && !absl::IsNotFound(aside)) return aside;
    }
  }
  ASSIGN_OR_RETURN(const bool ever_committed, HasEverCommitted(run_dir, fs));
  if (steps.empty() && !ever_committed)
    return NotFound("run '", run_dir, "' has no checkpoint yet");
  const std::string fate =
      steps.empty() ? absl::StrCat("none is left in '", CheckpointsPath(run_dir),
                                   "', or only such as were set aside as damaged")
                    : absl::StrCat("all of them are damaged; the last one tried: ", last_fault);
  return DataLoss("run '", run_dir, "' has committed checkpoints, but ", fate,
                  "; restore one, or start a new run directory");
}

absl::Status Checkpoint::Verify(const VerifyOptions& options) const {
  Verification verification(manifest_, fs_, dir_, options);
  if (options.pace == VerifyPace::kFast) {
    InThreads(verification.num_threads(), [&] { verification.Drain(); });
  } else {
    // A thread of its own even so: a priority that was lowered cannot be raised again without
    // privileges.
    std::thread([&] {
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kBackgroundNice);
      verification.Drain();
    }).join();
  }
  return verification.Result();
}

}  // namespace anyorder::ckpt
