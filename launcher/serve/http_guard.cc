#include "launcher/serve/http_guard.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <regex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "core/base/network_port.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "launcher/process/child_process.h"
#include "launcher/texts/request_json.h"

namespace anyorder::launcher {
namespace {

constexpr size_t kLeastTokenBytes = 16;

// HTTP statuses and status codes. Where one maps to several, the first entry is used.
constexpr std::pair<int, absl::StatusCode> kHttpStatuses[] = {
    {200, absl::StatusCode::kOk},
    {400, absl::StatusCode::kInvalidArgument},
    {401, absl::StatusCode::kUnauthenticated},
    {403, absl::StatusCode::kPermissionDenied},
    {404, absl::StatusCode::kNotFound},
    {413, absl::StatusCode::kOutOfRange},
    {422, absl::StatusCode::kFailedPrecondition},
    {422, absl::StatusCode::kUnimplemented},
    {503, absl::StatusCode::kUnavailable},
    {504, absl::StatusCode::kDeadlineExceeded},
};

// A path and the one method that it takes.
struct HttpPath {
  const char* path;
  const char* method;
  bool is_open;  // without a token: it tells nothing of requests and computes nothing
};
constexpr HttpPath kHttpPaths[] = {
    {"/", "GET", true},
    {"/health", "GET", true},
    {"/v1/models", "GET", false},
    {kModelPath, "GET", false},
    {"/v1/completions", "POST", false},
    {"/v1/chat/completions", "POST", false},
    {"/v1/infill", "POST", false},
    {"/v1/score", "POST", false},
};

bool IsLoopbackHost(const std::string& host) {
  in_addr ipv4{};
  in6_addr ipv6{};
  if (::inet_pton(AF_INET, host.c_str(), &ipv4) == 1) return ntohl(ipv4.s_addr) >> 24 == 127;
  if (::inet_pton(AF_INET6, host.c_str(), &ipv6) == 1) return IN6_IS_ADDR_LOOPBACK(&ipv6);
  return absl::EqualsIgnoreCase(host, "localhost");
}

// The host of "HOST", "HOST:PORT" and "[IPV6]:PORT".
std::string HostOf(absl::string_view authority) {
  if (absl::StartsWith(authority, "["))
    return std::string(authority.substr(1, std::min(authority.find(']'), authority.size()) - 1));
  return std::string(authority.substr(0, authority.find(':')));
}

bool IsGet(absl::string_view method) { return method == "GET" || method == "HEAD"; }

HttpFault CheckPath(const httplib::Request& head) {
  for (const HttpPath& path : kHttpPaths) {
    const bool is_model =
        absl::string_view(path.path) == kModelPath && head.path.starts_with(kModelPath);
    if (head.path != path.path && !is_model) continue;
    const std::string methods = absl::StrCat(path.method, IsGet(path.method) ? ", HEAD" : "");
    if (head.method == path.method || (IsGet(path.method) && IsGet(head.method))) return {};
    return {405, absl::StrCat(head.path, " takes ", methods, ", not ", head.method), methods};
  }
  return {404,
          absl::StrCat("there is no such path; ",
                       absl::StrJoin(kHttpPaths, ", ", [](std::string* out, const HttpPath& path) {
                         const bool is_model = absl::string_view(path.path) == kModelPath;
                         absl::StrAppend(out, path.method, " ", path.path, is_model ? "ID" : "");
                       }))};
}

// Browsers send the page's own address with what a page asks. A proxy may have changed the host.
bool IsOwnOrigin(const httplib::Request& head, const GuardOptions& options) {
  const std::string origin = head.get_header_value("Origin");
  const std::string host = head.get_header_value("Host");
  return origin == "http://" + host || origin == "https://" + host ||
         (!origin.empty() && origin == options.public_address.origin);
}

HttpFault CheckSender(const httplib::Request& head, const GuardOptions& options) {
  const std::string host = HostOf(head.get_header_value("Host"));
  const bool is_public = absl::EqualsIgnoreCase(host, options.public_address.host);
  if (options.is_loopback && !IsLoopbackHost(host) && (!is_public || host.empty())) {
    return {421,
            "this server is asked by the names localhost, 127.0.0.1 and that of --public-url only "
            "(header Host)"};
  }
  const bool is_listed = !ListedOrigin(head, options).empty();
  if (head.has_header("Origin") && !is_listed && !IsOwnOrigin(head, options))
    return {403, "pages of this origin may not ask (header Origin); --cors ORIGIN lets them"};
  // A browser's question, which shows no token.
  if (is_listed && head.method == "OPTIONS" && head.has_header("Access-Control-Request-Method"))
    return {204};
  if (HasToken(head, options)) return {};
  for (const HttpPath& path : kHttpPaths)
    if (path.is_open && head.path == path.path) return {};
  return {401, "the header 'Authorization: Bearer TOKEN' is missing or has another token"};
}

HttpFault CheckBody(const httplib::Request& head, const GuardOptions& options) {
  if (head.has_header("Transfer-Encoding"))
    return {411, "send the body at once, with Content-Length and without Transfer-Encoding"};
  if (IsGet(head.method)) return {};
  const std::string length = head.get_header_value("Content-Length");
  int64_t bytes = 0;
  if (!std::all_of(length.begin(), length.end(), absl::ascii_isdigit) || length.empty())
    return {411, "the header Content-Length is missing or no number"};
  if (!absl::SimpleAtoi(length, &bytes) || bytes > options.max_body_bytes)
    return {413,
            absl::StrCat("the body has ", length, " bytes but may have ", options.max_body_bytes)};
  const std::string encoding = head.get_header_value("Content-Encoding");
  if (!encoding.empty() && encoding != "identity")
    return {415, "the body is compressed; send it as it is"};
  const std::string type = head.get_header_value("Content-Type");
  if (absl::AsciiStrToLower(absl::StripAsciiWhitespace(type.substr(0, type.find(';')))) !=
      "application/json")
    return {415, "the header 'Content-Type: application/json' is missing"};
  return {};
}

}  // namespace

bool ListenAddress::is_loopback() const { return IsLoopbackHost(host); }

std::string ListenAddress::ToText() const {
  const bool is_ipv6 = host.find(':') != host.npos;
  return absl::StrCat(is_ipv6 ? "[" : "", host, is_ipv6 ? "]:" : ":", port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text) {
  ListenAddress address;
  absl::string_view rest = text;
  const size_t close = text.find(']');
  if (absl::StartsWith(text, "[") && close != text.npos) {
    address.host = text.substr(1, close - 1);
    rest.remove_prefix(close + 1);
  } else {
    const std::string host = text.substr(0, text.find(':'));
    rest.remove_prefix(host.size());
    if (!host.empty()) address.host = host;
  }
  const bool has_port = absl::ConsumePrefix(&rest, ":");
  int port = 0;
  const bool is_number = absl::SimpleAtoi(rest, &port);
  if (text.empty() || (has_port && !is_number) || (!has_port && !rest.empty()) || port < 0 ||
      port > 65535)
    return InvalidArgument(
        "--http '", text, "' is no address; write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080");
  if (has_port) address.port = port;
  return address;
}

absl::StatusOr<WebAddress> ParseWebAddress(const std::string& text) {
  // Scheme and host, and a path without /v1, which clients add.
  static const std::regex kForm(R"((\w[\w+.-]*://([^\s/?#@*,]+))((?:/[^\s/?#]+)*?)(?:/v1)?/*)");
  std::smatch part;
  if (!std::regex_match(text, part, kForm))
    return InvalidArgument("'", text, "' is no SCHEME://HOST[:PORT], such as https://app.example");
  const std::string origin = absl::AsciiStrToLower(part.str(1));
  const bool is_https = absl::StartsWith(origin, "https:");
  return WebAddress{std::string(absl::StripSuffix(origin, is_https ? ":443" : ":80")),
                    HostOf(absl::AsciiStrToLower(part.str(2))), part.str(3)};
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxSettingsBytes));
  struct stat info {};
  // As ssh has it: which group may read is another owner's to decide.
  if (::stat(path.c_str(), &info) == 0 &&
      (info.st_mode & (info.st_uid == ::geteuid() ? 077 : 07)) != 0)
    return FailedPrecondition(path, ": other users may read or change this file; run: chmod 600 ",
                              ShellQuote(path));
  const std::string token(absl::StripAsciiWhitespace(text.substr(0, text.find('\n'))));
  if (token.size() < kLeastTokenBytes ||
      !std::all_of(token.begin(), token.end(),
                   [](unsigned char c) { return absl::ascii_isgraph(c) && c != '%'; }))
    return FailedPrecondition(
        path, ": its first line must be a token of at least ", kLeastTokenBytes,
        " visible ASCII characters other than %; 'openssl rand -hex 32' makes one");
  return token;
}

HttpFault CheckHead(const httplib::Request& head, const GuardOptions& options) {
  for (const char* name : kReadHeaders)
    if (head.get_header_value_count(name) > 1)
      return {400, "a header came twice that may come once"};
  // Before anything that tells what is here.
  if (HttpFault fault = CheckSender(head, options); fault.status != 0) return fault;
  if (HttpFault fault = CheckPath(head); fault.status != 0) return fault;
  return CheckBody(head, options);
}

std::string ListedOrigin(const httplib::Request& head, const GuardOptions& options) {
  const std::string origin = head.get_header_value("Origin");
  for (const std::string& listed : options.origins)
    if (!origin.empty() && (listed == "*" || listed == origin)) return listed;
  return "";
}

bool HasToken(const httplib::Request& head, const GuardOptions& options) {
  if (options.token.empty()) return true;
  const std::string authorization = head.get_header_value("Authorization");
  const absl::string_view said = authorization;
  constexpr absl::string_view kScheme = "Bearer ";  // in any case: RFC 9110, section 11.1
  return absl::StartsWithIgnoreCase(said, kScheme) &&
         IsSecret(absl::StripLeadingAsciiWhitespace(said.substr(kScheme.size())), options.token);
}

int HttpStatus(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) return IsQueueFull(status) ? 429 : 503;
  for (const auto& [http_status, code] : kHttpStatuses)
    if (status.code() == code) return http_status;
  return 500;
}

absl::Status StatusOf(const HttpFault& fault) {
  for (const auto& [http_status, code] : kHttpStatuses)
    if (fault.status == http_status) return {code, fault.message};
  return InvalidArgument(fault.message);
}

}  // namespace anyorder::launcher
