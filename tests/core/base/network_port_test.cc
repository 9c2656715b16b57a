#include "core/base/network_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <string>

#include "core/base/monotonic_clock.h"
#include "tests/testing/patience.h"

namespace anyorder {
namespace {

UniqueFd Connect(int port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

TEST(ListeningSocketTest, PausesWithoutDescriptors) {
  ListeningSocket listener = ListeningSocket::Open("127.0.0.1", 0).value();
  EXPECT_FALSE(listener.Accept().valid());
  EXPECT_FALSE(listener.is_pausing());
  const UniqueFd client = Connect(listener.port());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  testing::internal::CaptureStderr();
  const int fd = listener.PollItem().fd;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  // Twice: within a minute it is said once.
  const absl::Time soon = MonotonicNow() + kPatience;
  for (int round = 0; round < 2; ++round) {
    while (listener.is_pausing()) EXPECT_FALSE(listener.Accept().valid());
    while (listener.PollItem().fd != -1 && MonotonicNow() < soon)
      EXPECT_FALSE(listener.Accept().valid());
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(MonotonicNow(), soon);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::ContainsRegex("^[^\n]*cannot accept connections: [^\n]*\n$"));
  // The pause may end between two calls.
  UniqueFd accepted;
  while (!accepted.valid() && MonotonicNow() < soon) accepted = listener.Accept();
  EXPECT_TRUE(accepted.valid());
  EXPECT_EQ(listener.PollItem().fd, fd);
}

TEST(ListeningSocketTest, SaysWhereItCannotListen) {
  const ListeningSocket taken = ListeningSocket::Open("127.0.0.1", 0).value();
  EXPECT_THAT(ListeningSocket::Open("127.0.0.1", taken.port()).status().message(),
              testing::HasSubstr("Address already in use"));
  EXPECT_THAT(ListeningSocket::Open("no.host.invalid", 1).status().message(),
              testing::HasSubstr("cannot listen at no.host.invalid port 1: "));
}

TEST(SecretTest, IsWholeAndTheSame) {
  EXPECT_TRUE(IsSecret("secret", "secret"));
  for (const std::string said : {"", "s", "secre", "secrets", "secretsecret", "Secret", "secreT"})
    EXPECT_FALSE(IsSecret(said, "secret")) << said;
}

}  // namespace
}  // namespace anyorder
