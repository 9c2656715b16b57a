// `anyorder status`: what a run is doing, in one screen; and the same as JSON (README.md lists the
// members).

#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

#include "launcher/inspect/status_facts.h"

namespace anyorder::launcher {

struct StatusOptions {
  std::string run_dir;
  bool json = false;
  std::optional<double> watch_seconds =
      std::nullopt;  // look again after so long, until the run is done
  // Of `inspect --verify`: checkpoints of the run whose every byte was compared with its checksum.
  std::optional<int64_t> verified_checkpoints = std::nullopt;
};

// Prints to stdout. InvalidArgument if the directory holds no run.
absl::Status PrintStatus(const StatusOptions& options);

// The screen: at most 24 lines for a run on a few nodes. Control characters in names and messages
// are left out.
std::string StatusScreen(const StatusFacts& facts);

// The screen in one line, for logs.
std::string StatusLine(const StatusFacts& facts);

// The object of --json in one line.
std::string StatusJsonLine(const StatusFacts& facts);

// "1 d 3 h", "5 min 12 s", "4.2 s": two units at most.
std::string HumanDuration(absl::Duration duration);

}  // namespace anyorder::launcher
