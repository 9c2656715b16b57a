// Soft stop: SIGTERM, SIGINT and SIGUSR1 ask for a checkpoint and an orderly end. The step loop
// carries the wish to all ranks in its reduction, so that they stop after the same step.

#pragma once

#include <csignal>
#include <initializer_list>
#include <string>

namespace anyorder {

// Blocks these signals in the calling thread and those it starts later: one of them waits for them.
sigset_t BlockSignals(std::initializer_list<int> numbers);

// From now on those signals and SIGUSR2 only set flags, which are cleared. A thread waits for them;
// they are blocked in the calling thread and those it starts later, so that they interrupt no
// computation: call this before any other thread is started.
void InstallStopSignals();
// The signal that came first, or 0.
int StopSignal();
// "SIGTERM" of 15.
std::string SignalName(int signal_number);
// "asked to stop by SIGTERM"; without a name for SIGUSR1, which the launcher sends to ranks
// whatever signal it got.
std::string StopWords();
// Whether to leave once the checkpoint is staged, without waiting for its commit: SIGUSR2 says so,
// or SIGTERM or SIGINT after another stop signal. SIGUSR1 may come again and changes nothing.
bool StopIsUrgent();

}  // namespace anyorder
