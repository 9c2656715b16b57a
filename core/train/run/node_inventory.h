// What is known of the machines that ranks run on, for those who start ranks elsewhere:
// .launch/nodes.json (core/train/FORMAT.md), which starts and `anyorder doctor` write.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "dist/communicator.h"

namespace anyorder {

struct NodeFacts {
  int64_t host_bytes = 0;  // all of the machine's; 0, here and below: unknown
  int64_t gpus = 0;
  int64_t gpu_bytes = 0;  // of the smallest
  std::string gpu_name;
  std::string partition;  // of the Slurm job that saw it
  int64_t ranks = 0;
};
using NodeInventory = std::map<std::string, NodeFacts>;  // by the launcher's names

// Empty if there is no such file. DataLoss if it is damaged.
absl::StatusOr<NodeInventory> ReadNodes(const std::string& path);
// Keeps what the file says of other nodes. A damaged one is replaced.
absl::Status WriteNodes(const std::string& path, NodeInventory nodes);
// Collective. Rank 0 writes what all ranks see of their nodes; a warning says that it cannot.
void RecordNodes(const std::string& path, const NodeInventory& mine, dist::Communicator& ranks);

}  // namespace anyorder
