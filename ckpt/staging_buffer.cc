#include "ckpt/staging_buffer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/file_system.h"
#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

StagingBuffer::StagingBuffer(UniqueFd fd, uint8_t* data, int64_t bytes)
    : fd_(std::move(fd)), data_(data), bytes_(bytes) {}

StagingBuffer::~StagingBuffer() { munmap(data_, static_cast<size_t>(bytes_)); }

absl::StatusOr<std::unique_ptr<StagingBuffer>> StagingBuffer::Create(int64_t bytes) {
  const std::string what = absl::StrCat("checkpoint buffer of ", bytes >> 20, " MiB");
  UniqueFd fd(memfd_create("anyorder-ckpt", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus("memfd_create", what);
  // Reserving the pages here turns "no memory" into an error instead of a SIGBUS during the copy.
  ASSIGN_OR_RETURN(const bool is_reserved, ReserveSpace(fd.get(), what, bytes));
  if (!is_reserved) return ErrnoStatus("allocate", what, EOPNOTSUPP);
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return ErrnoStatus("seal", what);
  void* const data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus("map", what);
  return std::unique_ptr<StagingBuffer>(
      new StagingBuffer(std::move(fd), static_cast<uint8_t*>(data), bytes));
}

absl::StatusOr<std::unique_ptr<StagingBuffer>> StagingBuffer::Map(UniqueFd fd, int64_t bytes) {
  struct stat info {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(fd.get(), &info) != 0 ||
      info.st_size != bytes || bytes <= 0) {
    return InvalidArgument("staging memory is not a sealed memfd of ", bytes, " bytes");
  }
  void* const data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus("map", "staging memory");
  return std::unique_ptr<StagingBuffer>(
      new StagingBuffer(std::move(fd), static_cast<uint8_t*>(data), bytes));
}

absl::StatusOr<UniqueFd> StagingBuffer::Duplicate() const {
  UniqueFd copy(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return ErrnoStatus("duplicate", "staging memory");
  return copy;
}

}  // namespace anyorder::ckpt
