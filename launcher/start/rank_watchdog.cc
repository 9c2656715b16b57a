#include "launcher/start/rank_watchdog.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "dist/heartbeat.h"

namespace anyorder::launcher {
namespace {

constexpr int kLooksPerReport = 4;

absl::Duration MonotonicNow() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

RankWatchdog::RankWatchdog(const RankWatchdogOptions& options)
    : options_(options), seen_(options.ranks), last_look_(MonotonicNow()) {}

bool RankWatchdog::Poll() {
  const absl::Duration now = MonotonicNow();
  const absl::Duration period =
      std::min(options_.report_after, options_.exit_after) / kLooksPerReport;
  const absl::Duration gap = now - last_look_;
  if (gap < period) return false;
  last_look_ = now;
  // This process stood still itself, and so probably did the ranks: that was no silence of theirs.
  const absl::Duration own_silence = gap > 4 * period ? gap : absl::ZeroDuration();
  bool is_lost = false;
  for (size_t rank = 0; rank < seen_.size(); ++rank) {
    Seen& seen = seen_[rank];
    const auto beat = dist::ReadRankBeat(options_.heartbeats, static_cast<int>(rank));
    // Before its first beat and after its regular end a rank owes none.
    if (!beat.ok() || beat->attempt != options_.attempt || beat->has_ended) continue;
    seen.since += own_silence;
    if (beat->ticks != seen.ticks) {
      seen = {beat->ticks, now, false};
      continue;
    }
    const absl::Duration silence = now - seen.since;
    if (silence < options_.report_after) continue;
    if (!seen.reported) {
      LogWarning(absl::StrCat(beat->ToString(), ", hangs: no heartbeat for ",
                              absl::FormatDuration(absl::Trunc(silence, absl::Milliseconds(1)))));
      seen.reported = true;
    }
    is_lost = is_lost || silence >= options_.exit_after;
  }
  return is_lost;
}

}  // namespace anyorder::launcher
