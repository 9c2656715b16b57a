// Writes into the rank's page in which phase and collective it is, for others to judge
// (core/liveness), and asks several times a second whether messages that run without the host are
// well.

#pragma once

#include <unistd.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/status.h"
#include "core/liveness/exit_after.h"
#include "core/liveness/rank_page.h"

namespace anyorder::dist {

struct CollectiveWatchOptions {
  liveness::RankPage* page = nullptr;  // borrowed; null: nobody is told
  absl::Duration probe_period = absl::Milliseconds(250);
  absl::Duration exit_limit = absl::Seconds(5);  // for the line and what is to do before the exit

  // Where the line goes. Default: LogWarning (which names host and rank).
  std::function<void(const std::string&)> report;
  // What ends the process. Default: _exit(kExitIo) at once, without MPI_Finalize or destructors,
  // because those may wait for the lost peer too; the launcher sees the status and restarts.
  std::function<void()> exit;
};

inline CollectiveWatchOptions WithDefaults(CollectiveWatchOptions options) {
  const bool ends_process = !options.exit;
  if (ends_process) options.exit = [] { _exit(kExitIo); };
  if (!options.report) {
    options.report = [ends_process, limit = options.exit_limit](const std::string& line) {
      if (ends_process) liveness::ExitAfter(limit, kExitIo);
      LogWarning(line);
    };
  }
  return options;
}

// Thread-safe between the one thread that calls collectives and its own. Begin and End are called
// by Communicator.
class CollectiveWatch {
 public:
  CollectiveWatch(CollectiveWatchOptions options, int rank, std::string host)
      : options_(WithDefaults(std::move(options))),
        rank_(rank),
        host_(std::move(host)),
        thread_([this] { Run(); }) {}
  ~CollectiveWatch() {
    {
      const MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }
  CollectiveWatch(const CollectiveWatch&) = delete;
  CollectiveWatch& operator=(const CollectiveWatch&) = delete;

  // What the program is doing ("step 12, gradients"): appears in reports.
  void SetPhase(absl::string_view phase) {
    const MutexLock lock(&phase_mutex_);
    phase_ = std::string(phase);
    if (options_.page != nullptr) options_.page->SetPhase(phase);
  }
  // In a phase that is long: it goes on.
  void AddProgress(int64_t amount) {
    if (options_.page != nullptr) options_.page->AddProgress(amount);
  }
  void SetTimes(const liveness::RankTimes& times) {
    if (options_.page != nullptr) options_.page->SetTimes(times);
  }

  void Begin(const char* collective) {
    if (options_.page != nullptr) options_.page->Begin(collective);
  }
  void End() {
    if (options_.page != nullptr) options_.page->End();
  }

  // What the watch's thread asks several times a second, whatever the rank does: whether messages
  // that run without the host are well. An error ends the rank. Null: nobody to ask; returns when
  // the last question is answered.
  void set_probe(std::function<absl::Status()> probe) {
    const MutexLock lock(&mutex_);
    probe_ = std::move(probe);
    is_new_probe_ = true;
  }
  // Ends the rank for an error that its own thread met: the line, `before_exit`, the exit. Touches
  // no files, and what stands still does not keep the process from its end.
  void GiveUp(const absl::Status& why, const std::function<void()>& before_exit) {
    std::string phase;
    {
      const MutexLock lock(&phase_mutex_);
      phase = phase_;
    }
    options_.report(absl::StrCat("rank ", rank_, " on ", host_, ": ", why.message(), " in phase '",
                                 phase, "'; giving up"));
    if (before_exit) before_exit();
    options_.exit();
  }

 private:
  void Run() {
    const MutexLock lock(&mutex_);
    while (!stopping_) {
      is_new_probe_ = false;
      const absl::Status status = probe_ ? probe_() : absl::OkStatus();
      if (!status.ok()) {
        GiveUp(status, nullptr);
        probe_ = nullptr;  // only a test's exit returns
      }
      mutex_.AwaitWithTimeout(
          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || is_new_probe_; },
          probe_ ? options_.probe_period : absl::InfiniteDuration());
    }
  }

  const CollectiveWatchOptions options_;
  const int rank_;
  const std::string host_;

  Mutex mutex_;  // held while the probe is asked
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<absl::Status()> probe_ ABSL_GUARDED_BY(mutex_);
  bool is_new_probe_ ABSL_GUARDED_BY(mutex_) = false;  // to be asked at once
  Mutex phase_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  std::string phase_ ABSL_GUARDED_BY(phase_mutex_) = "start";
  std::thread thread_;  // last: uses all of the above
};

}  // namespace anyorder::dist
