#include "data/dataset/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/crc32c.h"
#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "data/dataset/shard_format.h"

namespace anyorder::data {

namespace {

constexpr char kAdvice[] = "; restore it or prepare the data again";

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Map(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus("open", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus("stat", path);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size == 0) return MappedFile(nullptr, 0, path);
  // The mapping keeps the file.
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus("mmap", path);
  return MappedFile(static_cast<const uint8_t*>(data), size, path);
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path, uint64_t expected_bytes) {
  absl::StatusOr<MappedFile> file = Map(path);
  if (absl::IsNotFound(file.status()))
    return DataLoss("'", path, "' is missing but dataset.json lists it", kAdvice);
  ANYORDER_RETURN_IF_ERROR(file.status());
  if (file->size() == expected_bytes && expected_bytes > 0) return file;
  return DataLoss("'", path, "' has ", file->size(), " bytes but dataset.json says ",
                  expected_bytes, kAdvice);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(other.size_),
      path_(std::move(other.path_)) {}

CheckedArray::CheckedArray(const MappedFile& file, std::string name, const ByteRange& range)
    : path_(file.path()),
      name_(std::move(name)),
      data_(file.data() + range.offset),
      range_(range),
      checksums_(NumChunks(range.bytes)),
      verified_(std::make_unique<std::atomic<uint8_t>[]>(checksums_.size())) {}

absl::StatusOr<CheckedArray> CheckedArray::Open(const MappedFile& file,
                                                const std::map<std::string, uint64_t>& offsets,
                                                const std::string& name, uint64_t size) {
  const auto locate = [&](const std::string& array, uint64_t bytes) -> absl::StatusOr<ByteRange> {
    const auto found = offsets.find(array);
    if (found == offsets.end()) {
      return DataLoss("dataset.json does not say where '", array, "' is in '", file.path(), "'",
                      kAdvice);
    }
    const uint64_t offset = found->second;
    if (bytes > file.size() || offset > file.size() - bytes) {
      return DataLoss("'", file.path(), "' has ", file.size(), " bytes, too few for the ", bytes,
                      " of '", array, "' at byte ", offset, " that dataset.json lists", kAdvice);
    }
    return ByteRange{.offset = offset, .bytes = bytes};
  };
  ANYORDER_ASSIGN_OR_RETURN(const ByteRange range, locate(name, size));
  ANYORDER_ASSIGN_OR_RETURN(const ByteRange sums, locate(absl::StrCat(kChecksumsGroup, "/", name),
                                                         sizeof(uint32_t) * NumChunks(size)));
  CheckedArray array(file, name, range);
  if (sums.bytes > 0) std::memcpy(array.checksums_.data(), file.data() + sums.offset, sums.bytes);
  return array;
}

absl::StatusOr<const uint8_t*> CheckedArray::Bytes(uint64_t begin, uint64_t end) const {
  ANYORDER_CHECK(begin <= end && end <= size_bytes())
      << begin << ".." << end << " of " << size_bytes();
  for (uint64_t chunk = begin / kChunkBytes; chunk < NumChunks(end); ++chunk) {
    if (verified_[chunk].load(std::memory_order_relaxed) != 0) continue;
    ANYORDER_RETURN_IF_ERROR(VerifyChunk(chunk));
  }
  return data_ + begin;
}

absl::Status CheckedArray::VerifyChunk(uint64_t chunk) const {
  const uint64_t begin = chunk * kChunkBytes;
  const uint32_t sum = Crc32c(data_ + begin, std::min(kChunkBytes, size_bytes() - begin));
  if (sum != checksums_[chunk]) {
    return DataLoss("'", path_, "' dataset '", name_, "' chunk ", chunk, ": CRC32C is 0x",
                    absl::Hex(sum, absl::kZeroPad8), ", stored 0x",
                    absl::Hex(checksums_[chunk], absl::kZeroPad8), kAdvice);
  }
  // The bytes are read-only and were there before; nothing is published by this flag.
  verified_[chunk].store(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

}  // namespace anyorder::data
