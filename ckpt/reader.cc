#include "ckpt/reader.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "ckpt/chunk_sums.h"
#include "ckpt/layout.h"
#include "core/base/crc32c.h"
#include "core/base/digest.h"
#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder::ckpt {

namespace {

// Pieces for passes over everything: long enough for the disk, short enough for the cache.
constexpr int64_t kReadBytes = 4 * kCrcChunkBytes;
// One thread sums while others wait for the disk; a queue of four requests keeps an NVMe disk busy.
constexpr int kNumThreads = 4;
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

// The blocks of all files in order, shared by the threads.
class Verification {
 public:
  Verification(const Manifest& manifest, const std::vector<std::unique_ptr<ReadableFile>>& files)
      : manifest_(manifest), files_(files) {
    for (size_t f = 0; f < files.size(); ++f) {
      for (int64_t begin = 0; begin < manifest.files[f].bytes; begin += kReadBytes)
        blocks_.emplace_back(static_cast<int>(f), begin);
    }
  }

  // A small checkpoint is read before a thread has started.
  int64_t num_threads() const {
    return std::clamp<int64_t>(manifest_.num_bytes() / kReadBytes, 1, kNumThreads);
  }

  void Drain() {
    std::string buffer(static_cast<size_t>(std::min(kReadBytes, manifest_.num_bytes())), '\0');
    for (size_t i = next_++; i < blocks_.size(); i = next_++) {
      const auto [f, begin] = blocks_[i];
      const FileRecord& file = manifest_.files[f];
      const int64_t bytes = std::min(kReadBytes, file.bytes - begin);
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

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& dir, FileSystem* fs) {
  const std::string path = JoinPath(dir, kManifestName);
  absl::StatusOr<std::string> text = ReadSmallFile(fs, path);
  if (absl::IsNotFound(text.status()))
    return NotFound("'", dir, "' is not a checkpoint: it has no ", kManifestName);
  ANYORDER_RETURN_IF_ERROR(text.status());
  Checkpoint checkpoint;
  checkpoint.dir_ = dir;
  ANYORDER_ASSIGN_OR_RETURN(checkpoint.manifest_, ParseManifest(*text, path));
  for (const FileRecord& file : checkpoint.manifest_.files) {
    absl::StatusOr<std::unique_ptr<ReadableFile>> opened =
        fs->OpenForRead(JoinPath(dir, file.name));
    if (absl::IsNotFound(opened.status()))
      return DataLoss("'", dir, "': file '", file.name, "' is missing");
    if (absl::IsInvalidArgument(opened.status())) {  // something else has its name
      return DataLoss("'", dir, "': ", opened.status().message());
    }
    ANYORDER_RETURN_IF_ERROR(opened.status());
    if ((*opened)->size() != file.bytes) {
      return DataLoss("'", dir, "': file '", file.name, "' has ", (*opened)->size(),
                      " bytes instead of ", file.bytes);
    }
    checkpoint.files_.push_back(*std::move(opened));
  }
  return checkpoint;
}

std::vector<TensorInfo> Checkpoint::tensors() const {
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : manifest_.tensors)
    infos.push_back({name, tensor.dtype, tensor.shape});
  return infos;
}

absl::Status Checkpoint::ReadFileRange(int file, int64_t offset, int64_t bytes, void* dst,
                                       absl::string_view tensor) const {
  const FileRecord& record = manifest_.files[file];
  const std::string what = absl::StrCat("tensor '", tensor, "', checkpoint '", dir_, "'");
  char* to = static_cast<char*>(dst);
  std::string scratch;
  while (bytes > 0) {
    const int64_t chunk = offset / kCrcChunkBytes;
    const int64_t chunk_begin = chunk * kCrcChunkBytes;
    const int64_t chunk_bytes = std::min(kCrcChunkBytes, record.bytes - chunk_begin);
    const int64_t skip = offset - chunk_begin;
    const int64_t wanted = std::min(bytes, chunk_bytes - skip);
    // Whole chunks land in place; the two ends go through a scratch chunk.
    const bool in_place = wanted == chunk_bytes;
    if (!in_place) scratch.resize(static_cast<size_t>(kCrcChunkBytes));
    char* const chunk_data = in_place ? to : scratch.data();
    ANYORDER_RETURN_IF_ERROR(
        Annotate(files_[file]->ReadAt(chunk_begin, chunk_data, chunk_bytes), what));
    const absl::Status checked = CheckChunk(record, chunk, chunk_data, chunk_bytes);
    if (!checked.ok()) return DataLoss(checked.message(), " (", what, ")");
    if (!in_place) std::memcpy(to, chunk_data + skip, static_cast<size_t>(wanted));
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
  const int64_t width = SizeOf(tensor.dtype);
  char* to = static_cast<char*>(dst);
  auto segment =
      std::upper_bound(tensor.segments.begin(), tensor.segments.end(), begin,
                       [](int64_t element, const Segment& s) { return element < s.end; });
  for (; begin < end; ++segment) {
    const int64_t stop = std::min(end, segment->end);
    const int64_t offset = segment->offset + (begin - segment->begin) * width;
    ANYORDER_RETURN_IF_ERROR(
        ReadFileRange(segment->file, offset, (stop - begin) * width, to, name));
    to += (stop - begin) * width;
    begin = stop;
  }
  return absl::OkStatus();
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
      ANYORDER_RETURN_IF_ERROR(Read(name, begin, end, buffer.data()));
      digest.Update({buffer.data(), static_cast<size_t>((end - begin) * width)});
    }
  }
  return digest.Value().Hex();
}

bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsOutOfRange(status);
}

absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(const std::string& run_dir,
                                                            FileSystem* fs) {
  std::vector<CheckpointInfo> infos;
  const std::string parent = CheckpointsPath(run_dir);
  const absl::StatusOr<std::vector<std::string>> names = fs->ListDirectory(parent);
  if (absl::IsNotFound(names.status())) return infos;
  ANYORDER_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const std::optional<int64_t> step = ParseStepName(name);
    if (!step) continue;
    CheckpointInfo info;
    info.directory = JoinPath(parent, name);
    info.step = *step;
    const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(info.directory, fs);
    info.status = checkpoint.status();
    if (checkpoint.ok() && checkpoint->step() != *step)
      info.status = DataLoss("'", info.directory, "' holds step ", checkpoint->step());
    if (info.status.ok()) {
      info.opens = true;
      info.generation = checkpoint->generation();
      info.world_size = checkpoint->world_size();
      info.num_bytes = checkpoint->num_bytes();
    }
    infos.push_back(std::move(info));
  }
  std::sort(infos.begin(), infos.end(),
            [](const CheckpointInfo& a, const CheckpointInfo& b) { return a.step > b.step; });
  return infos;
}

absl::Status Quarantine(const std::string& dir, FileSystem* fs) {
  const std::string base = dir + ".quarantine";
  std::string target = base;
  for (int copy = 2; fs->ListDirectory(target).ok(); ++copy) target = absl::StrCat(base, "-", copy);
  ANYORDER_RETURN_IF_ERROR(fs->Rename(dir, target));
  return fs->SyncDirectory(ParentPath(dir));
}

absl::StatusOr<std::string> FindNewestGood(const std::string& run_dir, bool quarantine_bad,
                                           FileSystem* fs) {
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> infos, ListCheckpoints(run_dir, fs));
  std::string last_fault;
  for (const CheckpointInfo& info : infos) {
    absl::Status status = info.status;
    if (status.ok()) {
      ANYORDER_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(info.directory, fs));
      status = checkpoint.Verify();
    }
    if (status.ok()) return info.directory;
    // Anything but bad bytes is the machine's trouble: calling the checkpoint bad would be rash.
    if (!IsDamage(status)) return status;
    const std::string fault(status.message());
    LogWarning(absl::StrCat("checkpoint of step ", info.step, " is damaged: ", fault));
    if (quarantine_bad) ANYORDER_RETURN_IF_ERROR(Quarantine(info.directory, fs));
    last_fault = fault;
  }
  // CURRENT is only a hint about names, but it proves that there was a commit.
  const absl::Status current = fs->OpenForRead(JoinPath(run_dir, kCurrentName)).status();
  const absl::StatusOr<std::vector<std::string>> names =
      fs->ListDirectory(CheckpointsPath(run_dir));
  // NotFound allows a fresh start, so it must not be a disk's way of not answering.
  for (const absl::Status& status : {current, names.status()}) {
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  bool ever_committed = !infos.empty() || current.ok();
  for (size_t i = 0; names.ok() && i < names->size(); ++i)
    ever_committed = ever_committed || (*names)[i].find(".quarantine") != std::string::npos;
  if (!ever_committed) return NotFound("run '", run_dir, "' has no checkpoint yet");
  return DataLoss("run '", run_dir, "' has committed checkpoints but all of them are damaged",
                  last_fault.empty() ? "" : "; the last one tried: ", last_fault,
                  "; restore one, or start a new run directory");
}

absl::Status Checkpoint::Verify(VerifyPace pace) const {
  Verification verification(manifest_, files_);
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
