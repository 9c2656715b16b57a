// What the ranks print: passed on to the launcher's stderr as it comes, kept in run-dir/train.log, and its last error
// remembered for the message that ends a crash loop.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/train/append_file.h"

namespace anyorder::launcher {

class OutputRelay {
 public:
  static absl::StatusOr<OutputRelay> Open(const std::string& log_path);
  OutputRelay(OutputRelay&& other) noexcept;
  ~OutputRelay();

  // Give this end to a child, then close the launcher's copy, so that the pipe ends with the children.
  int write_end() const { return write_end_; }
  absl::Status NewPipe();
  void CloseWriteEnd();

  // Waits up to `timeout_ms` for output and passes on what is there.
  void Pump(int timeout_ms);
  // The line that best tells why the ranks failed; may be empty.
  const std::string& last_error() const { return last_error_; }

 private:
  explicit OutputRelay(AppendFile log) : log_(std::move(log)) {}
  void TakeLine(absl::string_view line);

  AppendFile log_;
  int read_end_ = -1;
  int write_end_ = -1;
  std::string partial_;  // a line not finished yet
  std::string last_error_;
};

}  // namespace anyorder::launcher
