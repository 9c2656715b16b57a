#include "data/prep/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "core/base/status.h"
#include "core/base/unique_fd.h"

namespace anyorder::data {

absl::StatusOr<MappedFile> MappedFile::Map(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus("open", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus("stat", path);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size == 0) return MappedFile(nullptr, 0);
  // The mapping keeps the file.
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus("mmap", path);
  return MappedFile(static_cast<const uint8_t*>(data), size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}

}  // namespace anyorder::data
