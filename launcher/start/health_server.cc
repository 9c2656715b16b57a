#include "launcher/start/health_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"

#include "core/base/file_system.h"
#include "core/base/log.h"
#include "core/base/machine_memory.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "launcher/process/host_names.h"

namespace anyorder::launcher {
namespace {

constexpr int kTickMs = 100;
constexpr absl::Duration kSpeakEvery = absl::Seconds(1);
constexpr size_t kMaxStrangers = 16;
// Connections and messages between two looks at everybody else.
constexpr int kMaxAccepted = 8, kMaxTaken = 100;
// That a launcher may open, strangers included, but for services: one that was cut off has two
// connections for a while.
constexpr int64_t kLauncherFiles = 128;
// A service that does not read is told nothing more; it will be silent, too.
constexpr int64_t kMaxUnsentBytes = 1 << 20;

absl::StatusOr<std::string> RandomToken() {
  char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return ErrnoStatus("get", "random bytes");
  return absl::BytesToHexString(absl::string_view(bytes, sizeof bytes));
}

// Readable by this user only; other nodes do not see the name before what is in it.
absl::Status WritePrivately(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  ::unlink(temporary.c_str());
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus("open", temporary);
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return ErrnoStatus("write", temporary);
  if (::fsync(fd.get()) != 0) return ErrnoStatus("sync", temporary);
  return FileSystem::Posix()->Rename(temporary, path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HealthServer>> HealthServer::Start(
    const HealthServerOptions& options) {
  ckpt::LauncherEndpoint endpoint;
  ASSIGN_OR_RETURN(endpoint.token, RandomToken());
  const absl::Status raised =
      RaiseOpenFiles(kLauncherFiles + 2 * options.num_nodes, "the launcher");
  if (!raised.ok()) LogWarning(raised.message());
  absl::StatusOr<ListeningSocket> listener =
      ListeningSocket::Open(options.is_distributed ? "::" : "127.0.0.1", 0);
  if (!listener.ok() && options.is_distributed) listener = ListeningSocket::Open("0.0.0.0", 0);
  RETURN_IF_ERROR(Annotate(listener.status(), "for the reports of checkpoint services"));
  endpoint.port = listener->port();
  if (options.is_distributed) {
    for (const OwnAddress& own : OwnAddresses())
      if (own.is_for_others) endpoint.addresses.push_back(own.text);
    endpoint.silence_limit = options.silence_limit;
  }
  // Last, for services on the same machine where it has no other.
  endpoint.addresses.emplace_back("127.0.0.1");
  RETURN_IF_ERROR(WritePrivately(ckpt::LauncherEndpointPath(options.run_dir, options.attempt),
                                 ckpt::SerializeLauncherEndpoint(endpoint)));
  return std::unique_ptr<HealthServer>(
      new HealthServer(options, std::move(endpoint), *std::move(listener)));
}

HealthServer::HealthServer(const HealthServerOptions& options, ckpt::LauncherEndpoint endpoint,
                           ListeningSocket listener)
    : options_(options),
      endpoint_(std::move(endpoint)),
      listener_(std::move(listener)),
      thread_([this] { Run(); }) {}

HealthServer::~HealthServer() {
  EndRanks("its launcher has ended this start");
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
  ::unlink(ckpt::LauncherEndpointPath(options_.run_dir, options_.attempt).c_str());
}

std::vector<liveness::NodeReport> HealthServer::Newest() const {
  const MutexLock lock(&mutex_);
  std::vector<liveness::NodeReport> health;
  for (const auto& [node, report] : newest_) health.push_back(report);
  return health;
}

bool HealthServer::AreServing(size_t num_nodes) const {
  const MutexLock lock(&mutex_);
  return newest_.size() >= num_nodes &&
         std::all_of(newest_.begin(), newest_.end(),
                     [](const auto& node) { return node.second.is_serving; });
}

void HealthServer::EndRanks(const std::string& reason) {
  const MutexLock lock(&mutex_);
  if (end_reason_.empty()) end_reason_ = reason;
}

void HealthServer::Run() {
  std::string said;
  for (bool is_last = false; !is_last;) {
    Wait();
    std::string reason;
    {
      const MutexLock lock(&mutex_);
      is_last = stopping_;
      reason = end_reason_;
    }
    const absl::Time now = MonotonicNow();
    HearStrangers(now);
    const bool is_due = is_last || reason != said || now - spoke_ >= kSpeakEvery;
    if (is_due) spoke_ = now;
    said = reason;
    ckpt::Message word{options_.run_id, options_.attempt, ckpt::Alive{}};
    if (!reason.empty()) word.body = ckpt::EndRanks{reason};
    services_.remove_if([&](Service& service) {
      absl::Status status = Serve(service, now);
      ckpt::Channel& channel = service.channel;
      if (is_due)
        status.Update(channel.unsent_bytes() < kMaxUnsentBytes ? channel.Post(word)
                                                               : channel.Flush());
      return !status.ok() || now - service.heard > options_.member_limit;
    });
  }
}

void HealthServer::Wait() const {
  std::vector<pollfd> items = {listener_.PollItem()};
  for (const auto* peers : {&strangers_, &services_})
    for (const Service& peer : *peers) items.push_back({peer.channel.fd(), POLLIN, 0});
  ::poll(items.data(), items.size(), kTickMs);
}

// A service shows the token as soon as it is connected. One that is pushed out all the same calls
// again (PROTOCOL.md, "Who is alive").
void HealthServer::HearStrangers(absl::Time now) {
  for (int i = 0; i < kMaxAccepted; ++i) {
    UniqueFd fd = listener_.Accept();
    if (!fd.valid()) break;
    strangers_.push_back({ckpt::Channel(std::move(fd), ckpt::kMaxStrangerBytes), now});
  }
  std::list<Service> closed;  // at the end, when that was said
  for (auto next = strangers_.begin(); next != strangers_.end();) {
    const auto stranger = next++;
    const absl::StatusOr<std::optional<ckpt::Message>> said = stranger->channel.TryReceive();
    if (said.ok() && !said->has_value()) continue;
    if (said.ok() && HasToken(**said)) {
      stranger->channel.set_max_bytes(ckpt::kMaxMessageBytes);
      services_.splice(services_.end(), strangers_, stranger);
    } else {
      closed.splice(closed.end(), strangers_, stranger);
    }
  }
  const size_t most = listener_.is_pausing() ? 0 : kMaxStrangers;
  while (strangers_.size() > most ||
         (!strangers_.empty() && now - strangers_.front().heard > options_.stranger_limit))
    closed.splice(closed.end(), strangers_, strangers_.begin());
  if (!closed.empty() && !std::exchange(has_warned_, true))
    LogWarning("closed a connection of somebody who does not know this start's token");
}

bool HealthServer::HasToken(const ckpt::Message& message) const {
  const auto* attach = std::get_if<ckpt::Attach>(&message.body);
  return message.run_id == options_.run_id && message.attempt == options_.attempt &&
         attach != nullptr && IsSecret(attach->token, endpoint_.token);
}

absl::Status HealthServer::Serve(Service& service, absl::Time now) {
  for (int taken = 0; taken < kMaxTaken; ++taken) {
    ASSIGN_OR_RETURN(const std::optional<ckpt::Message> message, service.channel.TryReceive());
    if (!message) break;
    service.heard = now;
    const auto* report = std::get_if<ckpt::Report>(&message->body);
    if (report == nullptr) continue;
    ASSIGN_OR_RETURN(liveness::NodeReport parsed, liveness::ParseNodeReport(report->text));
    const MutexLock lock(&mutex_);
    newest_[parsed.node] = std::move(parsed);
  }
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
