// Stop requests to the launcher, and the way out of a launcher that a file system holds.

#pragma once

#include <string>

#include "absl/time/time.h"

namespace anyorder::launcher {

// From now on SIGTERM, SIGINT and SIGUSR1 ask the ranks to checkpoint and stop. After a second one
// nobody waits for the commit of what is staged, which the service finishes alone; a third one ends
// the ranks at once. A thread takes them, so that they are heard whatever this one waits for; they
// are blocked in this thread and those that it starts: call this before any other is started.
void CatchLaunchSignals();

// How many of them came. Every loop that obeys them asks this several times a second; where nobody
// asks, the launcher is held in a call, and PhaseLimits count.
int NumLaunchSignals();
// The first of them: "SIGINT". Empty before.
std::string FirstLaunchSignal();

// For how long the launcher may be held in one call, which no signal can interrupt: of a file
// system that does not answer, for instance. Time in which the process was stopped is left out.
struct PhaseLimits {
  absl::Duration held = absl::Minutes(10);           // then the process ends with 74
  absl::Duration after_request = absl::Seconds(10);  // since a signal came: then with 75
  bool has_written = true;  // else it may be ended at any time, and the line says so
};
// What the launcher does from now on, for the line that it ends with: "reading 'a.toml'".
void EnterPhase(const std::string& name, const PhaseLimits& limits);

}  // namespace anyorder::launcher
