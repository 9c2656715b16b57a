// Texts as token ids.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "core/base/unique_fd.h"
#include "launcher/process/child_process.h"

namespace anyorder::launcher {

// Encodes with a child process, `anyorder-prep encode`. The first call starts it and later calls
// reuse it, because starting it takes about 100 times as long as encoding a sentence. Keep one
// encoder as long as its vocabulary is needed. Not thread-safe; the thread that starts the child
// must live as long as texts are encoded.
class TextEncoder {
 public:
  // `vocabulary`: a SentencePiece model; `letter_case`: "cased" or "uncased". A child that has not
  // answered after `patience` is ended. Starts nothing.
  TextEncoder(std::string vocabulary, std::string letter_case,
              absl::Duration patience = absl::Hours(1));
  // Ends the child.
  ~TextEncoder();
  TextEncoder(const TextEncoder&) = delete;
  TextEncoder& operator=(const TextEncoder&) = delete;

  // The ids of each text. What is not UTF-8 becomes U+FFFD, and NUL is refused. `doing` begins the
  // message of an error, "encoding the prompts".
  // Errors: FailedPrecondition for NUL; if the child ends, PrepError; DeadlineExceeded. The next
  // call works again: it starts another child where there is none.
  absl::StatusOr<std::vector<std::vector<int32_t>>> Encode(const std::vector<std::string>& texts,
                                                           absl::string_view doing);

 private:
  absl::Status Start();
  // The child's answers to `lines`, as many lines.
  absl::StatusOr<std::string> Exchange(absl::string_view lines, size_t num_lines,
                                       absl::string_view doing);
  // Takes what the child has written so far. False at its end.
  bool Receive(std::string* answers);
  // Ends the child, by force if it is there after the deadline.
  CapturedOutput End(absl::Time deadline);

  const std::string vocabulary_;
  const std::string letter_case_;
  const absl::Duration patience_;
  std::optional<ChildProcess> child_;
  UniqueFd socket_;  // to its standard input and output
  UniqueFd errors_;  // its standard error, a file in memory
};

}  // namespace anyorder::launcher
