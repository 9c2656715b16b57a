// A text file that only grows, one write(2) a record, so that a crash leaves whole records and at
// most one torn tail.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder {

class AppendFile {
 public:
  // Creates the file if needed. A last line without a newline was never complete and is cut off.
  static absl::StatusOr<AppendFile> Open(const std::string& path);
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;
  ~AppendFile();

  absl::Status Append(absl::string_view bytes);
  // Makes what was appended survive a power cut.
  absl::Status Sync();

 private:
  AppendFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_ = -1;
  std::string path_;
};

}  // namespace anyorder
