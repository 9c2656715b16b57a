#include "dist/collective_watch.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "dist/heartbeat.h"

namespace anyorder::dist {
namespace {

constexpr absl::Duration kProbePeriod = absl::Milliseconds(250);

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
  if (options_.heartbeat != nullptr) options_.heartbeat->SetPhase(phase);
}

void CollectiveWatch::Begin(const char* collective) {
  const std::lock_guard<std::mutex> lock(mutex_);
  collective_ = collective;
  ++number_;
  begun_ = MonotonicNow();
  if (options_.heartbeat != nullptr) options_.heartbeat->Begin(collective, number_);
}

void CollectiveWatch::End() {
  const std::lock_guard<std::mutex> lock(mutex_);
  collective_ = nullptr;
  if (options_.heartbeat != nullptr) options_.heartbeat->End();
}

void CollectiveWatch::set_probe(std::function<absl::Status()> probe) {
  const std::lock_guard<std::mutex> probe_lock(probe_mutex_);
  probe_ = std::move(probe);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    has_probe_ = probe_ != nullptr;
  }
  changed_.notify_one();
}

void CollectiveWatch::GiveUp(const absl::Status& why, const std::function<void()>& before_exit) {
  std::string phase;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    phase = phase_;
  }
  options_.report(absl::StrCat("rank ", rank_, " on ", host_, ": ", why.message(), " in phase '",
                               phase, "'; giving up"));
  if (before_exit) before_exit();
  options_.exit();
}

bool CollectiveWatch::AskProbe() {
  const std::lock_guard<std::mutex> lock(probe_mutex_);
  if (probe_ == nullptr) return true;
  const absl::Status status = probe_();
  if (status.ok()) return true;
  GiveUp(status, nullptr);
  probe_ = nullptr;  // only a test's exit returns
  return false;
}

std::string CollectiveWatch::Describe(absl::Duration elapsed) const {
  return absl::StrCat("rank ", rank_, " on ", host_, ": collective ", number_, " (", collective_,
                      ") has run for ",
                      absl::FormatDuration(absl::Trunc(elapsed, absl::Milliseconds(1))),
                      " in phase '", phase_, "'");
}

// A rank that runs ticks twice within the silence that counts as none.
std::string CollectiveWatch::DescribeMissing() const {
  if (options_.heartbeat == nullptr) return "";
  options_.heartbeat->Tick();  // it is not this rank that is missing
  const std::string missing =
      options_.heartbeat->DescribeMissing(number_, options_.report_after / 2);
  return missing.empty() ? "; all ranks run and are in it" : absl::StrCat("; missing: ", missing);
}

// Polls instead of being woken by every Begin: a step makes dozens of collectives and a limit is
// seconds.
void CollectiveWatch::Run() {
  const absl::Duration period = std::min(options_.report_after, options_.exit_after) / 4;
  std::unique_lock<std::mutex> lock(mutex_);
  int64_t reported = 0;
  while (!stopping_) {
    if (options_.heartbeat != nullptr) options_.heartbeat->Tick();
    if (options_.heartbeat != nullptr && options_.others_are_elsewhere) {
      lock.unlock();  // a slow disk must not hold up a collective
      options_.heartbeat->Flush();
      lock.lock();
      if (stopping_) return;
    }
    changed_.wait_for(
        lock, absl::ToChronoNanoseconds(has_probe_ ? std::min(period, kProbePeriod) : period));
    if (!stopping_ && has_probe_) {
      lock.unlock();
      const bool is_well = AskProbe();
      lock.lock();
      if (!is_well) has_probe_ = false;
    }
    if (stopping_ || collective_ == nullptr) continue;
    const absl::Duration elapsed = MonotonicNow() - begun_;
    if (elapsed >= options_.exit_after) {
      options_.report(absl::StrCat(Describe(elapsed), DescribeMissing(),
                                   "; a peer is lost or stuck, giving up"));
      options_.exit();
      collective_ = nullptr;  // only a test's exit returns
    } else if (elapsed >= options_.report_after && reported != number_) {
      reported = number_;
      options_.report(Describe(elapsed) + DescribeMissing());
    }
  }
}

}  // namespace anyorder::dist
