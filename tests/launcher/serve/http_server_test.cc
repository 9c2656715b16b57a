#include "launcher/serve/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "core/base/unique_fd.h"
#include "tests/launcher/accept_faults.h"
#include "tests/launcher/serve/fake_service.h"

namespace anyorder::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Client {
 public:
  explicit Client(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void Send(const std::string& text) const {
    EXPECT_EQ(::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  void Post(const std::string& path, const std::string& body) const {
    Send(absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\nContent-Type: ",
                      "application/json\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
  }
  // As much as fits into `text`, at least a byte; how much, or 0 at the end.
  ssize_t ReadSome(std::string& text) const {
    return ::recv(fd_.get(), text.data(), text.size(), 0);
  }
  // All that comes until the server closes the connection.
  std::string Read() const {
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::recv(fd_.get(), buffer, sizeof buffer, 0)) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    return text;
  }

 private:
  UniqueFd fd_;
};

constexpr size_t kLong = 16 << 20;  // more than the sockets' buffers hold

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpOptions options = {}) {
    options.address = {"127.0.0.1", 0};
    server_ = HttpServer::Start(options, service_.facts(), queue_).value();
  }
  // A client that has asked a server for an answer of `kLong` bytes.
  Client AskMuch(HttpOptions options) {
    options.guard.max_body_bytes = 2 * kLong;
    Start(options);
    Client client = Connect();
    // A prompt of one word, which is the answer, too.
    client.Post("/v1/completions",
                absl::StrCat(R"({"prompt": ")", std::string(kLong, 'w'), R"("})"));
    return client;
  }
  Client Connect() const { return Client(server_->address().port); }
  std::string Health() const {
    const Client client = Connect();
    client.Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return client.Read();
  }

  FakeTextService service_;
  RequestQueue queue_{service_, {}};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, GoesOnAfterConnectionsThatCouldNotBeAccepted) {
  for (const int fault : {ENFILE, EMFILE, ENOBUFS, EPROTO, ECONNABORTED, EINTR}) {
    Start({.max_connections = 1});
    testing::internal::CaptureStderr();
    accept_fault = fault;
    for (int round = 0; round < 2; ++round) {
      num_accept_faults = 3;
      // The one thread accepts the first of them already; before the second it meets the faults.
      EXPECT_THAT(Health(), StartsWith("HTTP/1.1 200 OK\r\n")) << fault;
      EXPECT_THAT(Health(), StartsWith("HTTP/1.1 200 OK\r\n")) << fault;
      EXPECT_EQ(num_accept_faults, 0) << fault;
    }
    const std::string log = testing::internal::GetCapturedStderr();
    const std::string warning = absl::StrCat("cannot accept connections: ", ::strerror(fault));
    const size_t found = log.find(warning);
    // Of a client that left nothing is said; of others once, as connections came in between.
    EXPECT_EQ(found == log.npos, fault == ECONNABORTED || fault == EINTR) << log;
    if (found == log.npos) continue;
    EXPECT_EQ(log.find(warning, found + 1), log.npos) << log;
  }
}

TEST_F(HttpServerTest, GoesOnAfterFaultsOfTheLibrary) {
  Start({.max_connections = 1});
  testing::internal::CaptureStderr();
  accept_fault = ENFILE;
  fault_family = AF_UNIX;
  num_accept_faults = 2;
  for (int round = 0; round < 3; ++round) EXPECT_THAT(Health(), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(num_accept_faults, 0);
  fault_family = AF_INET;
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("cannot pass requests on"));
}

// A limit on this process's memory, of so many bytes more than it has, until its end.
class MemoryLimit {
 public:
  explicit MemoryLimit(rlim_t more_bytes) {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_EQ(::getrlimit(RLIMIT_AS, &before_), 0);
    const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + more_bytes;
    const rlimit limit = {std::min(bytes, before_.rlim_max), before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~MemoryLimit() { EXPECT_EQ(::setrlimit(RLIMIT_AS, &before_), 0); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // they need memory of their own
TEST_F(HttpServerTest, ThreadsThatCannotBeStartedAreAnError) {
  HttpOptions options{.address = {"127.0.0.1", 0}, .max_connections = 5000};
  absl::Status status;
  {
    const MemoryLimit limit(256 << 20);  // less than their stacks
    status = HttpServer::Start(options, service_.facts(), queue_).status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), absl::StrCat("cannot start 5000 threads: ", ::strerror(EAGAIN),
                                           "; lower --max-queue or raise the limit of processes"));
}
#endif

// Regular expressions of the library recurse, a frame a byte of a header of 8 KiB.
TEST_F(HttpServerTest, ThreadsHaveStacksOfSixteenMebibytes) {
  pthread_attr_t before;
  ASSERT_EQ(::pthread_getattr_default_np(&before), 0);
  pthread_attr_t small;
  ASSERT_EQ(::pthread_getattr_default_np(&small), 0);
  ::pthread_attr_setstacksize(&small, 1 << 20);
  ASSERT_EQ(::pthread_setattr_default_np(&small), 0);
  Start();
  size_t bytes = 0;
  std::thread([&bytes] {
    pthread_attr_t own;
    ::pthread_getattr_np(::pthread_self(), &own);
    ::pthread_attr_getstacksize(&own, &bytes);
    ::pthread_attr_destroy(&own);
  }).join();
  EXPECT_GE(bytes, 16 << 20);
  ::pthread_setattr_default_np(&before);
  ::pthread_attr_destroy(&before);
  ::pthread_attr_destroy(&small);
}

TEST_F(HttpServerTest, StopEndsConnectionsThatAskForNothing) {
  Start();
  const Client silent = Connect();
  const Client half = Connect();
  half.Send("GET /health HT");
  EXPECT_THAT(Health(), StartsWith("HTTP/1.1 200 OK\r\n"));
  testing::internal::CaptureStderr();
  server_->Stop();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(silent.Read(), "");
  EXPECT_THAT(half.Read(), testing::Not(HasSubstr(" 200 ")));
  server_->Stop();
}

// Long enough for tests of other limits, on any machine.
const ConnectionLimits kPatient = {.head_time = absl::InfiniteDuration(),
                                   .body_time = absl::InfiniteDuration(),
                                   .write_time = absl::InfiniteDuration()};

TEST_F(HttpServerTest, HeadsAndBodiesThatAreTooLongOrTooSlowAreRefused) {
  ConnectionLimits limits;
  limits.head_time = limits.body_time = absl::Milliseconds(50);
  Start({.connection = limits});
  const std::string post = "POST /v1/infill HTTP/1.1\r\nHost: localhost\r\n";
  for (const std::string& begin :
       {post, absl::StrCat(post, "X: ", std::string(40000, 'y')),
        absl::StrCat(post, "Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{")}) {
    const Client client = Connect();
    client.Send(begin);
    const std::string answer = client.Read();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(answer, HasSubstr("the request is broken, too long or came too slowly"));
  }
}

TEST_F(HttpServerTest, StopCutsClientsThatDoNotTakeTheirAnswers) {
  const Client stuck = AskMuch({.stop_time = absl::Milliseconds(10), .connection = kPatient});
  std::string begin(1, ' ');
  ASSERT_EQ(stuck.ReadSome(begin), 1);  // its answer is being written
  server_->Stop();
  EXPECT_LT(stuck.Read().size(), kLong);
}

TEST_F(HttpServerTest, StopWaitsForClientsThatTakeTheirAnswers) {
  const Client slow = AskMuch({.stop_time = absl::InfiniteDuration(), .connection = kPatient});
  std::string begin(1, ' ');
  ASSERT_EQ(slow.ReadSome(begin), 1);
  std::thread stopper([this] { server_->Stop(); });
  EXPECT_GT(slow.Read().size(), kLong);
  stopper.join();
}

TEST_F(HttpServerTest, AClientThatTakesALittleNowAndThenIsLeftInTheEnd) {
  ConnectionLimits limits = kPatient;
  limits.write_time = absl::Milliseconds(100);
  const Client slow = AskMuch({.connection = limits});
  size_t taken = 0;
  std::string some(4096, ' ');
  for (ssize_t bytes = 0; (bytes = slow.ReadSome(some)) > 0; absl::SleepFor(absl::Milliseconds(1)))
    taken += static_cast<size_t>(bytes);
  EXPECT_LT(taken, kLong);
}

}  // namespace
}  // namespace anyorder::launcher
