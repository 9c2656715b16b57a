// The last rank fails a check while the others wait for it in a barrier: the job must end, not hang.

#include "core/base/check.h"
#include "core/base/status.h"
#include "dist/mpi_communicator.h"

int main(int argc, char** argv) {
  auto environment = anyorder::dist::MpiEnvironment::Create(&argc, &argv);
  if (!environment.ok())
    return anyorder::ReportAndExitStatus("abort_program", environment.status());
  const auto world = (*environment)->World();
  ANYORDER_CHECK(world->rank() + 1 != world->world_size()) << "as this test wants";
  world->Barrier();
  return 0;
}
