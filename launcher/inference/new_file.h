// A file that appears whole or not at all, and never takes an existing one's place.

#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder::launcher {

class NewFile {
 public:
  // `option` named it. AlreadyExists if there is anything at `path`; I/O.
  static absl::StatusOr<std::unique_ptr<NewFile>> Create(const std::string& path,
                                                         const std::string& option);
  // Removes what was not published.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  absl::Status Append(absl::string_view bytes);
  // Durable, with its name, when this returns. AlreadyExists if somebody made one meanwhile.
  absl::Status Publish();

 private:
  NewFile(std::string path, std::string option)
      : path_(std::move(path)), option_(std::move(option)) {}

  const std::string path_;
  const std::string option_;
  std::string temporary_;  // "": nothing to remove
  std::FILE* file_ = nullptr;
};

}  // namespace anyorder::launcher
