// The launcher's sign of life (launcher/start/supervisor.h) for ranks that a script starts: without
// it they end after a minute.
// Usage: supervisor_program RUN_DIR START     until it is killed

#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "core/base/status.h"
#include "launcher/start/supervisor.h"

int main(int argc, char** argv) {
  if (argc != 3) return anyorder::kExitUsage;
  std::optional<anyorder::launcher::Supervisor> supervisor;
  const absl::Status begun =
      anyorder::launcher::Supervisor::Begin(argv[1], std::atoll(argv[2]), supervisor);
  if (!begun.ok()) return anyorder::ReportAndExitStatus("supervisor_program", begun);
  while (true)
    pause();
}
