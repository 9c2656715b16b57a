// The launcher's ears and mouth (launcher/start/health_server.h, core/liveness) for services and
// ranks that a script starts on pretended hosts; says what it thinks of them, and has them end.
// Usage: health_server_program RUN_DIR START NODES RANKS REPORT_S END_S CONTACT_S    until it is
// killed

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/liveness/rank_watchdog.h"
#include "launcher/start/health_server.h"

namespace anyorder::launcher {
namespace {

int Main(int argc, char** argv) {
  if (argc != 8) return kExitUsage;
  liveness::WatchLimits limits;
  limits.report_after = absl::Seconds(std::atoll(argv[5]));
  limits.end_after = absl::Seconds(std::atoll(argv[6]));
  limits.service_limit = absl::Seconds(std::atoll(argv[7]));
  SetLogName("launch");
  const auto server = HealthServer::Start(
      {argv[1], "hosts", std::atoll(argv[2]), /*is_distributed=*/true, limits.service_limit});
  if (!server.ok()) return ReportAndExitStatus("health_server_program", server.status());
  const std::vector<std::string> nodes = absl::StrSplit(argv[3], ',');
  liveness::RankWatchdog judge(limits, std::atoi(argv[4]), nodes);
  while (true) {
    absl::SleepFor(absl::Milliseconds(250));
    const liveness::Verdict verdict = judge.Judge((*server)->Newest(), MonotonicNow());
    for (const std::string& report : verdict.reports) LogWarning(report);
    if (verdict.end.empty()) continue;
    LogWarning("ending the ranks: " + verdict.end);
    (*server)->EndRanks(verdict.end);
  }
}

}  // namespace
}  // namespace anyorder::launcher

int main(int argc, char** argv) { return anyorder::launcher::Main(argc, argv); }
