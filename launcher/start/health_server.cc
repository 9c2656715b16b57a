#include "launcher/start/health_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "launcher/process/host_names.h"

namespace anyorder::launcher {
namespace {

constexpr int kTickMs = 100;
constexpr absl::Duration kSpeakEvery = absl::Seconds(1);
constexpr absl::Duration kTokenLimit = absl::Seconds(5);
// Strangers may connect, too.
constexpr size_t kMaxConnections = 4096;
// A service that does not read is told nothing more; it will be silent, too.
constexpr int64_t kMaxUnsentBytes = 1 << 20;

absl::StatusOr<std::string> RandomToken() {
  char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return ErrnoStatus("get", "random bytes");
  return absl::BytesToHexString(absl::string_view(bytes, sizeof bytes));
}

// In the same time wherever they differ.
bool AreEqual(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
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
  if (::rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus("rename", path);
  return absl::OkStatus();
}

// Fills in the port. "::" hears IPv4, too.
absl::StatusOr<UniqueFd> ListenAt(const std::string& address, ckpt::LauncherEndpoint& endpoint) {
  ASSIGN_OR_RETURN(ckpt::SocketAddress bound, ckpt::ParseSocketAddress(address, 0));
  UniqueFd fd(::socket(bound.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int off = 0;
  if (fd.valid()) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (!fd.valid() || ::bind(fd.get(), bound.get(), bound.size) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) != 0) {
    return ErrnoStatus("listen", "a port for the reports of checkpoint services");
  }
  // IPv6 has it in the same place.
  endpoint.port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port);
  return fd;
}

absl::StatusOr<UniqueFd> Listen(bool is_distributed, ckpt::LauncherEndpoint& endpoint) {
  if (!is_distributed) return ListenAt("127.0.0.1", endpoint);
  absl::StatusOr<UniqueFd> both = ListenAt("::", endpoint);
  return both.ok() ? std::move(both) : ListenAt("0.0.0.0", endpoint);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HealthServer>> HealthServer::Start(
    const HealthServerOptions& options) {
  ckpt::LauncherEndpoint endpoint;
  ASSIGN_OR_RETURN(endpoint.token, RandomToken());
  ASSIGN_OR_RETURN(UniqueFd listener, Listen(options.is_distributed, endpoint));
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
      new HealthServer(options, std::move(endpoint), std::move(listener)));
}

HealthServer::HealthServer(const HealthServerOptions& options, ckpt::LauncherEndpoint endpoint,
                           UniqueFd listener)
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

liveness::RunHealth HealthServer::Newest() const {
  const MutexLock lock(&mutex_);
  liveness::RunHealth health;
  for (const auto& [node, report] : newest_) health.nodes.push_back(report);
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
  for (bool is_last = false; !is_last;) {
    Wait();
    {
      const MutexLock lock(&mutex_);
      is_last = stopping_;
    }
    Accept();
    const absl::Time now = MonotonicNow();
    const bool is_due = now - spoke_ >= kSpeakEvery;
    if (is_due) spoke_ = now;
    for (Service& service : services_) {
      Serve(service);
      if (!service.is_known && now - service.since > kTokenLimit)
        service.fault = absl::UnavailableError("it did not show the token");
      if (service.is_known && is_due && service.channel.unsent_bytes() < kMaxUnsentBytes)
        service.fault.Update(
            service.channel.Post({options_.run_id, options_.attempt, ckpt::Alive{}}));
      Speak(service);
    }
    services_.remove_if([](const Service& service) { return !service.fault.ok(); });
  }
}

void HealthServer::Wait() const {
  std::vector<pollfd> items = {{listener_.get(), POLLIN, 0}};
  for (const Service& service : services_) items.push_back({service.channel.fd(), POLLIN, 0});
  ::poll(items.data(), items.size(), kTickMs);
}

void HealthServer::Accept() {
  while (services_.size() < kMaxConnections) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) return;
    services_.push_back({ckpt::Channel(std::move(fd)), MonotonicNow(), false, false, {}});
  }
}

void HealthServer::Serve(Service& service) {
  while (service.fault.ok()) {
    const absl::StatusOr<std::optional<ckpt::Message>> message = service.channel.TryReceive();
    if (!message.ok()) {
      service.fault = message.status();
    } else if (!message->has_value()) {
      return;
    } else {
      Take(service, **message);
    }
  }
}

void HealthServer::Take(Service& service, const ckpt::Message& message) {
  const bool is_ours = message.run_id == options_.run_id && message.attempt == options_.attempt;
  if (!service.is_known) {
    const auto* attach = std::get_if<ckpt::Attach>(&message.body);
    service.is_known = is_ours && attach != nullptr && AreEqual(attach->token, endpoint_.token);
    if (service.is_known) return;
    service.fault = absl::PermissionDeniedError("wrong token");
    if (!std::exchange(has_warned_, true))
      LogWarning("closed a connection of somebody who does not know this start's token");
    return;
  }
  const auto* report = std::get_if<ckpt::Report>(&message.body);
  if (report == nullptr) return;
  absl::StatusOr<liveness::NodeReport> parsed = liveness::ParseNodeReport(report->text);
  service.fault.Update(parsed.status());
  if (!parsed.ok()) return;
  const MutexLock lock(&mutex_);
  newest_[parsed->node] = *std::move(parsed);
}

void HealthServer::Speak(Service& service) {
  const MutexLock lock(&mutex_);
  if (!service.is_known || service.is_told || end_reason_.empty()) {
    if (service.channel.has_unsent()) service.fault.Update(service.channel.Flush());
    return;
  }
  service.is_told = true;
  service.fault.Update(
      service.channel.Post({options_.run_id, options_.attempt, ckpt::EndRanks{end_reason_}}));
}

}  // namespace anyorder::launcher
