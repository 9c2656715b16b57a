// A program that answers a question: what it printed, and never more than a given time of waiting
// for it.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace anyorder::launcher {

struct CapturedOutput {
  bool is_late = false;  // the deadline came first, and the program was ended
  int exit_status = -1;  // 127: there is no such program
  std::string text;      // stdout and stderr, at most a MiB
};

// `arguments` as in SpawnOptions. At the deadline the program gets SIGTERM, with which srun ends
// its step, and SIGKILL 5 seconds later.
absl::StatusOr<CapturedOutput> RunCaptured(const std::vector<std::string>& arguments,
                                           absl::Time deadline);

// Whether PATH holds a program of this name.
bool HasProgram(const std::string& name);

}  // namespace anyorder::launcher
