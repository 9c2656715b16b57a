// The Open MPI that a bundle brings along (launcher/package/make_bundle.py), for machines that have
// none.

#pragma once

#include <string>

namespace anyorder::dist {

// ROOT/mpi if `program` is ROOT/bin/NAME and that directory has an mpirun, else "".
std::string BundledMpi(const std::string& program);

// Where this process's program has one: PATH finds its mpirun first, and OPAL_PREFIX leads Open MPI
// to its own plugins instead of those of the machine, whose version may be another. An OPAL_PREFIX
// that is set already wins, and then nothing changes. Before MPI_Init, and before the process has a
// second thread.
void UseBundledMpi();

}  // namespace anyorder::dist
