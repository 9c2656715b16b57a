#include "core/train/state/saved_weights.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/train/state/saved_parameters.h"

namespace anyorder {
namespace {

// Read and rounded at once, so that fp32 and bf16 weights never lie in memory together.
constexpr int64_t kPieceElements = 4 << 20;

absl::Status CheckSize(const ckpt::Checkpoint& checkpoint, const ParameterLayout& layout) {
  ANYORDER_ASSIGN_OR_RETURN(const int64_t saved, NumSavedParameters(checkpoint));
  if (saved == layout.num_elements()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(checkpoint.directory(), " holds ", saved,
                                                    " parameters but the model has ",
                                                    layout.num_elements()));
}

}  // namespace

absl::StatusOr<SavedWeights> LoadWeights(const ckpt::Checkpoint& checkpoint,
                                         const RunConfig& config, const ParameterLayout& layout,
                                         kernels::Backend& backend) {
  ANYORDER_RETURN_IF_ERROR(CheckSize(checkpoint, layout));
  const DType dtype = ToDType(config.model.dtype);
  const int64_t elements = layout.num_elements();
  SavedWeights weights;
  ANYORDER_ASSIGN_OR_RETURN(weights.storage, backend.Allocate(elements * SizeOf(dtype)));
  const TensorView values(weights.storage->data(), dtype, {elements});
  std::vector<float> piece;
  // Where memory is not the host's, a piece passes through it before it is rounded.
  std::unique_ptr<kernels::Buffer> device_piece;
  if (!backend.is_host_memory()) {
    ANYORDER_ASSIGN_OR_RETURN(device_piece, backend.Allocate(std::min(kPieceElements, elements) *
                                                             static_cast<int64_t>(sizeof(float))));
  }
  for (int64_t begin = 0; begin < elements; begin += kPieceElements) {
    const int64_t count = std::min(kPieceElements, elements - begin);
    piece.resize(static_cast<size_t>(count));
    ANYORDER_RETURN_IF_ERROR(checkpoint.Read(kMasterTensor, begin, begin + count, piece.data()));
    const float* source = piece.data();
    if (device_piece != nullptr) {
      source = static_cast<const float*>(device_piece->data());
      backend.CopyToDevice(piece.data(), device_piece->data(),
                           count * static_cast<int64_t>(sizeof(float)), {});
    }
    backend.Cast(ConstTensorView(source, {count}), values.Slice(begin, {count}), {});
  }
  backend.Synchronize({});  // before the piece's memory goes
  weights.values = values;
  return weights;
}

absl::Status CheckFitsConfig(const TrainMetadata& saved, const RunConfig& config) {
  if (saved.is_imported()) return CheckMetadataConfig(saved, config);
  if (saved.config_digest == config.IdentityDigest()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the checkpoint was trained with configuration ", saved.config_digest,
                   ", but the run's config.toml is ", config.IdentityDigest(),
                   "; restore the config.toml of the run"));
}

absl::Status CheckFitsText(const TrainMetadata& saved, const RunConfig& config,
                           const data::DatasetIndex& text) {
  ANYORDER_RETURN_IF_ERROR(CheckFitsConfig(saved, config));
  if (saved.tokenizer_digest == text.tokenizer_digest) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the held-out text was made by tokenizer ", text.tokenizer_digest,
      ", but the run was trained with ", saved.tokenizer_digest,
      "; prepare it with `anyorder prep --vocab MODEL`, the spiece.model of the training data"));
}

}  // namespace anyorder
