#include "launcher/start/launch_signals.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/mutex.h"
#include "core/base/status.h"
#include "core/train/run/stop_signal.h"

namespace anyorder::launcher {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(100);
// A gap between two looks counts no more: the process, or its machine, stood still.
constexpr absl::Duration kLargestStep = absl::Seconds(1);
constexpr absl::Duration kEchoLimit = absl::Seconds(2);

std::atomic<int> num_signals = 0;
std::atomic<int> first_signal = 0;
std::atomic<bool> was_asked = false;  // for them, since the thread last looked

Mutex phase_mutex;
PhaseLimits phase_limits ABSL_GUARDED_BY(phase_mutex);
std::string& PhaseName() ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex) {
  static std::string* const name = new std::string("starting");
  return *name;
}

// Slurm signals the batch script's children, too, and the script passes its own signal on: what
// comes so close together is one request. Two Ctrl-C are two, however fast.
class Counter {
 public:
  void Take(int signal_number) {
    const absl::Time now = MonotonicNow();
    const bool is_echo =
        num_signals > 0 && now - counted_ < kEchoLimit && (signal_number != last_ || is_slurm_job_);
    last_ = signal_number;
    if (is_echo) return;
    counted_ = now;
    if (num_signals == 0) first_signal = signal_number;
    ++num_signals;
  }

 private:
  const bool is_slurm_job_ = ::getenv("SLURM_JOB_ID") != nullptr;
  int last_ = 0;
  absl::Time counted_;
};

[[noreturn]] void End(absl::Duration held, int exit_status) {
  std::string name;
  bool has_written = true;
  {
    const MutexLock lock(&phase_mutex);
    name = PhaseName();
    has_written = phase_limits.has_written;
  }
  if (exit_status == kExitRequeue && !has_written) {
    LogWarning(absl::StrCat("stopped while ", name, "; nothing was started or written"));
  } else {
    LogWarning(absl::StrCat("ending: the launcher is held in one call for ",
                            absl::FormatDuration(absl::Trunc(held, absl::Seconds(1))), " while ",
                            name,
                            "; a file system that it needs does not answer. Start again when it "
                            "does"));
  }
  ::_exit(exit_status);  // no destructors: they would wait, too
}

void TakeSignals(const sigset_t& signals) {
  const timespec wait = absl::ToTimespec(kLookEvery);
  Counter counter;
  absl::Duration held, held_after_request;
  absl::Time looked = MonotonicNow();
  while (true) {
    const int signal_number = sigtimedwait(&signals, nullptr, &wait);
    if (signal_number > 0) counter.Take(signal_number);
    const absl::Time now = MonotonicNow();
    const absl::Duration step = std::min(now - looked, kLargestStep);
    looked = now;
    const bool is_held = !was_asked.exchange(false);
    held = is_held ? held + step : absl::ZeroDuration();
    held_after_request =
        is_held && num_signals > 0 ? held_after_request + step : absl::ZeroDuration();
    PhaseLimits limits;
    {
      const MutexLock lock(&phase_mutex);
      limits = phase_limits;
    }
    if (held_after_request > limits.after_request) End(held, kExitRequeue);
    if (held > limits.held) End(held, kExitIo);
  }
}

}  // namespace

void CatchLaunchSignals() {
  const sigset_t signals = BlockSignals({SIGTERM, SIGINT, SIGUSR1});
  ::signal(SIGPIPE, SIG_IGN);
  std::thread(TakeSignals, signals).detach();
}

int NumLaunchSignals() {
  was_asked = true;
  return num_signals;
}

std::string FirstLaunchSignal() {
  const int signal_number = first_signal;
  return signal_number == 0 ? "" : SignalName(signal_number);
}

void EnterPhase(const std::string& name, const PhaseLimits& limits) {
  was_asked = true;
  const MutexLock lock(&phase_mutex);
  PhaseName() = name;
  phase_limits = limits;
}

}  // namespace anyorder::launcher
