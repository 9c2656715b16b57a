// One start of the ranks: checkpoint service, ranks, and watching both until the ranks end.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "core/train/resume.h"
#include "core/train/run_config.h"
#include "launcher/output_relay.h"
#include "launcher/run_identity.h"

namespace anyorder::launcher {

struct IncarnationOptions {
  std::string run_dir;
  RunIdentity identity;
  int64_t ranks = 1;
  ResumeMode resume = ResumeMode::kAuto;
  CheckpointConfig checkpoint;
  DistConfig dist;  // how long a rank may be silent
  bool progress_on_terminal = false;
};

// From now on SIGTERM, SIGINT and SIGUSR1 ask the ranks to checkpoint and stop. After a second one nobody waits for the commit of
// what is staged, which the service finishes alone; a third one ends the ranks at once.
void CatchLaunchSignals();

// The exit status of the ranks, when they are gone and the service has finished what they had staged. If the service
// dies, the ranks are ended (137). 75 without any rank if a stop was asked for before. Errors: AlreadyExists if someone else's service owns the run directory; Unavailable if none can be started.
absl::StatusOr<int> RunIncarnation(const IncarnationOptions& options, OutputRelay& output);

}  // namespace anyorder::launcher
