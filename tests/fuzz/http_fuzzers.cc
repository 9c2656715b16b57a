// What clients send `anyorder serve --http`: bytes of any kind, before anybody has shown a token.
// They pass a whole server, the proxy's reading of heads, the library and the guard included.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/unique_fd.h"
#include "launcher/serve/http_server.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/launcher/serve/fake_service.h"

namespace anyorder::fuzz {
namespace {

constexpr char kToken[] = "0123456789abcdef";

std::string Request(const std::string& first_line, const std::vector<std::string>& headers,
                    const std::string& body = "") {
  return absl::StrCat(first_line, " HTTP/1.1\r\nHost: localhost\r\n", absl::StrJoin(headers, ""),
                      "\r\n", body);
}

std::string Post(const std::string& path, const std::string& body) {
  return Request(absl::StrCat("POST ", path),
                 {"Authorization: bearer ", kToken, "\r\nContent-Type: application/json\r\n",
                  absl::StrCat("Content-Length: ", body.size(), "\r\n")},
                 body);
}

std::vector<std::string> HttpSeeds() {
  const std::string preflight =
      "Origin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n";
  return {
      Request("GET /", {}),
      Request("GET /llm/health?a=%41&b=%zz#c", {"Expect: 100-continue\r\n"}),
      Request("HEAD /v1/models", {"Authorization: Bearer ", kToken, "\r\n"}),
      Request("OPTIONS /v1/completions", {preflight}),
      Request("GET /", {"Range: bytes=", std::string(8100, '1'), "-\r\n"}),
      Request("GET /", {"Range: bytes=0-1,", std::string(4000, '-'), "5-\r\n", "Accept: */*\r\n"}),
      Request("POST /v1/score", {"Transfer-Encoding: chunked\r\n"}, "5\r\n{\"a\":\r\n0\r\n\r\n"),
      Request("POST /v1/score", {"Content-Type: multipart/form-data; boundary=x\r\n"}, "--x\r\n"),
      Request("GET /", {"Content-Length: 18446744073709551615\r\nContent-Length: 2\r\n"}, "ab"),
      Post("/v1/completions", R"({"prompt": "a b c", "max_tokens": 2})"),
      Post("/v1/completions", R"({"prompt": ["a b", "c"], "stream": true, "n": 2})"),
      Post("/v1/infill", R"({"text": "a ___ b"})"),
      Post("/v1/score", R"({"text": "a b c"})"),
      Post("/v1/score", absl::StrCat(std::string(30000, '['), "\"continuation\"")),
  };
}

// One for all inputs, whose threads run to the process's end.
const launcher::HttpServer& Server() {
  static const launcher::HttpServer& server = *[] {
    auto& service = *new launcher::FakeTextService;
    auto& queue = *new launcher::RequestQueue(service, {});
    const launcher::HttpOptions options{
        .address = {"127.0.0.1", 0},
        .guard = {.token = kToken,
                  .origins = {"https://app.example"},
                  .public_address =
                      ValueOrDie(launcher::ParseWebAddress("https://models.example/llm"))},
        .limits = {.max_tokens = 50, .max_texts = 4}};
    return ValueOrDie(launcher::HttpServer::Start(options, service.facts(), queue)).release();
  }();
  return server;
}

// What the server answers a client that sends this and no more.
std::string Exchange(absl::string_view sent) {
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET,
                      .sin_port = htons(static_cast<uint16_t>(Server().address().port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ANYORDER_CHECK(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) ==
                 0);
  // The server may have refused it before all is sent.
  while (!sent.empty()) {
    const ssize_t bytes = ::send(client.get(), sent.data(), sent.size(), MSG_NOSIGNAL);
    if (bytes <= 0) break;
    sent.remove_prefix(static_cast<size_t>(bytes));
  }
  ::shutdown(client.get(), SHUT_WR);
  std::string answer;
  char piece[4096];
  // libFuzzer's clock is a signal.
  for (ssize_t bytes = 1; bytes > 0 || (bytes < 0 && errno == EINTR);) {
    bytes = ::recv(client.get(), piece, sizeof piece, 0);
    if (bytes > 0) answer.append(piece, static_cast<size_t>(bytes));
  }
  return answer;
}

// Everybody gets an answer, and none that says that the server does not know what went wrong.
void UseHttp(absl::string_view input) {
  const std::string answer = Exchange(input);
  ANYORDER_CHECK(answer.empty() == input.empty()) << answer;
  ANYORDER_CHECK(answer.empty() || absl::StartsWith(answer, "HTTP/1.1 ")) << answer;
  ANYORDER_CHECK(!absl::StartsWith(answer, "HTTP/1.1 500")) << answer;
}

const bool registered[] = {
    Register({"http_head", HttpSeeds, UseHttp}),
};

}  // namespace
}  // namespace anyorder::fuzz
