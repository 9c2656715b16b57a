// Soft stop: SIGTERM, SIGINT and SIGUSR1 ask for a checkpoint and an orderly end. The step loop carries the wish to all
// ranks in its reduction, so that they stop after the same step.

#pragma once

namespace anyorder {

// From now on those signals only set a flag, which is cleared.
void InstallStopSignals();
// The signal that came first, or 0.
int StopSignal();

}  // namespace anyorder
