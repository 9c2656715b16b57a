// The weights of a checkpoint alone, for programs that compute with them and do not train.

#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "ckpt/reader.h"
#include "core/base/tensor.h"
#include "core/network/tensors/parameters.h"
#include "core/train/run/run_config.h"
#include "core/train/state/resume.h"
#include "data/dataset/dataset_index.h"
#include "kernels/backend.h"

namespace anyorder {

struct SavedWeights {
  std::unique_ptr<kernels::Buffer> storage;
  ConstTensorView values;  // [layout.num_elements()] in the run's activation dtype: what the
                           // trainer computed with
};

// FailedPrecondition if the checkpoint holds another number of parameters; DataLoss.
absl::StatusOr<SavedWeights> LoadWeights(const ckpt::Checkpoint& checkpoint,
                                         const RunConfig& config, const ParameterLayout& layout,
                                         kernels::Backend& backend);

// FailedPrecondition unless the checkpoint is of this configuration.
absl::Status CheckFitsConfig(const TrainMetadata& saved, const RunConfig& config);
// FailedPrecondition unless the checkpoint is of this configuration and `text` was made by the
// tokenizer it was trained with.
absl::Status CheckFitsText(const TrainMetadata& saved, const RunConfig& config,
                           const data::DatasetIndex& text);

}  // namespace anyorder
