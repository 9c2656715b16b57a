// What happens to a job of which a rank fails an ANYORDER_CHECK while the others wait for it in a
// barrier: it must end, not hang.

#include "core/base/check.h"
#include "core/base/status.h"
#include "dist/mpi_communicator.h"

namespace anyorder::dist {
namespace {

int Main(int argc, char** argv) {
  auto environment = MpiEnvironment::Create(&argc, &argv);
  if (!environment.ok()) return ReportAndExitStatus("lost_rank_program", environment.status());
  const auto world = (*environment)->World();
  ANYORDER_CHECK(world->rank() + 1 < world->world_size()) << "as this test wants";
  world->Barrier();
  return 0;
}

}  // namespace
}  // namespace anyorder::dist

int main(int argc, char** argv) { return anyorder::dist::Main(argc, argv); }
