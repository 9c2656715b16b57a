#include "launcher/serve/http_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "launcher/process/child_process.h"
#include "launcher/serve/http_server.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::launcher {
namespace {

using ::testing::HasSubstr;

constexpr char kToken[] = "0123456789abcdef";

using Head = httplib::Request;

Head Ask(const std::string& method, const std::string& path) {
  Head head;
  head.method = method;
  head.path = path;
  return head;
}

// Instead of what the header was; nothing: without it.
void Set(Head& head, const std::string& name, const std::string& value) {
  head.headers.erase(name);
  if (!value.empty()) head.set_header(name, value);
}

Head Post() {
  Head head = Ask("POST", "/v1/infill");
  Set(head, "Host", "127.0.0.1:8080");
  Set(head, "Content-Type", "application/json; charset=utf-8");
  Set(head, "Content-Length", "10");
  return head;
}

TEST(CheckHeadTest, RefusalsSayWhy) {
  struct HeaderCase {
    const char* name;
    std::string value;
    int status;  // 0: none
    const char* words;
  };
  const HeaderCase headers[] = {
      {"Host", "LocalHost", 0, ""},
      {"Host", "[::1]:99", 0, ""},
      {"Host", "", 421, "localhost, 127.0.0.1 and that of --public-url only"},
      {"Host", "evil.example:8080", 421, "header Host"},
      {"Host", "localhost.evil.example", 421, "Host"},
      {"Host", "[", 421, "Host"},
      {"Origin", "http://127.0.0.1:8080", 0, ""},
      {"Origin", "http://evil.example", 403, "header Origin"},
      {"Origin", "null", 403, "header Origin"},
      {"Origin", "http://127.0.0.1:81", 403, "Origin"},
      {"Transfer-Encoding", "chunked", 411, "without Transfer-Encoding"},
      {"Content-Length", "", 411, "Content-Length"},
      {"Content-Length", "-1", 411, "no number"},
      {"Content-Length", "1048577", 413, "has 1048577 bytes but may have 1048576"},
      {"Content-Length", std::string(50, '9'), 413, "bytes"},
      {"Content-Type", "text/plain", 415, "application/json"},
      {"Content-Type", "", 415, "application/json"},
      {"Content-Encoding", "gzip", 415, "is compressed"},
  };
  const auto expect = [](const Head& head, int status, const std::string& words) {
    SCOPED_TRACE(absl::StrCat(head.method, " ", head.path, " ", head.headers.size(), " headers"));
    const HttpFault fault = CheckHead(head, {});
    EXPECT_EQ(fault.status, status);
    EXPECT_THAT(fault.message, HasSubstr(words));
  };
  for (const HeaderCase& header : headers) {
    SCOPED_TRACE(absl::StrCat(header.name, ": ", header.value));
    Head head = Post();
    Set(head, header.name, header.value);
    expect(head, header.status, header.words);
  }
  expect(Post(), 0, "");
  Head head = Ask("GET", "/");
  Set(head, "Host", "localhost");
  expect(head, 0, "");
  head = Post();
  head.path = "/v1/embeddings";
  expect(head, 404,
         "GET /, GET /health, GET /v1/models, GET /v1/models/ID, POST /v1/completions, "
         "POST /v1/chat/completions, POST /v1/infill, POST /v1/score");
  head.path = "/v1/models/any name/at all";
  expect(head, 405, "takes GET, HEAD, not POST");
  head = Post();
  head.method = "GET";
  expect(head, 405, "takes POST, not GET");
  EXPECT_EQ(CheckHead(head, {}).allowed, "POST");
  for (const char* path : {"/", "/health", "/v1/models"}) {
    head.path = path;
    for (const char* method : {"GET", "HEAD"}) {
      head.method = method;
      expect(head, 0, "");
    }
    head.method = "OPTIONS";
    expect(head, 405, "takes GET, HEAD, not OPTIONS");
    EXPECT_EQ(CheckHead(head, {}).allowed, "GET, HEAD");
  }
  head = Post();
  head.headers.emplace("Host", "localhost");
  expect(head, 400, "came twice");
}

TEST(CheckHeadTest, OnlyWhoHasTheTokenMayAsk) {
  const GuardOptions options{.token = kToken, .is_loopback = false};
  Head head = Post();
  Set(head, "Host", "gpu7.example");  // any: rebound pages do not have the token
  for (const std::string& said :
       {std::string(), std::string(kToken), absl::StrCat("Basic ", kToken), std::string("Bearer "),
        absl::StrCat("Bearer ", kToken, "0"), std::string("Bearer 0123456789abcdee")}) {
    Set(head, "Authorization", said);
    const HttpFault fault = CheckHead(head, options);
    EXPECT_EQ(fault.status, 401) << said;
    EXPECT_THAT(fault.message, HasSubstr("Authorization: Bearer TOKEN"));
    EXPECT_FALSE(HasToken(head, options)) << said;
    EXPECT_TRUE(HasToken(head, {})) << said;
  }
  for (const char* scheme : {"bearer ", "BEARER  ", "Bearer "}) {
    Set(head, "Authorization", absl::StrCat(scheme, kToken));
    EXPECT_TRUE(HasToken(head, options)) << scheme;
  }
  EXPECT_EQ(CheckHead(head, options).status, 0);
  // Without it nobody learns which paths there are.
  EXPECT_EQ(CheckHead(Ask("GET", "/secret"), options).status, 401);
  EXPECT_EQ(CheckHead(Ask("GET", "/v1/models"), options).status, 401);
  EXPECT_EQ(CheckHead(Ask("GET", "/"), options).status, 0);
  EXPECT_EQ(CheckHead(Ask("GET", "/health"), options).status, 0);
}

Head Preflight(const std::string& origin) {
  Head head = Ask("OPTIONS", "/v1/completions");
  Set(head, "Host", "127.0.0.1:8080");
  Set(head, "Origin", origin);
  Set(head, "Access-Control-Request-Method", "POST");
  return head;
}

TEST(CorsTest, PagesOfTheseOriginsMayAsk) {
  const GuardOptions options{.token = kToken,
                             .origins = {"https://app.example", "http://localhost:3000"}};
  Head head = Preflight("https://app.example");
  EXPECT_EQ(CheckHead(head, options).status, 204);  // it has no token
  EXPECT_EQ(ListedOrigin(head, options), "https://app.example");
  // What is asked then has one, and is guarded as ever.
  head = Post();
  Set(head, "Origin", "http://localhost:3000");
  EXPECT_EQ(CheckHead(head, options).status, 401);
  EXPECT_EQ(ListedOrigin(head, options), "http://localhost:3000");  // the page may read why
  Set(head, "Authorization", absl::StrCat("Bearer ", kToken));
  EXPECT_EQ(CheckHead(head, options).status, 0);
  Set(head, "Host", "evil.example");
  EXPECT_EQ(CheckHead(head, options).status, 421);
  for (const char* other : {"https://app.example.evil", "http://app.example", "null",
                            "https://app.example:8443", "*"}) {
    EXPECT_EQ(CheckHead(Preflight(other), options).status, 403) << other;
    EXPECT_EQ(ListedOrigin(Preflight(other), options), "") << other;
  }
  // No browser's question.
  EXPECT_EQ(CheckHead(Preflight(""), options).status, 401);
  head = Preflight("http://localhost:3000");
  Set(head, "Access-Control-Request-Method", "");
  EXPECT_EQ(CheckHead(head, options).status, 401);
}

TEST(CorsTest, AStarIsForAllPages) {
  const GuardOptions options{.origins = {"*"}};
  for (const char* origin : {"https://any.example", "null"}) {
    EXPECT_EQ(CheckHead(Preflight(origin), options).status, 204) << origin;
    EXPECT_EQ(ListedOrigin(Preflight(origin), options), "*") << origin;
  }
  EXPECT_EQ(ListedOrigin(Post(), options), "");
  Head head = Preflight("https://any.example");
  Set(head, "Host", "rebound.example");
  EXPECT_EQ(CheckHead(head, options).status, 421);
}

TEST(PublicUrlTest, AProxyIsAskedByItsOwnName) {
  const GuardOptions options{.public_address =
                                 ParseWebAddress("https://Models.example/llm/").value()};
  EXPECT_EQ(options.public_address.path, "/llm");
  struct Case {
    const char* host;
    const char* origin;
    int status;
  };
  const Case cases[] = {
      {"models.example", "", 0},
      {"models.example", "https://models.example", 0},
      {"models.example:443", "https://models.example", 0},
      {"127.0.0.1:8080", "https://models.example", 0},  // the proxy changed the host
      {"127.0.0.1:8080", "http://127.0.0.1:8080", 0},
      {"127.0.0.1:8080", "http://models.example", 403},
      {"127.0.0.1:8080", "https://evil.example", 403},
      {"models.example.evil", "", 421},
      {"evil.example", "https://models.example", 421},
  };
  for (const Case& one : cases) {
    Head head = Post();
    Set(head, "Host", one.host);
    Set(head, "Origin", one.origin);
    EXPECT_EQ(CheckHead(head, options).status, one.status) << one.host << " " << one.origin;
  }
}

TEST(WebAddressTest, AddressesAreAsBrowsersSendThem) {
  const auto text = [](const char* given) {
    const auto parsed = ParseWebAddress(given);
    if (!parsed.ok()) return std::string(parsed.status().message());
    return absl::StrCat(parsed->origin, " ", parsed->host, " ", parsed->path);
  };
  EXPECT_EQ(text("https://a.b"), "https://a.b a.b ");
  EXPECT_EQ(text("HTTPS://A.b:443//"), "https://a.b a.b ");
  EXPECT_EQ(text("http://a:80/C/d"), "http://a a /C/d");
  EXPECT_EQ(text("http://a:443"), "http://a:443 a ");
  EXPECT_EQ(text("http://a/v1/"), "http://a a ");
  EXPECT_EQ(text("http://a/llm/v1"), "http://a a /llm");
  EXPECT_EQ(text("http://[::1]:80"), "http://[::1] ::1 ");
  EXPECT_EQ(text("app://obsidian.md"), "app://obsidian.md obsidian.md ");
  for (const char* bad : {"", "a", "a.b:80", "://a", "https://", "https:///a", "https://*.a",
                          "https://u@a", "https://a?b", "https://a#b", "https://a b", "null"})
    EXPECT_THAT(text(bad), HasSubstr(absl::StrCat("'", bad, "' is no SCHEME://HOST"))) << bad;
}

TEST(HttpStatusTest, FaultsAndErrorsStandForOneAnother) {
  for (const int status : {401, 403, 404, 413, 503, 504})
    EXPECT_EQ(HttpStatus(StatusOf({status, "why"})), status);
  // What has no error of its own is a fault of the request.
  for (const int status : {400, 405, 411, 415, 421})
    EXPECT_EQ(StatusOf({status, "why"}), absl::InvalidArgumentError("why"));
  EXPECT_EQ(HttpStatus(absl::OkStatus()), 200);
  EXPECT_EQ(HttpStatus(absl::InvalidArgumentError("")), 400);
  EXPECT_EQ(HttpStatus(absl::FailedPreconditionError("")), 422);
  EXPECT_EQ(HttpStatus(absl::UnimplementedError("")), 422);
  EXPECT_EQ(HttpStatus(absl::InternalError("")), 500);
}

TEST(ListenAddressTest, AddressesAreRead) {
  const auto text = [](const char* address) {
    const auto parsed = ParseListenAddress(address);
    if (!parsed.ok()) return std::string(parsed.status().message());
    return absl::StrCat(parsed->ToText(), parsed->is_loopback() ? " own" : "");
  };
  EXPECT_EQ(ListenAddress().ToText(), "127.0.0.1:8080");
  EXPECT_EQ(text("127.0.0.1:80"), "127.0.0.1:80 own");
  EXPECT_EQ(text("127.9.0.1:80"), "127.9.0.1:80 own");
  EXPECT_EQ(text("localhost"), "localhost:8080 own");
  EXPECT_EQ(text(":0"), "127.0.0.1:0 own");
  EXPECT_EQ(text("[::1]:1"), "[::1]:1 own");
  EXPECT_EQ(text("0.0.0.0:65535"), "0.0.0.0:65535");
  EXPECT_EQ(text("[::]"), "[::]:8080");
  EXPECT_EQ(text("gpu7.example:9"), "gpu7.example:9");
  for (const char* bad : {"", "a:b", "a:65536", "a:-1", "a:", "[::1", "::1", "[::1]8080"})
    EXPECT_THAT(text(bad), HasSubstr(absl::StrCat("--http '", bad, "' is no address"))) << bad;
}

TEST(ListenAddressTest, OthersNeedAToken) {
  HttpOptions options;
  options.address = {"0.0.0.0", 8080};
  EXPECT_THAT(CheckMayListen(options),
              Says("--http 0.0.0.0:8080 is reached from other machines; pass --token-file"));
  options.guard.token = kToken;
  EXPECT_TRUE(CheckMayListen(options).ok());
  options = {.address = {"::1", 8080}};
  EXPECT_TRUE(CheckMayListen(options).ok());
}

TEST(ReadTokenTest, TheFirstLineIsTheToken) {
  const std::string path = testing::TempDir() + "/token";
  const auto read = [&path](const std::string& text, mode_t mode = 0600) {
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    const auto token = ReadToken(path);
    return token.ok() ? *token : std::string(token.status().message());
  };
  EXPECT_EQ(read(absl::StrCat(" ", kToken, "\r\nanything")), kToken);
  for (const char* bad :
       {"", "short", "0123456789 abcdef", "0123456789abcd\xc3\xa4", "0123456789abcde%"})
    EXPECT_THAT(read(bad), HasSubstr("token of at least 16 visible ASCII characters")) << bad;
  for (const mode_t mode : {0604, 0640, 0644, 0602, 0660})
    EXPECT_EQ(read(kToken, mode),
              absl::StrCat(path, ": other users may read or change this file; run: chmod 600 ",
                           ShellQuote(path)));
  for (const mode_t mode : {0600, 0400}) EXPECT_EQ(read(kToken, mode), kToken);
  EXPECT_FALSE(ReadToken(path + ".none").ok());
}

}  // namespace
}  // namespace anyorder::launcher
