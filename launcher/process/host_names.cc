#include "launcher/process/host_names.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/log.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"

namespace anyorder::launcher {
namespace {

// "" of what is no address of a network.
std::string TextOf(const sockaddr* address) {
  char text[NI_MAXHOST] = "";
  const socklen_t size =
      address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::string NetworkOf(const ifaddrs& one) {
  if (one.ifa_netmask == nullptr || one.ifa_addr->sa_family != AF_INET) return "";
  const uint32_t mask = reinterpret_cast<const sockaddr_in*>(one.ifa_netmask)->sin_addr.s_addr;
  sockaddr_in base = *reinterpret_cast<const sockaddr_in*>(one.ifa_addr);
  base.sin_addr.s_addr &= mask;
  return absl::StrCat(TextOf(reinterpret_cast<const sockaddr*>(&base)), "/",
                      __builtin_popcount(mask));
}

constexpr int64_t kMostRanks = 1 << 20;

absl::StatusOr<int64_t> ParseSlots(absl::string_view text) {
  int64_t slots = 0;
  if (absl::SimpleAtoi(text, &slots) && slots >= 1 && slots <= kMostRanks) return slots;
  return InvalidArgument("'", text, "' is not a number of ranks");
}

// "a[1-2]b[3,05]" is a1b3, a1b05, a2b3 and a2b05, as Slurm writes lists of nodes.
absl::StatusOr<std::vector<std::string>> ExpandName(absl::string_view name) {
  constexpr size_t kMostHosts = 16384;
  constexpr int kMostLists = 8;  // this function calls itself for each
  const size_t open = name.find('['), close = name.find(']');
  std::vector<std::string> names = {std::string(name)};
  if (open == name.npos) return names;
  const auto fault = InvalidArgument("'", name, "' is no list of hosts such as node[01-04,7]");
  if (close == name.npos || close < open || std::count(name.begin(), name.end(), '[') > kMostLists)
    return fault;
  const absl::string_view list = name.substr(open + 1, close - open - 1);
  ASSIGN_OR_RETURN(const std::vector<std::string> ends, ExpandName(name.substr(close + 1)));
  names.clear();
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    const size_t dash = std::min(part.find('-'), part.size());
    const absl::string_view last = part.substr(dash < part.size() ? dash + 1 : 0);
    uint32_t number = 0, end = 0;
    if (list.find_first_not_of("0123456789-,") != list.npos || !absl::SimpleAtoi(last, &end) ||
        !absl::SimpleAtoi(part.substr(0, dash), &number) || end < number ||
        names.size() + (size_t{end} - number + 1) * ends.size() > kMostHosts)
      return fault;
    for (size_t one = number; one <= end; ++one)
      for (const std::string& rest : ends)
        names.push_back(
            absl::StrFormat("%s%0*d%s", name.substr(0, open), static_cast<int>(dash), one, rest));
  }
  return names;
}

// "a:2", "a", or "a[1-2]:2", whose hosts have so many each.
absl::StatusOr<std::vector<HostSlots>> ParseItem(absl::string_view item) {
  HostSlots host;
  const size_t colon = item.rfind(':');
  if (colon != absl::string_view::npos) {
    ASSIGN_OR_RETURN(host.slots, ParseSlots(item.substr(colon + 1)));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ExpandName(absl::StripAsciiWhitespace(item.substr(0, colon))));
  std::vector<HostSlots> hosts;
  for (const std::string& name : names) {
    host.name = name;
    hosts.push_back(host);
    if (name.empty() || name[0] == '-' || name.find_first_of(" \t,:/'\"[]") != std::string::npos)
      return InvalidArgument("'", item, "' is not HOST or HOST:RANKS");
  }
  return hosts;
}

// "a slots=2 max_slots=4 # comment", as mpirun reads it; nothing for a line without a host.
absl::StatusOr<std::vector<HostSlots>> ParseLine(absl::string_view line) {
  line = line.substr(0, line.find('#'));
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.empty()) return std::vector<HostSlots>();
  ASSIGN_OR_RETURN(std::vector<HostSlots> hosts, ParseItem(words[0]));
  for (size_t i = 1; i < words.size(); ++i) {
    absl::string_view word = words[i];
    if (absl::StartsWith(word, "max_slots=") || absl::StartsWith(word, "max-slots=")) continue;
    if (!absl::ConsumePrefix(&word, "slots="))
      return InvalidArgument("'", word, "' is not slots=RANKS");
    ASSIGN_OR_RETURN(const int64_t slots, ParseSlots(word));
    for (HostSlots& host : hosts) host.slots = slots;
  }
  return hosts;
}

// A line for each item; commas inside brackets are theirs.
std::string AsLines(std::string list) {
  bool is_inside = false;
  for (char& c : list) {
    if (c == '[' || c == ']') is_inside = c == '[';
    if (c == ',' && !is_inside) c = '\n';
  }
  return list;
}

}  // namespace

std::vector<OwnAddress> OwnAddresses() {
  std::vector<OwnAddress> addresses;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    const std::string text = one->ifa_addr == nullptr ? "" : TextOf(one->ifa_addr);
    if (text.empty()) continue;
    const bool is_up = (one->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP;
    // A link-local one needs the other host's name of its network.
    addresses.push_back({text, NetworkOf(*one), is_up && !absl::StrContains(text, '%')});
  }
  ::freeifaddrs(all);
  return addresses;
}

std::vector<OwnAddress> OwnAddressesOf(const std::string& name) {
  std::vector<OwnAddress> addresses;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return addresses;
  const std::vector<OwnAddress> all = OwnAddresses();
  // "fe80::1%eth0" is fe80::1 of one interface, which /etc/hosts does not tell.
  const auto plain = [](const std::string& text) { return text.substr(0, text.find('%')); };
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next)
    std::copy_if(all.begin(), all.end(), std::back_inserter(addresses), [&](const OwnAddress& own) {
      return plain(own.text) == plain(TextOf(one->ai_addr));
    });
  ::freeaddrinfo(found);
  return addresses;
}

bool IsThisHost(const std::string& name) {
  const std::string own = HostName();
  return name == own || absl::StartsWith(own, name + ".") || absl::StartsWith(name, own + ".") ||
         !OwnAddressesOf(name).empty();
}

absl::StatusOr<std::vector<HostSlots>> ReadHosts(const std::string& list_or_file) {
  const bool is_file = IsFile(list_or_file);
  std::string text = AsLines(list_or_file);
  if (is_file) {
    ASSIGN_OR_RETURN(text, ReadWholeFile(list_or_file, kMaxSettingsBytes));
  }
  std::vector<HostSlots> hosts;
  std::unordered_map<std::string, size_t> places;
  int64_t number = 0, ranks = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const auto parsed = is_file ? ParseLine(line) : ParseItem(line);
    RETURN_IF_ERROR(
        Annotate(parsed.status(), is_file ? absl::StrCat(list_or_file, ":", ++number)
                                          : "--hosts is no file, nor a list such as a:2,b:2"));
    for (const HostSlots& host : *parsed) {
      const auto [place, is_new] = places.emplace(host.name, hosts.size());
      if (is_new) hosts.push_back({host.name, 0});
      hosts[place->second].slots += host.slots;
      ranks += host.slots;
    }
    if (ranks > kMostRanks) return InvalidArgument("--hosts: more than ", kMostRanks, " ranks");
  }
  if (hosts.empty()) return InvalidArgument("--hosts: '", list_or_file, "' names no host");
  for (const HostSlots& host : hosts) {
    if (hosts.size() == 1 || (host.name != "localhost" && !absl::StartsWith(host.name, "127.")))
      continue;
    return InvalidArgument("--hosts: '", host.name,
                           "' means a different machine on each host; use this machine's name or "
                           "address");
  }
  return hosts;
}

std::vector<HostSlots> FillSlots(const std::vector<HostSlots>& hosts, int64_t ranks) {
  std::vector<HostSlots> filled;
  for (HostSlots host : hosts) {
    host.slots = std::min(host.slots, ranks);
    ranks -= host.slots;
    if (host.slots > 0) filled.push_back(std::move(host));
  }
  return filled;
}

}  // namespace anyorder::launcher
