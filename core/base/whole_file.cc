#include "core/base/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "core/base/status.h"
#include "core/base/unique_fd.h"

namespace anyorder {

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus("open", path);
  std::string bytes;
  char block[1 << 16];
  ssize_t got = 0;
  while ((got = ::read(fd.get(), block, sizeof block)) > 0)
    bytes.append(block, static_cast<size_t>(got));
  if (got < 0) return ErrnoStatus("read", path);
  return bytes;
}

}  // namespace anyorder
