// What the launcher of a run reads of others: lists of hosts, the file that says where it listens,
// and what comes to that port, from strangers and from services.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "ckpt/launcher_endpoint.h"
#include "ckpt/protocol.h"
#include "core/liveness/node_report.h"
#include "core/liveness/straggler_finder.h"
#include "launcher/process/host_names.h"
#include "launcher/start/health_server.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/frame.h"

namespace anyorder::fuzz {
namespace {

// --- Reports of a node

liveness::NodeReport SmallReport() {
  liveness::NodeReport report{.node = 1,
                              .host = "node\t7",
                              .now = absl::FromUnixSeconds(9),
                              .file_wait = absl::Milliseconds(20),
                              .is_serving = true};
  for (int rank = 0; rank < 2; ++rank) {
    liveness::RankReport& one = report.ranks.emplace_back();
    static_cast<liveness::RankNumbers&>(one.state) = {
        .rank = rank, .process_id = 4711 + rank, .ticks = 5, .num_phases = 3, .number = 57};
    one.state.times = {.steps = 12, .compute_ns = 3'000'000'000, .communication_ns = 9};
    one.state.host = "node\t7";
    one.state.phase = "step 12";
    one.state.collective = "AllGather";
    one.is_connected = true;
  }
  return report;
}

std::vector<std::string> ReportSeeds() {
  liveness::NodeReport later = SmallReport();
  for (liveness::RankReport& rank : later.ranks) rank.state.times.steps = 40;
  return {liveness::SerializeNodeReport(SmallReport()), liveness::SerializeNodeReport(later),
          liveness::SerializeNodeReport({})};
}

// What was taken is written and taken again, and judged as a start's.
void UseReport(absl::string_view text) {
  const auto report = liveness::ParseNodeReport(text);
  if (!report.ok()) return;
  const std::string written = liveness::SerializeNodeReport(*report);
  const auto again = liveness::ParseNodeReport(written);
  ANYORDER_CHECK_OK(again.status());
  ANYORDER_CHECK(liveness::SerializeNodeReport(*again) == written) << written;
  liveness::StragglerFinder finder(1.2, 2);
  for (const auto& reports : {ValueOrDie(liveness::ParseNodeReport(ReportSeeds()[0])), *report}) {
    for (const liveness::RankReport& rank : reports.ranks) {
      ANYORDER_CHECK(!rank.state.ToString().empty());
      finder.Take(rank.state);
    }
    finder.Judge();
    finder.Paces();
  }
}

// --- Where the launcher listens

std::vector<std::string> EndpointSeeds() {
  const ckpt::LauncherEndpoint endpoint{.addresses = {"10.0.0.3", "fe80::1", "127.0.0.1"},
                                        .port = 4711,
                                        .token = "0123456789abcdef",
                                        .silence_limit = absl::Minutes(1)};
  ckpt::LauncherEndpoint local = endpoint;
  local.silence_limit = absl::InfiniteDuration();
  return {ckpt::SerializeLauncherEndpoint(endpoint), ckpt::SerializeLauncherEndpoint(local)};
}

void UseEndpoint(absl::string_view text) {
  static const ScratchDirectory scratch;
  const auto read = [](absl::string_view bytes) {
    return ckpt::ReadLauncherEndpoint(FileSystem::Posix(), scratch.Store("health-1", bytes));
  };
  const auto endpoint = read(text);
  if (!endpoint.ok()) return;
  ANYORDER_CHECK(!endpoint->addresses.empty() && endpoint->port > 0 && endpoint->port <= 65535);
  ANYORDER_CHECK(endpoint->silence_limit > absl::ZeroDuration());
  const std::string written = ckpt::SerializeLauncherEndpoint(*endpoint);
  ANYORDER_CHECK(ckpt::SerializeLauncherEndpoint(ValueOrDie(read(written))) == written) << written;
}

// --- What comes to its port

constexpr char kRun[] = "run";
constexpr int kAttempt = 3;

// The first byte of an input says who sends the others, and in what.
enum SentAs : uint8_t { kByMember = 1, kAsBody = 2, kAsReport = 4 };

// A launcher of its own for some inputs: it keeps a report of each node.
class Launcher {
 public:
  Launcher() {
    std::filesystem::create_directories(scratch_.path() + "/.launch");
    server_ = ValueOrDie(launcher::HealthServer::Start(
        {.run_dir = scratch_.path(), .run_id = kRun, .attempt = kAttempt}));
    endpoint_ = ValueOrDie(ckpt::ReadLauncherEndpoint(
        FileSystem::Posix(), ckpt::LauncherEndpointPath(scratch_.path(), kAttempt)));
  }

  static std::string AsMessage(ckpt::MessageBody body) {
    return Frame(ckpt::SerializeMessage({kRun, kAttempt, std::move(body)}));
  }

  // Sends it, and returns when the launcher has closed the connection.
  void Take(uint8_t sent_as, absl::string_view text) const {
    std::string sent = sent_as & kByMember ? AsMessage(ckpt::Attach{.token = endpoint_.token}) : "";
    absl::StrAppend(&sent, sent_as & kAsReport ? AsMessage(ckpt::Report{std::string(text)})
                           : sent_as & kAsBody ? Frame(text)
                                               : std::string(text));
    const ckpt::Channel channel = ValueOrDie(
        ckpt::ConnectToLauncher(endpoint_.addresses[0], endpoint_.port, absl::Seconds(9)));
    for (absl::string_view rest = sent; !rest.empty();) {
      const ssize_t bytes = ::send(channel.fd(), rest.data(), rest.size(), MSG_NOSIGNAL);
      if (bytes <= 0 && errno != EAGAIN) break;
      if (bytes > 0) rest.remove_prefix(static_cast<size_t>(bytes));
      if (bytes <= 0 && HasClosed(channel)) break;
    }
    ::shutdown(channel.fd(), SHUT_WR);
    while (!HasClosed(channel)) {
    }
    server_->Newest();
    server_->AreServing(1);
  }

 private:
  // Waits a little for what comes, of which a stranger gets nothing.
  static bool HasClosed(const ckpt::Channel& channel) {
    pollfd item = {channel.fd(), POLLIN, 0};
    ::poll(&item, 1, 10);
    char piece[4096];
    const ssize_t bytes = ::recv(channel.fd(), piece, sizeof piece, MSG_DONTWAIT);
    return bytes == 0 || (bytes < 0 && errno != EAGAIN);
  }

  const ScratchDirectory scratch_;
  std::unique_ptr<launcher::HealthServer> server_;
  ckpt::LauncherEndpoint endpoint_;
};

std::vector<std::string> FrameSeeds() {
  const std::string report = ReportSeeds()[0];
  const std::string alive = ckpt::SerializeMessage({kRun, kAttempt, ckpt::Alive{}});
  const auto form = [](int sent_as) { return std::string(1, static_cast<char>(sent_as)); };
  std::vector<std::string> seeds = {form(kByMember | kAsReport) + report,
                                    form(kByMember | kAsBody) + alive,
                                    form(kByMember) + Launcher::AsMessage(ckpt::Report{report}),
                                    form(kAsBody) + alive, form(0) + "GET / HTTP/1.1\r\n\r\n"};
  for (const size_t claimed : {size_t{4} << 10, size_t{16} << 20, size_t{0xffffffff}}) {
    seeds.push_back(form(0) + Frame(std::string(5000, '['), claimed));
    seeds.push_back(form(kByMember) + Frame(std::string(70000, '['), claimed));
  }
  return seeds;
}

void UseFrames(absl::string_view input) {
  constexpr int kInputsOfOne = 4096;
  static std::unique_ptr<Launcher> launcher;
  static int count = 0;
  if (input.empty()) return;
  if (count++ % kInputsOfOne == 0) launcher = std::make_unique<Launcher>();
  launcher->Take(static_cast<uint8_t>(input[0]), input.substr(1));
}

// --- Hosts

std::vector<std::string> HostSeeds() {
  std::string many = "# three racks\n";
  for (const char* rack : {"a", "b", "c"}) absl::StrAppend(&many, rack, "[1-4096] slots=8\n");
  return {"a:2,b:2", "node[01-04,7]:2,x[1-2]y[3,05]", "a slots=2 max_slots=4 # x\n\nb\n",
          many,      "10.0.0.1:1048576,10.0.0.1",     "a[4294967290-4294967295]"};
}

// As the value of --hosts, and as a file.
void UseHosts(absl::string_view text) {
  static const ScratchDirectory scratch;
  constexpr int64_t kRanks = 5, kMostRanks = 1 << 20;
  for (const std::string& named : {std::string(text), scratch.Store("hosts", text)}) {
    const auto hosts = launcher::ReadHosts(named);
    if (!hosts.ok()) continue;
    ANYORDER_CHECK(!hosts->empty());
    int64_t ranks = 0;
    for (const launcher::HostSlots& host : *hosts) {
      ANYORDER_CHECK(!host.name.empty() && host.name[0] != '-' && host.slots >= 1) << host.name;
      ranks += host.slots;
    }
    ANYORDER_CHECK(ranks <= kMostRanks) << ranks;
    int64_t filled = 0;
    for (const launcher::HostSlots& host : launcher::FillSlots(*hosts, kRanks))
      filled += host.slots;
    ANYORDER_CHECK(filled == std::min(ranks, kRanks)) << filled;
  }
}

const bool registered[] = {
    Register({"node_report", ReportSeeds, UseReport}),
    Register({"launcher_endpoint", EndpointSeeds, UseEndpoint}),
    Register({"health_frames", FrameSeeds, UseFrames}),
    Register({"hosts", HostSeeds, UseHosts}),
};

}  // namespace
}  // namespace anyorder::fuzz
