// Output that its writer never waits for long: a terminal that Ctrl-S holds, a pipe that nobody
// reads, a file system that does not answer.

#pragma once

#include <functional>
#include <memory>

#include "absl/strings/string_view.h"

namespace anyorder {

// Thread-safe. Has a thread of its own, with all signals blocked; does not survive a fork.
class BoundedWriter {
 public:
  // `write` may block for ever. It is called in the thread, with what each call of Write was given
  // and in that order, and must not touch what dies with the caller.
  explicit BoundedWriter(std::function<void(absl::string_view)> write);
  // Waits for what is queued, but no longer than a second; the rest is the thread's to finish, for
  // as long as the process lives.
  ~BoundedWriter();
  BoundedWriter(const BoundedWriter&) = delete;
  BoundedWriter& operator=(const BoundedWriter&) = delete;

  // Returns once `text` is written, or after a fifth of a second, or at once while earlier text is
  // late. A MiB is queued at most: what comes then is dropped, and when the rest is written a line
  // says how many lines are missing.
  void Write(absl::string_view text);

 private:
  struct Queue;
  static void Run(Queue& queue);

  const std::shared_ptr<Queue> queue_;  // shared with the thread, which may be stuck
};

// What a program says on stderr, as it is, in one write(2). A failure has nowhere to be reported.
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
