// What a program says on stderr, and how long it waits for somebody to take it.

#pragma once

#include "absl/strings/string_view.h"

#include "core/base/bounded_writer.h"

namespace anyorder {

// As it is, in one write(2). A failure has nowhere to be reported.
void WriteToStderr(absl::string_view text);

// While it lives, what this process writes by WriteToStderr, and so by log.h, waits for no reader:
// for programs that obey signals and watch others meanwhile. One at a time, for longer than any
// thread that writes.
class UnblockedStderr {
 public:
  UnblockedStderr();
  ~UnblockedStderr();
  UnblockedStderr(const UnblockedStderr&) = delete;
  UnblockedStderr& operator=(const UnblockedStderr&) = delete;

 private:
  BoundedWriter writer_;
};

}  // namespace anyorder
