// `anyorder-prep` at work for another command: the one program with SentencePiece.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder::launcher {

// A directory of this process alone, in TMPDIR, until its end.
class ScratchFolder {
 public:
  static absl::StatusOr<ScratchFolder> Make();
  ~ScratchFolder();
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;  // "": nothing to remove
};

// Waits for it. `doing` begins the message of an error, "encoding the prompts". Errors: what its
// exit status says, in its own words.
absl::Status CallPrep(const std::vector<std::string>& arguments, absl::string_view doing);

}  // namespace anyorder::launcher
