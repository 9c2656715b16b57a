// Runs tasks in worker processes. Processes, not threads: SentencePiece's allocations do not
// contend, a worker that runs out of memory takes nothing with it, and kill -9 of the parent ends
// them all.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/terminal.h"

namespace anyorder::data {

// Runs in a worker. `progress` is shared with the parent; increase it atomically by the bytes done.
using WorkerTask = std::function<absl::StatusOr<std::string>(size_t task, uint64_t* progress)>;
// Called in the parent about twice a second.
using ProgressCallback = std::function<void(uint64_t progress)>;

// Runs task(i) for every i below num_tasks, in that order as workers become free, and returns the
// results in the same order. After a failure no task is begun; those before it are waited for, and
// the error of the first that failed is returned, so that it does not depend on the number of
// workers. REQUIRES: the calling process has one thread. Errors: those of the task; Unavailable or
// Internal if a worker process dies.
absl::StatusOr<std::vector<std::string>> RunInWorkers(int num_workers, size_t num_tasks,
                                                      const WorkerTask& task,
                                                      const ProgressCallback& on_progress);

// One line on stderr that says how far a phase is.
class ProgressLine {
 public:
  // `total_bytes` is what a finished phase will have counted; an estimate is enough.
  ProgressLine(std::string phase, uint64_t total_bytes, bool quiet);
  // Call often. Prints at most twice a second on a terminal, where the line replaces itself, and
  // every ten seconds elsewhere.
  void Update(uint64_t bytes);
  double Seconds() const;

 private:
  std::string phase_;
  uint64_t total_bytes_;
  bool quiet_;
  bool is_terminal_;
  double start_;
  double last_print_;
  RedrawnLine line_;
};

}  // namespace anyorder::data
