#include "core/train/plan/training_parts.h"

#include <utility>
#include <vector>

#include "core/base/status.h"

namespace anyorder {

absl::Status TrainingParts::SetUp(const Ground& ground, std::function<bool()> examines) {
  const RunConfig& config = ground.config;
  kernels::Backend& backend = ground.backend;
  backend.set_purpose("activations");
  ASSIGN_OR_RETURN(
      network, Transformer::Create(config.TrainedModel(), ground.vocab_size,
                                   ground.objective.Shape(config.train.micro_batch_size), backend,
                                   config.train.retention()));
  dist::GradientReducerOptions reduction;
  reduction.num_elements = network->layout().num_elements();
  reduction.num_leaves = config.train.num_microbatches();
  reduction.num_scalars = static_cast<int>(num_scalars());
  reduction.leaves_per_exchange = config.dist.leaves_per_exchange;
  const bool is_sharded = config.dist.shard_weights != dist::WeightSharding::kNone &&
                          ground.communicator.world_size() > 1;
  // What reads weights by window is not recorded.
  reduction.window_begins = is_sharded ? network->layout().windows() : network->windows();
  reduction.partials = config.dist.partials;
  reduction.bucket_bytes = config.dist.bucket_mib << 20;
  reduction.min_slice_elements = ground.min_slice_elements;
  reduction.examine = [this, examines = std::move(examines)](ConstTensorView window) {
    if (examines()) finder->ExamineWindow(window);
  };
  backend.set_purpose("gradients");
  ASSIGN_OR_RETURN(reducer, dist::GradientReducer::Create(ground.communicator, backend,
                                                          ground.transport, reduction));
  backend.set_purpose("checks");
  replica_check = std::make_unique<ReplicaCheck>(config.dist.replica_check_interval,
                                                 network->layout(), ground.communicator, backend);
  const std::vector<int64_t>& leaves = reducer->leaves();
  ASSIGN_OR_RETURN(finder, NonfiniteFinder::Create(
                               backend, reduction.num_elements,
                               static_cast<int64_t>(reduction.window_begins.size()),
                               config.train.micro_batch_size, static_cast<int64_t>(leaves.size())));
  ASSIGN_OR_RETURN(state, TrainingState::Create(config, network->layout(), leaves,
                                                ground.communicator, backend, ground.transport));
  backend.set_purpose("checks");
  return replica_check->Watch(state->weights());
}

StepArgs TrainingParts::MicrobatchArgs(int64_t seed) {
  StepArgs args;
  state->BindWeights(args);
  args.seed = static_cast<uint64_t>(seed);
  for (const dist::GradientReducer::Place& place : reducer->LeafPlaces())
    args.gradients.Add(place.range.begin, TensorView(place.data, {place.range.size()}));
  args.window_begins = [this](int64_t begin) { reducer->BeginWindow(begin); };
  args.gradients_ready = [this](int64_t begin) { reducer->GradientReady(begin); };
  return args;
}

}  // namespace anyorder
