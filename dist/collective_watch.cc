#include "dist/collective_watch.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder::dist {
namespace {

CollectiveWatchOptions WithDefaults(CollectiveWatchOptions options) {
  if (!options.report) options.report = [](const std::string& line) { LogWarning(line); };
  if (!options.exit) options.exit = [] { _exit(kExitIo); };
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
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CollectiveWatch::SetPhase(absl::string_view phase) {
  const std::lock_guard<std::mutex> lock(mutex_);
  phase_ = std::string(phase);
}

void CollectiveWatch::Begin(const char* collective) {
  const std::lock_guard<std::mutex> lock(mutex_);
  collective_ = collective;
  ++number_;
  begun_ = absl::Now();
}

void CollectiveWatch::End() {
  const std::lock_guard<std::mutex> lock(mutex_);
  collective_ = nullptr;
}

std::string CollectiveWatch::Describe(absl::Duration elapsed) const {
  return absl::StrCat("rank ",
                      rank_,
                      " on ",
                      host_,
                      ": collective ",
                      number_,
                      " (",
                      collective_,
                      ") has run for ",
                      absl::FormatDuration(absl::Trunc(elapsed, absl::Milliseconds(1))),
                      " in phase '",
                      phase_,
                      "'");
}

// Polls instead of being woken by every Begin: a step makes dozens of collectives and a limit is seconds.
void CollectiveWatch::Run() {
  const absl::Duration period = std::min(options_.report_after, options_.exit_after) / 4;
  std::unique_lock<std::mutex> lock(mutex_);
  int64_t reported = 0;
  while (!stopping_) {
    changed_.wait_for(lock, absl::ToChronoNanoseconds(period));
    if (stopping_ || collective_ == nullptr) continue;
    const absl::Duration elapsed = absl::Now() - begun_;
    if (elapsed >= options_.exit_after) {
      options_.report(absl::StrCat(Describe(elapsed), "; a peer is lost or stuck, giving up"));
      options_.exit();
      collective_ = nullptr;  // only a test's exit returns
    } else if (elapsed >= options_.report_after && reported != number_) {
      reported = number_;
      options_.report(Describe(elapsed));
    }
  }
}

}  // namespace anyorder::dist
