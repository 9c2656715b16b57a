#include "dist/collective_watch.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/liveness/exit_after.h"

namespace anyorder::dist {
namespace {

CollectiveWatchOptions WithDefaults(CollectiveWatchOptions options) {
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

}  // namespace

CollectiveWatch::CollectiveWatch(CollectiveWatchOptions options, int rank, std::string host)
    : options_(WithDefaults(std::move(options))),
      rank_(rank),
      host_(std::move(host)),
      thread_([this] { Run(); }) {}

CollectiveWatch::~CollectiveWatch() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void CollectiveWatch::SetPhase(absl::string_view phase) {
  const MutexLock lock(&phase_mutex_);
  phase_ = std::string(phase);
  if (options_.page != nullptr) options_.page->SetPhase(phase);
}

void CollectiveWatch::set_probe(std::function<absl::Status()> probe) {
  const MutexLock lock(&mutex_);
  probe_ = std::move(probe);
  is_new_probe_ = true;
}

void CollectiveWatch::GiveUp(const absl::Status& why, const std::function<void()>& before_exit) {
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

void CollectiveWatch::Run() {
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

}  // namespace anyorder::dist
