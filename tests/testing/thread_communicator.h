// Ranks as threads of one process, for tests of logic that needs several ranks but not MPI.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dist/communicator.h"

namespace anyorder::testing {

// What a rank sent to another: one message for each block that is not empty.
struct Sent {
  int64_t messages = 0;
  int64_t bytes = 0;
};
using Traffic = std::vector<std::map<int, Sent>>;  // [num_ranks], by receiver

struct ThreadRanksOptions {
  std::string host;  // of all ranks; "": each rank is on a host thread0, thread1, ... of its own
  // Counts what ranks send, if not null. A rank writes its own element only.
  Traffic* traffic = nullptr;
  // Of larger blocks nothing but the length arrives: for counts of what would not fit in memory.
  int64_t most_moved_bytes = INT64_MAX;
};

// Runs body(communicator of rank r) on one thread for each rank and waits for all. A message that
// belongs to another collective than its receiver is in, or has another length than it expects,
// aborts with both names instead of hanging.
void RunThreadRanks(int num_ranks, const std::function<void(dist::Communicator&)>& body,
                    const ThreadRanksOptions& options = {});

}  // namespace anyorder::testing
