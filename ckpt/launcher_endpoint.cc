#include "ckpt/launcher_endpoint.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "ckpt/json_values.h"
#include "core/base/status.h"

namespace anyorder::ckpt {

std::string SerializeLauncherEndpoint(const LauncherEndpoint& endpoint) {
  Json json = {{"addresses", absl::StrJoin(endpoint.addresses, ",")},
               {"port", endpoint.port},
               {"token", endpoint.token}};
  if (endpoint.silence_limit != absl::InfiniteDuration())
    json["silence_ms"] = absl::ToInt64Milliseconds(endpoint.silence_limit);
  return DumpJson(json);
}

absl::StatusOr<LauncherEndpoint> ReadLauncherEndpoint(FileSystem* fs, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(fs, path));
  ASSIGN_OR_RETURN(const ParsedJson json, ParseJsonObject(text));
  LauncherEndpoint endpoint;
  ASSIGN_OR_RETURN(const std::string addresses, GetMember<std::string>(json, "addresses"));
  endpoint.addresses = absl::StrSplit(addresses, ',', absl::SkipEmpty());
  ASSIGN_OR_RETURN(endpoint.port, GetMember<int64_t>(json, "port"));
  ASSIGN_OR_RETURN(endpoint.token, GetMember<std::string>(json, "token"));
  if (json.contains("silence_ms")) {
    ASSIGN_OR_RETURN(const int64_t silence_ms, GetMember<int64_t>(json, "silence_ms"));
    endpoint.silence_limit = absl::Milliseconds(silence_ms);
  }
  if (endpoint.addresses.empty() || endpoint.port < 1 || endpoint.port > 65535 ||
      endpoint.silence_limit <= absl::ZeroDuration())
    return DataLoss("'", path, "' names no launcher");
  return endpoint;
}

absl::StatusOr<Channel> ConnectToLauncher(const std::string& address, int64_t port,
                                          absl::Duration limit) {
  const std::string where = absl::StrCat(address, " port ", port);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* peer = nullptr;
  int error = getaddrinfo(address.c_str(), absl::StrCat(port).c_str(), &hints, &peer);
  if (error != 0) return Unavailable("address '", address, "': ", gai_strerror(error));
  const absl::Cleanup is_used = [peer] { freeaddrinfo(peer); };
  UniqueFd fd(socket(peer->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus("socket", where);
  if (connect(fd.get(), peer->ai_addr, peer->ai_addrlen) != 0) error = errno;
  if (error == EINPROGRESS) {
    pollfd item = {fd.get(), POLLOUT, 0};
    socklen_t size = sizeof(error);
    error = ETIMEDOUT;
    if (poll(&item, 1, static_cast<int>(absl::ToInt64Milliseconds(limit))) > 0)
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) return Unavailable("connect to ", where, ": ", std::strerror(error));
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return Channel(std::move(fd), kMaxLauncherBytes);
}

}  // namespace anyorder::ckpt
