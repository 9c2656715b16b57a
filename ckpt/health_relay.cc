#include "ckpt/health_relay.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

// A gap between two looks counts no more: one who stood still has not heard the launcher be silent.
constexpr absl::Duration kLargestStep = absl::Seconds(1);
constexpr absl::Duration kConnectLimit = absl::Seconds(1);
// A launcher that does not read gets no more until it does.
constexpr int64_t kMaxUnsentBytes = 1 << 20;

}  // namespace

HealthRelay::HealthRelay(HealthRelayOptions options)
    : options_(std::move(options)), host_(HostName()), thread_([this] { Run(); }) {}

HealthRelay::~HealthRelay() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void HealthRelay::Run() {
  const auto is_due = [this]()
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || is_due_; };
  const MutexLock lock(&mutex_);
  while (!stopping_) {
    ranks_.splice(ranks_.end(), adopted_);
    is_due_ = false;
    mutex_.Unlock();
    ReadRanks();
    if (options_.launcher) TalkToLauncher(MonotonicNow());
    EndRanksIfAsked();
    mutex_.Lock();
    mutex_.AwaitWithTimeout(is_due, options_.period);
  }
}

void HealthRelay::ReadRanks() {
  int connected = 0;
  for (auto rank = ranks_.begin(); rank != ranks_.end();) {
    // First, so that the page of a rank that has left is its last.
    rank->last.is_connected = rank->channel.TryReceive().ok();
    absl::StatusOr<liveness::RankState> state = liveness::ReadRankPage(rank->page.get());
    if (!state.ok()) {
      Note(absl::StrCat("closed a rank's connection: ", state.status().message()));
      rank = ranks_.erase(rank);
      continue;
    }
    rank->last.state = *std::move(state);
    connected += rank->last.is_connected ? 1 : 0;
    // One that connects again follows in the list.
    std::erase_if(ranks_, [&rank](const Rank& other) {
      return &other != &*rank && !other.last.is_connected &&
             other.last.state.rank == rank->last.state.rank;
    });
    ++rank;
  }
  num_ranks_ = connected;
}

liveness::NodeReport HealthRelay::Describe(absl::Time now) const {
  liveness::NodeReport report;
  report.node = options_.node;
  report.host = host_;
  report.now = now;
  const int64_t began = file_call_;
  if (began != 0) report.file_wait = now - absl::FromUnixNanos(began);
  for (const Rank& rank : ranks_) report.ranks.push_back(rank.last);
  const MutexLock lock(&mutex_);
  report.is_serving = is_serving_;
  return report;
}

void HealthRelay::TalkToLauncher(absl::Time now) {
  silence_ += std::min(now - last_look_, kLargestStep);
  connected_for_ += std::min(now - last_look_, kLargestStep);
  last_look_ = now;
  if (!launcher_) ConnectLauncher();
  if (launcher_ && !Exchange(now).ok()) launcher_.reset();
  if (std::min(silence_, connected_for_) >= options_.reconnect_after) launcher_.reset();
  if (silence_ < options_.launcher->silence_limit || !end_reason_.empty()) return;
  end_reason_ = absl::StrCat("nothing heard from the launcher at ",
                             absl::StrJoin(options_.launcher->addresses, ", "), " for ",
                             absl::FormatDuration(absl::Trunc(silence_, absl::Seconds(1))),
                             ": it, its node or the network is lost");
  Note(end_reason_);
}

// One try a round, with the next address after a failure.
void HealthRelay::ConnectLauncher() {
  const LauncherEndpoint& endpoint = *options_.launcher;
  const std::string& address = endpoint.addresses[next_address_ % endpoint.addresses.size()];
  absl::StatusOr<Channel> channel = ConnectToLauncher(address, endpoint.port, kConnectLimit);
  if (channel.ok() && Post(*channel, Attach{endpoint.token}).ok()) {
    launcher_ = *std::move(channel);
    connected_for_ = absl::ZeroDuration();
    has_failed_ = false;
    return;
  }
  ++next_address_;
  if (!std::exchange(has_failed_, true))
    Note(absl::StrCat("no connection to the launcher yet: ", channel.status().message()));
}

absl::Status HealthRelay::Exchange(absl::Time now) {
  if (launcher_->unsent_bytes() < kMaxUnsentBytes)
    RETURN_IF_ERROR(Post(*launcher_, Report{SerializeNodeReport(Describe(now))}));
  for (int taken = 0; taken < 100; ++taken) {  // then it looks whether this is over
    ASSIGN_OR_RETURN(const std::optional<Message> message, launcher_->TryReceive());
    if (!message) break;
    if (message->run_id != options_.run_id || message->attempt != options_.attempt) continue;
    silence_ = absl::ZeroDuration();
    const auto* end = std::get_if<EndRanks>(&message->body);
    if (end != nullptr && end_reason_.empty()) end_reason_ = end->reason;
  }
  return launcher_->Flush();
}

void HealthRelay::EndRanksIfAsked() {
  if (end_reason_.empty()) return;
  for (Rank& rank : ranks_)
    if (!std::exchange(rank.is_told, true)) Post(rank.channel, EndRanks{end_reason_}).IgnoreError();
}

}  // namespace anyorder::ckpt
