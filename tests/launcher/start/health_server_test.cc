// Launcher, service and ranks over loopback: who hears of whom, and who ends whom.

#include "launcher/start/health_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

#include "ckpt/health_relay.h"
#include "ckpt/rank_link.h"
#include "core/base/file_system.h"
#include "core/base/monotonic_clock.h"
#include "tests/launcher/accept_faults.h"
#include "tests/testing/frame.h"
#include "tests/testing/patience.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::HasSubstr;

// A rank: a page, a link, and what it was told when it had to end.
class Rank {
 public:
  Rank(const std::string& socket_path, int rank,
       absl::Duration service_limit = absl::InfiniteDuration())
      : page_(liveness::RankPage::Create(rank, "node7").value()),
        link_(std::make_unique<ckpt::RankLink>(
            ckpt::RankLinkOptions{socket_path, "run", 3, service_limit,
                                  [this](const std::string& why) {
                                    why_ = why;
                                    ended_.Notify();
                                  }},
            *page_)) {}
  void Leave() {
    page_->SetPhase("end");
    link_.reset();
  }
  liveness::RankPage& page() { return *page_; }
  std::string WhyEnded() {
    ended_.WaitForNotification();
    return why_;
  }
  bool has_ended() const { return ended_.HasBeenNotified(); }

 private:
  const std::unique_ptr<liveness::RankPage> page_;
  std::string why_;
  absl::Notification ended_;
  std::unique_ptr<ckpt::RankLink> link_;
};

// The service's sockets without the rest of it.
class HealthServerTest : public ::testing::Test {
 protected:
  HealthServerTest() { std::filesystem::create_directories(directory_.path() + "/.launch"); }

  std::string path() const { return ckpt::LauncherEndpointPath(directory_.path(), 3); }
  std::string socket_path() const { return directory_.path() + "/s/socket"; }
  std::unique_ptr<HealthServer> Listen(HealthServerOptions options = {}) {
    options.run_dir = directory_.path();
    options.run_id = "run";
    options.attempt = 3;
    options.is_distributed = true;
    return HealthServer::Start(options).value();
  }
  // Strangers are not closed for being slow.
  std::unique_ptr<HealthServer> ListenPatiently() {
    return Listen({.stranger_limit = absl::InfiniteDuration()});
  }
  std::vector<ckpt::Channel> Strangers(int number) const {
    std::vector<ckpt::Channel> strangers;
    for (int i = 0; i < number; ++i)
      strangers.push_back(ckpt::ConnectToLauncher("127.0.0.1", Endpoint().port, kPatience).value());
    return strangers;
  }
  static void Send(const ckpt::Channel& stranger, absl::string_view bytes) {
    EXPECT_EQ(::send(stranger.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static ckpt::Channel Accept(ListeningSocket& listener) {
    UniqueFd fd = listener.Accept();
    for (const absl::Time soon = MonotonicNow() + kPatience; !fd.valid() && MonotonicNow() < soon;
         fd = listener.Accept())
      absl::SleepFor(absl::Milliseconds(1));
    EXPECT_TRUE(fd.valid());
    return ckpt::Channel(std::move(fd));
  }
  // Is cut off before anything is said to it.
  static bool IsCutOff(ckpt::Channel& stranger) {
    return absl::IsUnavailable(stranger.Receive(MonotonicNow() + kPatience).status());
  }
  // That many reports, from now on, are heard.
  static void ExpectHeard(const HealthServer& server, int number = 3) {
    for (absl::Time last = MonotonicNow(); number > 0; --number)
      last = Await(server, [last](const auto& node) { return node.now > last; }).now;
  }
  ckpt::LauncherEndpoint Endpoint(const std::string& address = "127.0.0.1") const {
    ckpt::LauncherEndpoint endpoint =
        ckpt::ReadLauncherEndpoint(FileSystem::Posix(), path()).value();
    endpoint.addresses = {address};
    return endpoint;
  }
  static std::unique_ptr<ckpt::HealthRelay> Relay(const ckpt::LauncherEndpoint& endpoint) {
    return std::make_unique<ckpt::HealthRelay>(
        ckpt::HealthRelayOptions{"run", 3, 1, endpoint, absl::Milliseconds(5)});
  }
  // Hands connections of ranks to the relay, as the service does, until `is_done`.
  void ServeUntil(ckpt::HealthRelay& relay, const std::function<bool()>& is_done) {
    while (!is_done()) {
      absl::StatusOr<ckpt::Channel> channel = ckpt::AcceptChannel(listener_);
      if (channel.ok()) {
        ckpt::Message message = channel->Receive(MonotonicNow() + kPatience).value();
        relay.Adopt(*std::move(channel), std::move(std::get<ckpt::Watch>(message.body).fd));
      }
      absl::SleepFor(absl::Milliseconds(2));
    }
  }
  // The report of the node once it says `is_so`.
  static liveness::NodeReport Await(const HealthServer& server,
                                    const std::function<bool(const liveness::NodeReport&)>& is_so) {
    while (true) {
      const std::vector<liveness::NodeReport> health = server.Newest();
      if (!health.empty() && is_so(health[0])) return health[0];
      absl::SleepFor(absl::Milliseconds(2));
    }
  }

  const TemporaryDirectory directory_;
  ListeningSocket listener_ = ckpt::ListenOn(socket_path()).value();
};

TEST_F(HealthServerTest, TheLauncherLearnsWhatRanksDoAndHowTheyLeave) {
  const auto server = Listen();
  struct stat info {};
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto relay = Relay(Endpoint());
  Rank rank(socket_path(), 1);
  rank.page().SetPhase("step 12");
  ServeUntil(*relay, [&] { return relay->num_ranks() == 1; });
  const liveness::NodeReport report = Await(*server, [](const auto& node) {
    return !node.ranks.empty() && node.ranks[0].state.ticks > 1;
  });
  EXPECT_EQ(report.node, 1);
  EXPECT_TRUE(report.ranks[0].is_connected);
  EXPECT_EQ(report.file_wait, absl::ZeroDuration());
  EXPECT_THAT(report.ranks[0].state.ToString(), HasSubstr("rank 1 on node7"));
  EXPECT_THAT(report.ranks[0].state.ToString(), HasSubstr("in phase 'step 12'"));
  relay->BeginFileCall();
  Await(*server, [](const auto& node) { return node.file_wait > absl::Milliseconds(1); });
  relay->EndFileCall();
  Await(*server, [](const auto& node) { return node.file_wait == absl::ZeroDuration(); });
  rank.Leave();
  const liveness::NodeReport last =
      Await(*server, [](const auto& node) { return !node.ranks[0].is_connected; });
  EXPECT_EQ(last.ranks[0].state.phase, "end");
  EXPECT_EQ(relay->num_ranks(), 0);
}

TEST_F(HealthServerTest, AServiceSaysAtOnceThatItServes) {
  const auto server = Listen();
  ckpt::HealthRelay relay({"run", 3, 1, Endpoint(), absl::Seconds(1000)});
  EXPECT_FALSE(server->AreServing(1));
  relay.SetServing();
  while (!server->AreServing(1)) absl::SleepFor(absl::Milliseconds(2));
  EXPECT_FALSE(server->AreServing(2));
}

TEST_F(HealthServerTest, AHostMayHaveIPv6Only) {
  const auto server = Listen();
  if (!ckpt::ConnectToLauncher("::1", Endpoint().port, absl::Seconds(10)).ok())
    GTEST_SKIP() << "no IPv6 here";
  const auto relay = Relay(Endpoint("::1"));
  EXPECT_EQ(Await(*server, [](const auto&) { return true; }).node, 1);
}

// A launcher that loses its connections, by an end that is seen and by one that is not.
TEST_F(HealthServerTest, AServiceThatIsCutOffComesBack) {
  ckpt::LauncherEndpoint endpoint{{"127.0.0.1"}, 0, "token", absl::InfiniteDuration()};
  ListeningSocket listener = ListeningSocket::Open("127.0.0.1", 0).value();
  endpoint.port = listener.port();
  ckpt::HealthRelay relay(
      {"run", 3, 1, endpoint, absl::Milliseconds(5), /*reconnect_after=*/absl::Milliseconds(100)});
  std::vector<ckpt::Channel> silent;  // stay open
  for (const bool is_closed : {true, false, true}) {
    ckpt::Channel channel = Accept(listener);
    const absl::Time soon = MonotonicNow() + kPatience;
    const ckpt::Message first = channel.Receive(soon).value();
    EXPECT_EQ(std::get<ckpt::Attach>(first.body).token, "token");
    const ckpt::Message second = channel.Receive(soon).value();
    EXPECT_TRUE(std::holds_alternative<ckpt::Report>(second.body));
    if (!is_closed) silent.push_back(std::move(channel));
  }
}

// Who listens there when the launcher is gone may be anybody.
TEST_F(HealthServerTest, AServiceReadsNoLongFrames) {
  ListeningSocket listener = ListeningSocket::Open("127.0.0.1", 0).value();
  const ckpt::LauncherEndpoint endpoint{
      {"127.0.0.1"}, listener.port(), "token", absl::InfiniteDuration()};
  ckpt::HealthRelay relay({"run", 3, 1, endpoint, absl::Milliseconds(5),
                           /*reconnect_after=*/absl::InfiniteDuration()});
  std::vector<ckpt::Channel> channels;
  for (const uint32_t claimed : {ckpt::kMaxLauncherBytes + 1, UINT_MAX, 0u}) {
    channels.push_back(Accept(listener));
    Send(channels.back(), Frame("", claimed));
  }
}

// What a service says after it came back is heard, and it is told again what it may have missed.
TEST_F(HealthServerTest, AServiceThatComesBackIsToldToEndItsRanks) {
  const auto server = Listen();
  auto relay = Relay(Endpoint());
  relay->SetServing();
  Await(*server, [](const auto& node) { return node.is_serving; });
  server->EndRanks("rank 0 hangs");
  relay = Relay(Endpoint());
  Await(*server, [](const auto& node) { return !node.is_serving; });
  Rank rank(socket_path(), 1);
  ServeUntil(*relay, [&] { return rank.has_ended(); });
  EXPECT_EQ(rank.WhyEnded(), "rank 0 hangs");
}

TEST_F(HealthServerTest, TheEndOfAStartEndsItsRanksWhereverTheyAre) {
  auto server = Listen();
  const auto relay = Relay(Endpoint());
  Rank rank(socket_path(), 1);
  ServeUntil(*relay, [&] { return relay->num_ranks() == 1; });
  Await(*server, [](const auto&) { return true; });
  server->EndRanks("rank 0 hangs");
  EXPECT_EQ(rank.WhyEnded(), "rank 0 hangs");
  // One that comes later, too.
  Rank late(socket_path(), 0);
  ServeUntil(*relay, [&] { return late.has_ended(); });
  server.reset();
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(HealthServerTest, RanksThatAreCutOffFromTheirLauncherEnd) {
  const auto server = Listen({.silence_limit = absl::Milliseconds(300)});
  ckpt::LauncherEndpoint nowhere = Endpoint();
  nowhere.port = 1;
  const auto relay = Relay(nowhere);
  Rank rank(socket_path(), 1);
  ServeUntil(*relay, [&] { return rank.has_ended(); });
  EXPECT_THAT(rank.WhyEnded(), HasSubstr("nothing heard from the launcher"));
  EXPECT_THAT(relay->TakeNotes(), ::testing::Contains(HasSubstr("no connection to the launcher")));
}

TEST_F(HealthServerTest, WhoDoesNotKnowTheTokenIsNotHeard) {
  const auto server = Listen();
  ckpt::LauncherEndpoint endpoint = Endpoint();
  endpoint.token.back() = endpoint.token.back() == '0' ? '1' : '0';
  ckpt::Channel stranger = ckpt::ConnectToLauncher("127.0.0.1", endpoint.port, kPatience).value();
  ::testing::internal::CaptureStderr();
  const absl::Time soon = MonotonicNow() + kPatience;
  ASSERT_TRUE(stranger.Send({"run", 3, ckpt::Attach{endpoint.token}}, soon).ok());
  liveness::NodeReport report;
  report.node = 1;
  stranger.Send({"run", 3, ckpt::Report{SerializeNodeReport(report)}}, soon).IgnoreError();
  EXPECT_TRUE(absl::IsUnavailable(stranger.Receive(soon).status()));
  EXPECT_TRUE(server->Newest().empty());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("does not know this start's token"));
}

TEST_F(HealthServerTest, NoMoreThan4KiBAreReadOfWhoHasNotShownTheToken) {
  const auto server = ListenPatiently();
  const std::string attach = ckpt::SerializeMessage({"run", 3, ckpt::Attach{Endpoint().token}});
  auto strangers = Strangers(6);
  // With the token itself, one byte too long; the claim of a long frame, of which nothing comes.
  const std::string most = attach + std::string(ckpt::kMaxStrangerBytes - attach.size(), ' ');
  Send(strangers[0], Frame(most + " ", most.size() + 1));
  Send(strangers[1], Frame("", most.size() + 1));
  Send(strangers[2], Frame("", UINT_MAX));
  Send(strangers[3], "GET / HTTP/1.1\r\n");
  Send(strangers[4], Frame(std::string(most.size(), '['), most.size()));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(IsCutOff(strangers[i]));
  Send(strangers[5], Frame(most, most.size()));
  EXPECT_TRUE(strangers[5].Receive(MonotonicNow() + kPatience).ok());
  // From here on its messages may be longer.
  liveness::NodeReport report;
  report.node = 1;
  report.host = std::string(2 * ckpt::kMaxStrangerBytes, 'h');
  const absl::Time soon = MonotonicNow() + kPatience;
  EXPECT_TRUE(strangers[5].Send({"run", 3, ckpt::Report{SerializeNodeReport(report)}}, soon).ok());
  EXPECT_EQ(Await(*server, [](const auto&) { return true; }).host, report.host);
}

TEST_F(HealthServerTest, StrangersPushOutEachOtherAndNoService) {
  auto server = ListenPatiently();
  const auto relay = Relay(Endpoint());
  ExpectHeard(*server, 1);
  // They say nothing, or begin a frame.
  std::vector<ckpt::Channel> strangers = Strangers(16);
  for (ckpt::Channel& stranger : strangers) Send(stranger, "AOCK\x10");
  for (ckpt::Channel& late : Strangers(200)) strangers.push_back(std::move(late));
  const std::vector<ckpt::Channel> newest = Strangers(16);
  for (ckpt::Channel& stranger : strangers) ASSERT_TRUE(IsCutOff(stranger));
  // The newest of them may stay, which is no reason not to hear a new service.
  const auto again = Relay(Endpoint());
  again->SetServing();
  Await(*server, [](const auto& node) { return node.is_serving; });
  ExpectHeard(*server);
  char byte = 0;
  EXPECT_EQ(::recv(newest.back().fd(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  server.reset();
}

TEST_F(HealthServerTest, WhoIsSilentForTooLongIsCutOff) {
  {
    const auto server = Listen({.stranger_limit = absl::Milliseconds(20)});
    auto strangers = Strangers(2);
    Send(strangers[1], "AOCK\x10");
    ASSERT_TRUE(IsCutOff(strangers[0]));
    ASSERT_TRUE(IsCutOff(strangers[1]));
  }
  const auto server =
      Listen({.stranger_limit = absl::InfiniteDuration(), .member_limit = absl::Milliseconds(50)});
  auto members = Strangers(1);
  const absl::Time soon = MonotonicNow() + kPatience;
  ASSERT_TRUE(members[0].Send({"run", 3, ckpt::Attach{Endpoint().token}}, soon).ok());
  absl::StatusOr<ckpt::Message> said = members[0].Receive(soon);
  while (said.ok()) said = members[0].Receive(soon);
  EXPECT_TRUE(absl::IsUnavailable(said.status()));
}

TEST_F(HealthServerTest, ALackOfDescriptorsIsWaitedFor) {
  const auto server = HealthServer::Start({.run_dir = directory_.path(),
                                           .run_id = "run",
                                           .attempt = 3,
                                           .stranger_limit = absl::InfiniteDuration()})
                          .value();
  const auto relay = Relay(Endpoint());
  ExpectHeard(*server, 1);
  auto idle = Strangers(2);
  ExpectHeard(*server);  // so they are accepted
  ::testing::internal::CaptureStderr();
  const absl::Time began = MonotonicNow();
  accept_fault = EMFILE;
  num_accept_faults = INT_MAX;
  idle.push_back(std::move(Strangers(1)[0]));
  while (MonotonicNow() - began < absl::Milliseconds(300)) ExpectHeard(*server);
  // Those who could wait for ever give theirs back.
  ASSERT_TRUE(IsCutOff(idle[0]));
  ASSERT_TRUE(IsCutOff(idle[1]));
  const int calls = INT_MAX - num_accept_faults.exchange(0);
  EXPECT_LE(calls, (MonotonicNow() - began) / absl::Milliseconds(100) + 1);
  ASSERT_TRUE(
      idle[2].Send({"run", 3, ckpt::Attach{Endpoint().token}}, MonotonicNow() + kPatience).ok());
  EXPECT_TRUE(idle[2].Receive(MonotonicNow() + kPatience).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("cannot accept connections: Too many open files"));
}

TEST_F(HealthServerTest, HasDescriptorsForAllNodesWhereItMay) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {100, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto server = Listen({.num_nodes = 50});
  rlimit raised{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &raised), 0);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(raised.rlim_cur, 228u);
}

TEST_F(HealthServerTest, ARankWhoseServiceIsGoneEnds) {
  auto relay = Relay({{"127.0.0.1"}, 1, "x", absl::InfiniteDuration()});
  Rank rank(socket_path(), 1, absl::Milliseconds(500));
  ServeUntil(*relay, [&] { return relay->num_ranks() == 1; });
  EXPECT_FALSE(rank.has_ended());
  listener_ = ListeningSocket();
  relay.reset();
  EXPECT_THAT(rank.WhyEnded(), HasSubstr("its checkpoint service has been gone"));
}

}  // namespace
}  // namespace anyorder::launcher
