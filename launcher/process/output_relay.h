// What the ranks print: passed on to the launcher's stderr as it comes, kept in run-dir/train.log,
// and its last error remembered for the message that ends a crash loop. Neither a terminal nor a
// file system that takes nothing holds the launcher up (core/base/bounded_writer.h).

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/bounded_writer.h"
#include "core/base/unique_fd.h"
#include "core/train/run/run_directory.h"
#include "launcher/process/child_process.h"

namespace anyorder::launcher {

class OutputRelay {
 public:
  // `is_shown`: on stderr, too.
  static absl::StatusOr<OutputRelay> Open(const std::string& log_path, bool is_shown = true);

  // Starts a program, in a session of its own, whose stdout and stderr come here.
  absl::StatusOr<ChildProcess> Start(SpawnOptions options);

  // From now on drops what a program prints between two lines of 74 dashes if it begins with
  // `begins`; "" drops nothing.
  void DropNotice(absl::string_view begins) { dropped_notice_ = std::string(begins); }

  // Waits up to `timeout_ms` for output and passes on what is there.
  void Pump(int timeout_ms);
  // Passes on what came another way; lines of one source are put together.
  void Take(const std::string& source, absl::string_view bytes);
  // From now on shows each whole line to `watcher`, too; null: to nobody.
  void WatchLines(std::function<void(absl::string_view line)> watcher) {
    watcher_ = std::move(watcher);
  }
  // The line that best tells why the ranks failed; may be empty.
  const std::string& last_error() const { return last_error_; }

 private:
  OutputRelay(AppendFile log, bool is_shown);
  void TakeLine(absl::string_view line);

  std::unique_ptr<BoundedWriter> log_;
  bool is_shown_;
  UniqueFd read_end_;
  std::string dropped_notice_;
  std::string held_;                            // of what was read there: may become a notice
  std::map<std::string, std::string> partial_;  // by source: a line not finished yet
  std::function<void(absl::string_view line)> watcher_;
  std::string last_error_;
};

}  // namespace anyorder::launcher
