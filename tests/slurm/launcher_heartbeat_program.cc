// The launcher's sign of life (launcher/start/launcher_heartbeat.h) for ranks that a script starts:
// without it they end after a minute. Usage: launcher_heartbeat_program RUN_DIR START     until it
// is killed

#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "core/base/status.h"
#include "launcher/start/launcher_heartbeat.h"

int main(int argc, char** argv) {
  if (argc != 3) return anyorder::kExitUsage;
  std::optional<anyorder::launcher::LauncherHeartbeat> heartbeat;
  const absl::Status begun =
      anyorder::launcher::LauncherHeartbeat::Begin(argv[1], std::atoll(argv[2]), heartbeat);
  if (!begun.ok()) return anyorder::ReportAndExitStatus("launcher_heartbeat_program", begun);
  while (true) pause();
}
