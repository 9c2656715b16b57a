// Who may ask the HTTP server what: judged from a request's first lines, before its body is read.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace httplib {
struct Request;
}

namespace anyorder::launcher {

// The header that tells the library a connection's number (limiting_proxy.h).
constexpr char kConnectionHeader[] = "Anyorder-Connection";

// Behind it a model's name.
constexpr char kModelPath[] = "/v1/models/";

// By default where the server listens.
struct ListenAddress {
  std::string host = "127.0.0.1";  // a name or address; of IPv6 without brackets
  int port = 8080;                 // 0: any
  // Whether only programs of this machine reach it: 127.0.0.0/8, ::1, localhost.
  bool is_loopback() const;
  std::string ToText() const;  // "127.0.0.1:8080", "[::1]:8080"
};
// "HOST:PORT", "HOST", ":PORT" or "[IPV6]:PORT"; what is left out is the default. Errors:
// InvalidArgument.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text);

// A URL as browsers compare them.
struct WebAddress {
  std::string origin;  // "https://models.example": lower case, without the scheme's own port
  std::string host;    // "models.example"
  std::string path;    // "/llm", without a slash at its end; or ""
};
// Errors: InvalidArgument for what is no absolute URL, or has a user, a query or a pattern.
absl::StatusOr<WebAddress> ParseWebAddress(const std::string& text);

// The first line of a file, without white space around it. Errors: those of ReadWholeFile;
// FailedPrecondition for a file that other users may read or change, less than 16 characters,
// others than visible ASCII, and %, which the HTTP library decodes.
absl::StatusOr<std::string> ReadToken(const std::string& path);

struct GuardOptions {
  std::string token;  // "": none is asked for
  bool is_loopback = true;
  int64_t max_body_bytes = 1 << 20;
  std::vector<std::string> origins;  // whose pages may ask, too; "*": all
  WebAddress public_address;         // of a proxy before the server, or empty
};

struct HttpFault {
  int status = 0;  // 0: none
  std::string message;
  std::string allowed;  // methods, of a 405
};

// The headers that are looked at, by the guard or the library: the proxy passes no others on.
inline constexpr const char* kReadHeaders[] = {
    "Host",           "Origin",           "Authorization",     "Content-Type",
    "Content-Length", "Content-Encoding", "Transfer-Encoding", "Access-Control-Request-Method"};

// 400: repeated headers. 404, 405: the path, its method. 421: a loopback server under another
// machine's name, which is what a page sees that had its own name point here (DNS rebinding). 403:
// a page of another origin asks. 401: without the token. 411, 413: a body of unknown length or more
// than max_body_bytes. 415: not JSON, which pages elsewhere could send unasked, or compressed.
// 204, no fault: a browser asks whether a page of one of `origins` may ask.
HttpFault CheckHead(const httplib::Request& head, const GuardOptions& options);

// The entry of `origins` for which a page asks, or "".
std::string ListedOrigin(const httplib::Request& head, const GuardOptions& options);

// Whether the head shows the token, or none is asked for.
bool HasToken(const httplib::Request& head, const GuardOptions& options);

// The HTTP status that stands for an error of a request, and the error that stands for a fault.
int HttpStatus(const absl::Status& status);
absl::Status StatusOf(const HttpFault& fault);

}  // namespace anyorder::launcher
