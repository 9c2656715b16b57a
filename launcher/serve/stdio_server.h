// Requests as JSON lines.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "launcher/texts/request_json.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

// Lines of a descriptor, which is borrowed.
class LineReader {
 public:
  LineReader(int fd, size_t max_bytes) : fd_(fd), max_bytes_(max_bytes) {}

  // Waits for a line; it, and those behind it that are there already, `most` in all. Of a line with
  // more than `max_bytes` an OutOfRange error. After a stop signal nothing more is read: of lines
  // that were, those that have ended. Empty when there are no more. Errors: those of read(2).
  absl::StatusOr<std::vector<absl::StatusOr<std::string>>> Next(size_t most);

 private:
  std::optional<absl::StatusOr<std::string>> CutLine();
  absl::Status Fill();

  const int fd_;
  const size_t max_bytes_;
  std::string buffer_;
  size_t begin_ = 0;          // of the first line in it
  size_t searched_ = 0;       // bytes of it, in which no further line ends
  bool is_too_long_ = false;  // the line that `buffer_` goes on with
  bool is_at_end_ = false;
};

// One line on `output` for each of `input`, in their order, until its end or a stop signal. Then
// what is computed is answered, and lines that were read, but not begun, get the error Unavailable.
// As many lines are answered at once as `limits` has texts. Errors: those of read(2) and write(2).
absl::Status ServeLines(int input, int output, TextService& service, const RequestLimits& limits,
                        size_t max_line_bytes);

}  // namespace anyorder::launcher
