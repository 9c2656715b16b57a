#include "core/train/run/setup_progress.h"

#include <string_view>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/train/run/stop_signal.h"

namespace anyorder {

absl::Status SetupProgress::CheckSignal() const {
  if (StopSignal() == 0) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat(StopWords(), " in phase '", phase_,
                                           "'; no step was trained, so nothing was saved"));
}

absl::Status SetupProgress::Begin(const std::string& phase) {
  phase_ = phase;
  unit_ = "";
  done_ = 0;
  began_ = told_ = MonotonicNow();
  if (watch_ != nullptr) watch_->SetPhase(phase);
  return CheckSignal();
}

absl::Status SetupProgress::Advance(int64_t amount, int64_t total, const char* unit) {
  if (std::string_view(unit) != unit_) done_ = 0;
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

}  // namespace anyorder
