// What happens to a job that loses a rank while the others wait for it in a barrier: it must end,
// not hang.
//   lost_rank_program check    the last rank fails an ANYORDER_CHECK
//   lost_rank_program stuck    the last rank never comes; the watch of the others ends the job

#include <unistd.h>

#include "absl/strings/string_view.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "dist/collective_watch.h"
#include "dist/mpi_communicator.h"

namespace anyorder::dist {
namespace {

int Main(int argc, char** argv) {
  auto environment = MpiEnvironment::Create(&argc, &argv);
  if (!environment.ok()) return ReportAndExitStatus("lost_rank_program", environment.status());
  const auto world = (*environment)->World();
  const bool is_lost = world->rank() + 1 == world->world_size();
  if (argc > 1 && absl::string_view(argv[1]) == "check") {
    ANYORDER_CHECK(!is_lost) << "as this test wants";
  }
  if (is_lost) pause();
  CollectiveWatchOptions options;
  options.report_after = absl::Milliseconds(100);
  options.exit_after = absl::Milliseconds(400);
  CollectiveWatch watch(options, world->rank(), world->host());
  world->set_watch(&watch);
  world->Barrier();
  return 0;
}

}  // namespace
}  // namespace anyorder::dist

int main(int argc, char** argv) { return anyorder::dist::Main(argc, argv); }
