// Whether the ranks of a start still run, seen from outside. Ranks report each other where they
// wait for one another (dist/collective_watch.h); this also sees one rank alone, and all of them
// stopped.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace anyorder::launcher {

struct RankWatchdogOptions {
  std::string heartbeats;  // directory (dist/heartbeat.h)
  int64_t ranks = 0;
  int64_t attempt = 0;
  absl::Duration report_after;  // silence that is worth a warning
  absl::Duration exit_after;    // and after which only a new start helps
};

// Times silence by this process's own monotonic clock, so that neither another node's clock nor a
// suspended machine counts.
class RankWatchdog {
 public:
  explicit RankWatchdog(const RankWatchdogOptions& options);

  // Call often; looks a few times per report_after. True if a rank was silent for exit_after; each
  // silence is warned of once.
  bool Poll();

 private:
  struct Seen {
    int64_t ticks = -1;
    absl::Duration since;  // when they last changed, by the monotonic clock
    bool reported = false;
  };

  const RankWatchdogOptions options_;
  std::vector<Seen> seen_;
  absl::Duration last_look_;
};

}  // namespace anyorder::launcher
