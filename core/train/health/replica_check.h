// Whether all ranks compute with the same weights: digests of their copies (kernels/digest.h), or
// of the windows that they have gathered, are compared when the gradients of a step are done and
// before the update, so that what is found has reached neither the optimizer's state nor a
// checkpoint (README.md).

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "core/network/tensors/parameters.h"
#include "core/train/state/training_state.h"
#include "dist/communicator.h"
#include "kernels/backend.h"

namespace anyorder {

class ReplicaCheck {
 public:
  // Compares in every `every`-th step; 0: never. All are borrowed.
  ReplicaCheck(int64_t every, const ParameterLayout& layout, dist::Communicator& communicator,
               kernels::Backend& backend)
      : every_(every), layout_(layout), communicator_(communicator), backend_(backend) {}

  // Local, before the weights are set for the first time; `weights` are borrowed.
  // ResourceExhausted.
  absl::Status Watch(dist::WeightWindows& weights);
  bool IsDue(int64_t step) const { return IsNeeded() && step % every_ == 0; }
  // Collective. Unavailable, the same on all ranks, naming the ranks whose weights are not the
  // rounded master weights of their owners, and the first tensor in which they differ. `step`: the
  // step whose gradients are done.
  absl::Status Compare(int64_t step, TrainingState& state);

 private:
  bool IsNeeded() const { return every_ > 0 && communicator_.world_size() > 1; }
  // Weights that differ from what they should be.
  struct Difference {
    int64_t count = 0;
    int64_t first = -1;  // element
  };
  void Digest(size_t window, ConstTensorView weights, StreamView stream);
  absl::Status NameDiffering(int64_t step, TrainingState& state);
  // mine, truth: a window that begins at element `begin`.
  void Find(ConstTensorView mine, ConstTensorView truth, int64_t begin, Difference& found) const;
  std::string Describe(const Difference& found) const;

  const int64_t every_;
  const ParameterLayout& layout_;
  dist::Communicator& communicator_;
  kernels::Backend& backend_;
  std::unique_ptr<kernels::Buffer> digests_;  // [windows, 2] int64, of the device
};

}  // namespace anyorder
