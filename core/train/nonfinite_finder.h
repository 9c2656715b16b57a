// Where a value that is not finite came from: rank, lanes and kind. The sums over all ranks only say that there is one.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/parameter_partition.h"
#include "kernels/backend.h"

namespace anyorder {

struct NonfiniteFindings {
  int rank = -1;     // the lowest rank that found one; -1: each rank's own are finite
  std::string text;  // "rank 1 on node7: loss of lane 4, gradient of lanes 4 to 5"
  std::vector<int64_t>
      empty_lanes;  // whose recurrence memory is not finite, of all ranks, in order
};

class NonfiniteFinder {
 public:
  // `backend` is borrowed. A microbatch is `microbatch_lanes` lanes and gives a gradient of `num_elements`.
  NonfiniteFinder(kernels::Backend& backend, int64_t num_elements, int64_t microbatch_lanes);

  // A new step.
  void Clear();
  // What microbatch `leaf` gave. Reads the gradient once: a fraction of what the sum over microbatches does with it.
  void Examine(int64_t leaf, double loss, const float* gradient);
  void AddMemoryLane(int64_t lane) { memory_.push_back(lane); }

  // Collective: what all ranks found since Clear, the same on every rank.
  NonfiniteFindings Gather(dist::Communicator& communicator) const;

 private:
  kernels::Backend& backend_;
  const int64_t num_elements_;
  const int64_t microbatch_lanes_;
  std::vector<double> block_sums_;
  std::vector<dist::Range> loss_;  // lanes, merged where they touch
  std::vector<dist::Range> gradient_;
  std::vector<int64_t> memory_;
};

}  // namespace anyorder
