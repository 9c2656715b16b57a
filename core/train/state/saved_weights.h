// The weights of a checkpoint alone: for programs that compute with them and do not train, and for
// runs that begin with another run's.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "ckpt/reader.h"
#include "core/base/file_system.h"
#include "core/base/tensor.h"
#include "core/network/tensors/parameters.h"
#include "core/network/weight_transfer.h"
#include "core/train/run/run_config.h"
#include "core/train/state/resume.h"
#include "core/train/state/weight_reader.h"
#include "data/dataset/dataset_index.h"
#include "dist/weight_windows.h"
#include "kernels/backend.h"

namespace anyorder {

struct SavedWeights {
  std::unique_ptr<kernels::Buffer> storage;
  ConstTensorView values;  // [layout.num_elements()] in the run's activation dtype: what the
                           // trainer computed or evaluated with
};

// Adapters are merged. FailedPrecondition if the checkpoint holds another number of parameters, or
// the weights that adapters belong to are not found; DataLoss.
absl::StatusOr<SavedWeights> LoadWeights(const ckpt::Checkpoint& checkpoint,
                                         const RunConfig& config, const ParameterLayout& layout,
                                         kernels::Backend& backend,
                                         WeightChoice choice = WeightChoice::kAverage);

// FailedPrecondition unless the checkpoint is of this configuration.
absl::Status CheckFitsConfig(const TrainMetadata& saved, const RunConfig& config);
// FailedPrecondition unless the checkpoint is of this configuration and `text` was made by the
// tokenizer it was trained with.
absl::Status CheckFitsText(const TrainMetadata& saved, const RunConfig& config,
                           const data::DatasetIndex& text);

// Where `newest`, a run's newest checkpoint, is not of its best evaluation: which step is taken,
// which is the best, and how to name it. Else "".
std::string NoteOfBest(const ckpt::Checkpoint& newest);

// Weights that a run begins with instead of initial ones: those of another run's checkpoint, tensor
// by tensor, by their names (core/network/weight_transfer.h); the average where it has one.
// Moments, memory, an average of its own and the data position start from scratch.
//
// `train.init_from` does it at the first step, for the very same network but its heads. `anyorder
// import --format run` makes a run directory of them, also for a longer model.

// What [train] init_from names.
struct WarmStart {
  std::unique_ptr<const ckpt::Checkpoint> checkpoint;
  WeightReader weights;  // its
  TransferPlan plan;     // of what the run trains
  TransferPlan frozen;   // of what it does not; empty without adapters

  // "weights of CHECKPOINT (run R, step N, generation G); randomly initialised: task_head.weight,
  // ...; not taken: task_head.weight, ...", and "averaged weights of" an average: for the log and
  // the ledger.
  std::string Description() const;
};

// `init_from` is a checkpoint or a run directory, whose newest checkpoint with a good manifest is
// taken. The task head is taken if objective.task and the number of classes are the same; else it
// is new, as for GLUE's small tasks that begin with a model of MNLI (Liu et al. 2019, RoBERTa,
// section 5.1). Reads no payload: the ranks verify what they read of it. Errors: InvalidArgument if
// it is no directory, or train.lora.tensors names no weight; DataLoss; FailedPrecondition without a
// checkpoint, for weights of another tokenizer than that of `text`, of a network that computes
// something else from them, and for tensors that are missing or of another shape, each named.
absl::StatusOr<WarmStart> PlanWarmStart(const std::string& init_from, const RunConfig& config,
                                        const data::DatasetIndex& text,
                                        FileSystem* fs = FileSystem::Posix());

// Overwrites what the plan has of elements [begin, end) of the new flat space, at `master`, with
// the old weights; the others stay. DataLoss.
absl::Status ReadTransferred(const WeightReader& weights, const TransferPlan& plan, int64_t begin,
                             int64_t end, float* master);

// Reads the frozen weights of a run with adapters, in its activation dtype: those windows and
// slices of `frozen` that this rank keeps. `done` as in TrainingState::Load.
absl::Status LoadFrozenWeights(const WarmStart& start, kernels::Backend& backend,
                               dist::WeightWindows& frozen,
                               const std::function<absl::Status(int64_t elements)>& done);

}  // namespace anyorder
