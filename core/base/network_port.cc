#include "core/base/network_port.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder {

absl::StatusOr<ListeningSocket> ListeningSocket::Open(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string where = absl::StrCat("cannot listen at ", host, " port ", port, ": ");
  const int error = ::getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) return Unavailable(where, ::gai_strerror(error));
  const absl::Cleanup is_used = [found] { ::freeaddrinfo(found); };
  const int is_reused = port != 0 ? 1 : 0, off = 0;
  for (const addrinfo* it = found; it != nullptr; it = it->ai_next) {
    UniqueFd fd(::socket(it->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) continue;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &is_reused, sizeof is_reused);
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(fd.get(), it->ai_addr, it->ai_addrlen) != 0) continue;
    if (::listen(fd.get(), SOMAXCONN) == 0) return ListeningSocket(std::move(fd));
  }
  return Unavailable(where, std::strerror(errno));
}

int ListeningSocket::port() const {
  sockaddr_in6 bound{};  // IPv4 has it in the same place
  socklen_t bytes = sizeof bound;
  ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&bound), &bytes);
  return ntohs(bound.sin6_port);
}

UniqueFd ListeningSocket::Accept() {
  while (!is_pausing()) {
    UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid() || errno == EAGAIN) return fd;
    // Who connected left before it was accepted.
    if (errno == ECONNABORTED || errno == EINTR) continue;
    const std::string reason = std::strerror(errno);
    const absl::Time now = MonotonicNow();
    next_accept_ = now + absl::Milliseconds(100);
    if (now < next_warning_) break;
    next_warning_ = now + absl::Minutes(1);
    LogWarning(absl::StrCat("cannot accept connections: ", reason, "; clients wait until it can"));
  }
  return UniqueFd();
}

bool IsSecret(absl::string_view said, absl::string_view secret) {
  unsigned char difference = said.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < said.size(); ++i)
    difference |= static_cast<unsigned char>(said[i] ^ secret[i % secret.size()]);
  return difference == 0;
}

}  // namespace anyorder
