#include "core/base/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "core/base/status.h"

namespace anyorder {

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus("open", path);
  std::string bytes;
  char block[1 << 16];
  ssize_t got = 0;
  while ((got = ::read(fd, block, sizeof block)) > 0)
    bytes.append(block, static_cast<size_t>(got));
  const absl::Status status = got < 0 ? ErrnoStatus("read", path) : absl::OkStatus();
  ::close(fd);
  ANYORDER_RETURN_IF_ERROR(status);
  return bytes;
}

}  // namespace anyorder
