// Ranks as threads of one process, for tests of logic that needs several ranks but not MPI.

#pragma once

#include <functional>
#include <string>

#include "dist/communicator.h"

namespace anyorder::testing {

// Runs body(communicator of rank r) on one thread for each rank and waits for all. Ranks that call
// different collectives at the same time abort with both names instead of hanging. All are on
// `host`, or each rank on a host thread0, thread1, ... of its own.
void RunThreadRanks(int num_ranks, const std::function<void(dist::Communicator&)>& body,
                    const std::string& host = "");

}  // namespace anyorder::testing
