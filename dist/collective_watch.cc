#include "dist/collective_watch.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

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
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CollectiveWatch::SetPhase(absl::string_view phase) {
  const std::lock_guard<std::mutex> lock(phase_mutex_);
  phase_ = std::string(phase);
  if (options_.page != nullptr) options_.page->SetPhase(phase);
}

void CollectiveWatch::AddProgress(int64_t amount) {
  if (options_.page != nullptr) options_.page->AddProgress(amount);
}

void CollectiveWatch::SetTimes(const liveness::RankTimes& times) {
  if (options_.page != nullptr) options_.page->SetTimes(times);
}

void CollectiveWatch::Begin(const char* collective) {
  if (options_.page != nullptr) options_.page->Begin(collective);
}

void CollectiveWatch::End() {
  if (options_.page != nullptr) options_.page->End();
}

void CollectiveWatch::set_probe(std::function<absl::Status()> probe) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    probe_ = std::move(probe);
  }
  changed_.notify_one();
}

void CollectiveWatch::GiveUp(const absl::Status& why, const std::function<void()>& before_exit) {
  std::string phase;
  {
    const std::lock_guard<std::mutex> lock(phase_mutex_);
    phase = phase_;
  }
  options_.report(absl::StrCat("rank ", rank_, " on ", host_, ": ", why.message(), " in phase '",
                               phase, "'; giving up"));
  if (before_exit) before_exit();
  options_.exit();
}

void CollectiveWatch::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    if (!probe_) {
      changed_.wait(lock);
      continue;
    }
    if (const absl::Status status = probe_(); !status.ok()) {
      GiveUp(status, nullptr);
      probe_ = nullptr;  // only a test's exit returns
      continue;
    }
    changed_.wait_for(lock, absl::ToChronoNanoseconds(options_.probe_period));
  }
}

}  // namespace anyorder::dist
