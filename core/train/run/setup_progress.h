// What a rank says of its set-up where that is long, and how it notices a stop signal in it.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/train/run/stop_signal.h"
#include "dist/collective_watch.h"

namespace anyorder {

// Used by one thread. Both members return Cancelled once a stop signal came (stop_signal.h): the
// rank has nothing to save then, and takes the error to the others.
class SetupProgress {
 public:
  // `tells`: whether this rank prints, which one of them should; it does so for phases that are
  // longer than `silence`. `watch` is borrowed and may be null.
  SetupProgress(bool tells, absl::Duration silence, dist::CollectiveWatch* watch)
      : tells_(tells), silence_(silence), watch_(watch) {}

  // The next phase: "set-up of the network".
  absl::Status Begin(const std::string& phase) {
    phase_ = phase;
    unit_ = "";
    done_ = 0;
    began_ = told_ = MonotonicNow();
    if (watch_ != nullptr) watch_->SetPhase(phase);
    return CheckSignal();
  }
  // So much more of it is done, of `total` (0: unknown); `unit` is what the numbers count: "MiB".
  absl::Status Advance(int64_t amount, int64_t total, const std::string& unit) {
    if (unit != unit_) done_ = 0;
    unit_ = unit;
    done_ += amount;
    if (watch_ != nullptr) watch_->AddProgress(amount);
    const absl::Time now = MonotonicNow();
    if (tells_ && now - told_ >= silence_) {
      told_ = now;
      Log(absl::StrCat(phase_, ": ", done_, total > 0 ? absl::StrCat(" of ", total) : "", " ", unit,
                       ", ", absl::FormatDuration(absl::Trunc(now - began_, absl::Seconds(1)))));
    }
    return CheckSignal();
  }

 private:
  absl::Status CheckSignal() const {
    if (StopSignal() == 0) return absl::OkStatus();
    return absl::CancelledError(absl::StrCat(StopWords(), " in phase '", phase_,
                                             "'; no step was trained, so nothing was saved"));
  }

  const bool tells_;
  const absl::Duration silence_;
  dist::CollectiveWatch* const watch_;
  std::string phase_;
  std::string unit_;
  int64_t done_ = 0;
  absl::Time began_ = MonotonicNow();
  absl::Time told_ = began_;
};

}  // namespace anyorder
