// `anyorder-prep` at work for another command: the one program with SentencePiece.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "launcher/process/child_process.h"

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

// The path of anyorder-prep.
std::string PrepProgram();

// What one that failed has said, as an error: by its exit status, in its own words. `doing` begins
// the message, "encoding the prompts". Unavailable if a signal ended it.
absl::Status PrepError(const CapturedOutput& output, absl::string_view doing);

// Waits for it. Errors: PrepError; DeadlineExceeded after an hour.
absl::Status CallPrep(const std::vector<std::string>& arguments, absl::string_view doing);

}  // namespace anyorder::launcher
