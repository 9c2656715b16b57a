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

}  // namespace anyorder
