// One start of the ranks: checkpoint service, ranks, and watching both until the ranks end.

#pragma once

#include "absl/status/statusor.h"

#include "launcher/process/output_relay.h"
#include "launcher/start/launch_backend.h"

namespace anyorder::launcher {

// From now on SIGTERM, SIGINT and SIGUSR1 ask the ranks to checkpoint and stop. After a second one
// nobody waits for the commit of what is staged, which the service finishes alone; a third one ends
// the ranks at once.
void CatchLaunchSignals();
// How many of them came.
int NumLaunchSignals();

// The exit status of the ranks, when they are gone and the service has finished what they had
// staged. If the service dies, the ranks are ended (137). 75 without any rank if a stop was asked
// for before. Errors: AlreadyExists if someone else's service owns the run directory; Unavailable
// if none can be started.
absl::StatusOr<int> RunAttempt(const AttemptOptions& options, LaunchBackend& backend,
                               OutputRelay& output);

}  // namespace anyorder::launcher
