// Where a value that is not finite came from: rank, lanes and kind. The sums over all ranks only
// say that there is one.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "dist/communicator.h"
#include "dist/parameter_partition.h"
#include "kernels/backend.h"

namespace anyorder {

struct NonfiniteFindings {
  int rank = -1;     // the lowest rank that found one; -1: each rank's own are finite
  std::string text;  // "rank 1 on node7: loss of lane 4, gradient of lanes 4 to 5"
  std::vector<int64_t> empty_lanes;  // whose recurrence memory is not finite, of all ranks, one
                                     // rank's after the other's
};

class NonfiniteFinder {
 public:
  // `backend` is borrowed. A microbatch is `micro_batch_size` lanes and gives a gradient of
  // `num_elements` in at most `num_windows` windows; this rank has `num_leaves` of them in a step.
  // ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<NonfiniteFinder>> Create(kernels::Backend& backend,
                                                                 int64_t num_elements,
                                                                 int64_t num_windows,
                                                                 int64_t micro_batch_size,
                                                                 int64_t num_leaves);

  // A new step.
  void Clear();
  // A window of the microbatch's gradient that is computed, in the backend's memory. Reads it once,
  // a fraction of what the sum over microbatches does with it, and does not wait: only Gather looks
  // at what came out.
  void ExamineWindow(ConstTensorView window);
  // The microbatch is `leaf` and gave this loss; all its windows were examined.
  void EndLeaf(int64_t leaf, double loss);
  void AddMemoryLane(int64_t lane) { memory_.push_back(lane); }

  // Collective: what all ranks found since Clear, the same on every rank.
  NonfiniteFindings Gather(dist::Communicator& communicator);

 private:
  NonfiniteFinder(kernels::Backend& backend, int64_t micro_batch_size)
      : backend_(backend), micro_batch_size_(micro_batch_size) {}
  // Lanes of the examined microbatches whose gradient is not finite.
  std::vector<dist::Range> GradientLanes();

  kernels::Backend& backend_;
  const int64_t micro_batch_size_;
  std::unique_ptr<kernels::Buffer> memory_of_sums_;
  TensorView block_sums_;  // fp64, sums of squares of the blocks of one leaf's windows
  int64_t num_sums_ = 0;   // of the leaf so far
  std::unique_ptr<kernels::Buffer> norms_;  // a NormControl of each leaf that ended
  std::vector<int64_t> examined_;           // those leaves
  std::vector<dist::Range> loss_;           // lanes, merged where they touch
  std::vector<int64_t> memory_;
};

}  // namespace anyorder
