#include "ckpt/rank_link.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/liveness/exit_after.h"

namespace anyorder::ckpt {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(250);

RankLinkOptions WithDefaults(RankLinkOptions options) {
  if (options.end) return options;
  options.end = [](const std::string& why) {
    liveness::ExitAfter(absl::Seconds(1), kExitIo);  // stderr may be stuck
    LogWarning("ending this rank: " + why);
    ::_exit(kExitIo);
  };
  return options;
}

}  // namespace

RankLink::RankLink(RankLinkOptions options, liveness::RankPage& page)
    : options_(WithDefaults(std::move(options))), page_(page), thread_([this] { Run(); }) {}

RankLink::~RankLink() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void RankLink::Run() {
  const auto is_stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
  const MutexLock lock(&mutex_);
  while (!stopping_) {
    mutex_.Unlock();
    page_.Tick();
    if (!channel_) Connect();
    const std::string why = Listen();
    if (!why.empty()) options_.end(why);
    mutex_.Lock();
    if (!why.empty()) return;  // only a test's end does
    mutex_.AwaitWithTimeout(is_stopping, kPeriod);
  }
}

void RankLink::Connect() {
  absl::StatusOr<Channel> channel = ConnectChannel(options_.socket_path);
  if (!channel.ok()) return;
  absl::StatusOr<UniqueFd> memory = page_.Duplicate();
  if (!memory.ok()) return;
  Watch watch;
  watch.fd = *std::move(memory);
  const Message message = {options_.run_id, options_.attempt, std::move(watch)};
  if (!channel->Send(message, MonotonicNow() + kPeriod).ok()) return;
  channel_ = *std::move(channel);
  was_connected_ = true;
  away_ = absl::ZeroDuration();
}

std::string RankLink::Listen() {
  if (channel_) {
    const absl::StatusOr<std::optional<Message>> message = channel_->TryReceive();
    if (!message.ok()) channel_.reset();
    if (message.ok() && message->has_value()) {
      if (const auto* end = std::get_if<EndRanks>(&(*message)->body)) return end->reason;
    }
  }
  if (channel_ || !was_connected_) return "";
  away_ += kPeriod;
  if (away_ < options_.service_limit) return "";
  return absl::StrCat("its checkpoint service has been gone for ", absl::FormatDuration(away_),
                      ": nobody would tell this rank to end");
}

}  // namespace anyorder::ckpt
