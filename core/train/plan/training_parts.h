// What a rank sets up for its steps: the network, the sums of gradients, the state, and what looks
// for faults in them. All memory that a step needs is taken here, of whatever backend it is: a
// trainer's, or one that only counts (memory_plan.h).

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"

#include "core/network/transformer.h"
#include "core/objective/objective.h"
#include "core/train/health/nonfinite_finder.h"
#include "core/train/health/replica_check.h"
#include "core/train/run/run_config.h"
#include "core/train/state/training_state.h"
#include "dist/communicator.h"
#include "dist/device_transport.h"
#include "dist/gradient_reducer.h"
#include "kernels/backend.h"

namespace anyorder {

struct TrainingParts {
  // What travels with the gradient in each step's reduction; sums over all microbatches. Those of
  // the heads follow: sum and weight of each of Transformer::sums().
  enum Scalar : int {
    kLossSum,
    kDivisor,
    kStopWishes,    // ranks that got a stop signal
    kFaults,        // ranks with a problem of their own
    kSaveRefusals,  // ranks that cannot take the save that is due
    kSamplesHigh,   // data::StepDigest of all lanes
    kSamplesLow,
    kHeadSums,
  };

  // What the parts are made of, borrowed.
  struct Ground {
    const RunConfig& config;
    const Objective& objective;
    int64_t vocab_size;
    dist::Communicator& communicator;
    kernels::Backend& backend;
    dist::DeviceTransport& transport;
    int64_t min_slice_elements = dist::kMinSliceElements;
  };

  std::unique_ptr<Transformer> network;
  std::unique_ptr<dist::GradientReducer> reducer;
  std::unique_ptr<ReplicaCheck> replica_check;
  std::unique_ptr<NonfiniteFinder> finder;
  std::unique_ptr<TrainingState> state;

  // Local. `examines`: whether the leaf under way is to be searched for what is not finite.
  // ResourceExhausted, and whatever the settings' own checks say.
  absl::Status SetUp(const Ground& ground, std::function<bool()> examines);

  size_t num_scalars() const { return kHeadSums + 2 * network->sums().size(); }
  // For the next microbatch, without its batch and memory.
  StepArgs MicrobatchArgs(int64_t seed);
};

}  // namespace anyorder
