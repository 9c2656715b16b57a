#include "launcher/process/host_names.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"

namespace anyorder::launcher {
namespace {

bool IsSameAddress(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || b == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

bool IsOwnAddress(const sockaddr* address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return false;
  bool is_own = false;
  for (const ifaddrs* one = all; one != nullptr && !is_own; one = one->ifa_next)
    is_own = IsSameAddress(one->ifa_addr, address);
  ::freeifaddrs(all);
  return is_own;
}

absl::StatusOr<int64_t> ParseSlots(absl::string_view text) {
  int64_t slots = 0;
  if (absl::SimpleAtoi(text, &slots) && slots >= 1 && slots <= 1 << 20) return slots;
  return InvalidArgument("'", text, "' is not a number of ranks");
}

// "a:2" or "a".
absl::StatusOr<HostSlots> ParseItem(absl::string_view item) {
  HostSlots host;
  const size_t colon = item.rfind(':');
  host.name = std::string(absl::StripAsciiWhitespace(item.substr(0, colon)));
  if (colon != absl::string_view::npos) {
    ASSIGN_OR_RETURN(host.slots, ParseSlots(item.substr(colon + 1)));
  }
  const bool is_name = !host.name.empty() && host.name[0] != '-' &&
                       host.name.find_first_of(" \t,:/'\"") == std::string::npos;
  if (is_name) return host;
  return InvalidArgument("'", item, "' is not HOST or HOST:RANKS");
}

// "a slots=2 max_slots=4 # comment", as mpirun reads it; nothing for a line without a host.
absl::StatusOr<std::vector<HostSlots>> ParseLine(absl::string_view line) {
  line = line.substr(0, line.find('#'));
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.empty()) return std::vector<HostSlots>();
  ASSIGN_OR_RETURN(HostSlots host, ParseItem(words[0]));
  for (size_t i = 1; i < words.size(); ++i) {
    absl::string_view word = words[i];
    if (absl::StartsWith(word, "max_slots=") || absl::StartsWith(word, "max-slots=")) continue;
    if (!absl::ConsumePrefix(&word, "slots="))
      return InvalidArgument("'", word, "' is not slots=RANKS");
    ASSIGN_OR_RETURN(host.slots, ParseSlots(word));
  }
  return std::vector<HostSlots>{host};
}

void Add(const HostSlots& host, std::vector<HostSlots>& hosts) {
  const auto same = std::find_if(hosts.begin(), hosts.end(),
                                 [&](const HostSlots& one) { return one.name == host.name; });
  if (same == hosts.end()) {
    hosts.push_back(host);
  } else {
    same->slots += host.slots;
  }
}

}  // namespace

bool IsThisHost(const std::string& name) {
  const std::string own = HostName();
  if (name == own || absl::StartsWith(own, name + ".") || absl::StartsWith(name, own + "."))
    return true;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return false;
  bool is_own = false;
  for (const addrinfo* one = found; one != nullptr && !is_own; one = one->ai_next)
    is_own = IsOwnAddress(one->ai_addr);
  ::freeaddrinfo(found);
  return is_own;
}

absl::StatusOr<std::vector<HostSlots>> ReadHosts(const std::string& list_or_file) {
  std::vector<HostSlots> hosts;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(list_or_file, ignored)) {
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(list_or_file));
    int64_t number = 0;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      const absl::StatusOr<std::vector<HostSlots>> parsed = ParseLine(line);
      RETURN_IF_ERROR(Annotate(parsed.status(), absl::StrCat(list_or_file, ":", ++number)));
      for (const HostSlots& host : *parsed) Add(host, hosts);
    }
    if (hosts.empty()) return InvalidArgument("--hosts: '", list_or_file, "' names no host");
  } else {
    for (const absl::string_view item : absl::StrSplit(list_or_file, ',')) {
      const absl::StatusOr<HostSlots> host = ParseItem(item);
      RETURN_IF_ERROR(Annotate(host.status(), "--hosts is no file, nor a list such as a:2,b:2"));
      Add(*host, hosts);
    }
  }
  for (const HostSlots& host : hosts) {
    if (hosts.size() == 1 || (host.name != "localhost" && !absl::StartsWith(host.name, "127.")))
      continue;
    return InvalidArgument("--hosts: '", host.name,
                           "' means a different machine on each host; use this machine's name or "
                           "address");
  }
  return hosts;
}

}  // namespace anyorder::launcher
