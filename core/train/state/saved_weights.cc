#include "core/train/state/saved_weights.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "ckpt/json_values.h"
#include "core/base/status.h"
#include "core/train/run/config_file.h"
#include "core/train/state/resume.h"
#include "core/train/state/training_state.h"

namespace anyorder {

namespace {

using Json = nlohmann::json;

absl::Status Unreadable(const ckpt::Checkpoint& checkpoint) {
  return FailedPrecondition(
      checkpoint.directory(),
      " has no table of parameters that can be read and fits its weights; name "
      "another checkpoint");
}

// An entry of the table that begins at `offset`: 1 to 3 dimensions whose elements are there.
std::optional<ParameterInfo> ParseEntry(const Json& entry, int64_t offset, int64_t num_elements) {
  const absl::StatusOr<std::string> name = ckpt::GetString(entry, "name");
  const absl::StatusOr<int64_t> written = ckpt::GetInt(entry, "offset");
  const absl::StatusOr<Shape> shape = ckpt::GetShape(entry, "shape");
  if (!name.ok() || !written.ok() || *written != offset || !shape.ok()) return std::nullopt;
  const int64_t elements = shape->num_elements();
  if (shape->rank() < 1 || shape->rank() > 3 || elements < 1 || elements > num_elements - offset)
    return std::nullopt;
  return ParameterInfo{.name = *name, .shape = *shape, .offset = offset};
}

// Read and rounded at once, so that fp32 and bf16 weights never lie in memory together.
constexpr int64_t kPieceElements = 4 << 20;

absl::Status CheckSize(const ckpt::Checkpoint& checkpoint, const ParameterLayout& layout) {
  ANYORDER_ASSIGN_OR_RETURN(const int64_t saved, NumSavedParameters(checkpoint));
  if (saved == layout.num_elements()) return absl::OkStatus();
  return FailedPrecondition(checkpoint.directory(), " holds ", saved,
                            " parameters but the model has ", layout.num_elements());
}

absl::StatusOr<ckpt::Checkpoint> OpenOther(const std::string& init_from, FileSystem* fs) {
  std::error_code error;
  if (!std::filesystem::is_directory(init_from, error)) {
    return InvalidArgument("train.init_from '", init_from,
                           "' is not a directory; name a run or a checkpoint");
  }
  absl::StatusOr<ckpt::Checkpoint> named = ckpt::Checkpoint::Open(init_from, fs);
  if (!absl::IsNotFound(named.status())) return named;
  // Another run's directory: nothing in it is changed.
  const absl::StatusOr<std::string> newest =
      ckpt::FindNewest(init_from, /*quarantine_bad=*/false, fs);
  if (absl::IsNotFound(newest.status())) {
    if (std::filesystem::is_regular_file(JoinPath(init_from, "config.json"), error)) {
      return InvalidArgument("train.init_from '", init_from,
                             "' is a Hugging Face model directory; make a run of it first: "
                             "anyorder import --input ",
                             init_from, " --output RUN");
    }
    return FailedPrecondition("train.init_from '", init_from,
                              "' has no committed checkpoint; name a run that has one");
  }
  ANYORDER_RETURN_IF_ERROR(newest.status());
  return ckpt::Checkpoint::Open(*newest, fs);
}

// Keys of [model] that decide what the weights compute. Heads, which [objective] asks for, may
// differ.
absl::Status CheckSameNetwork(const RunConfig& saved, const RunConfig& config) {
  RunConfig without_heads = config;
  without_heads.objective = saved.objective;
  without_heads.Resolve();
  const absl::Status same = CheckSameFunction(saved, without_heads);
  if (same.ok() || saved.objective.name == config.objective.name) return same;
  return Annotate(same, absl::StrCat("weights of objective ", saved.objective.name, " for ",
                                     config.objective.name));
}

// Takes the output layers of the heads out of `parameters` if they are another task's, or tell
// other classes apart; the names of what was taken out. The pooler before them fits any task.
std::vector<std::string> DropOtherTasksHead(const TaskConfig& before, const TaskConfig& after,
                                            std::vector<ParameterInfo>& parameters) {
  std::vector<std::string> dropped;
  if (before.task == after.task && before.num_classes == after.num_classes) return dropped;
  const auto first =
      std::stable_partition(parameters.begin(), parameters.end(), [](const ParameterInfo& info) {
        return !IsHeadParameter(info.name) || absl::StartsWith(info.name, "sequence_summary.");
      });
  for (auto at = first; at != parameters.end(); ++at) dropped.push_back(at->name);
  parameters.erase(first, parameters.end());
  return dropped;
}

}  // namespace

bool HasAverage(const ckpt::Checkpoint& checkpoint) {
  const std::vector<ckpt::TensorInfo> tensors = checkpoint.tensors();
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const ckpt::TensorInfo& info) { return info.name == kAverageTensor; });
}

const char* WeightTensor(const ckpt::Checkpoint& checkpoint, WeightChoice choice) {
  const bool is_average = choice == WeightChoice::kAverage && HasAverage(checkpoint);
  return is_average ? kAverageTensor : kMasterTensor;
}

absl::StatusOr<int64_t> NumSavedParameters(const ckpt::Checkpoint& checkpoint) {
  for (const ckpt::TensorInfo& info : checkpoint.tensors()) {
    if (info.name == kMasterTensor && info.dtype == DType::kFloat32 && info.shape.rank() == 1)
      return info.shape.num_elements();
  }
  return FailedPrecondition(checkpoint.directory(),
                            " holds no fp32 tensor 'master': not a training checkpoint");
}

absl::StatusOr<std::vector<ParameterInfo>> ReadSavedParameters(const ckpt::Checkpoint& checkpoint) {
  ANYORDER_ASSIGN_OR_RETURN(const int64_t num_elements, NumSavedParameters(checkpoint));
  const Json json = Json::parse(checkpoint.metadata_json(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("parameters") || !json["parameters"].is_array())
    return Unreadable(checkpoint);
  std::vector<ParameterInfo> parameters;
  int64_t offset = 0;
  for (const Json& entry : json["parameters"]) {
    std::optional<ParameterInfo> info = ParseEntry(entry, offset, num_elements);
    if (!info) return Unreadable(checkpoint);
    offset = info->end();
    parameters.push_back(*std::move(info));
  }
  if (offset != num_elements) return Unreadable(checkpoint);
  return parameters;
}

absl::StatusOr<SavedWeights> LoadWeights(const ckpt::Checkpoint& checkpoint,
                                         const RunConfig& config, const ParameterLayout& layout,
                                         kernels::Backend& backend, WeightChoice choice) {
  ANYORDER_RETURN_IF_ERROR(CheckSize(checkpoint, layout));
  const char* const tensor = WeightTensor(checkpoint, choice);
  const DType dtype = ToDType(config.model.dtype);
  const int64_t elements = layout.num_elements();
  SavedWeights weights;
  ANYORDER_ASSIGN_OR_RETURN(weights.storage, backend.Allocate(elements * SizeOf(dtype)));
  const TensorView values(weights.storage->data(), dtype, {elements});
  const int64_t most = std::min(kPieceElements, elements);
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Buffer> memory,
                            backend.Allocate(most * SizeOf(DType::kFloat32)));
  for (int64_t begin = 0; begin < elements; begin += kPieceElements) {
    const Shape shape{std::min(kPieceElements, elements - begin)};
    const TensorView piece(memory->data(), DType::kFloat32, shape);
    ANYORDER_RETURN_IF_ERROR(
        WriteInPieces(piece, backend, [&](int64_t from, int64_t to, void* data) {
          return checkpoint.Read(tensor, begin + from, begin + to, data);
        }));
    backend.Cast(piece, values.Slice(begin, shape), {});
  }
  backend.Synchronize({});  // before the piece's memory goes
  weights.values = values;
  return weights;
}

absl::Status CheckFitsConfig(const TrainMetadata& saved, const RunConfig& config) {
  if (saved.is_imported()) return CheckMetadataConfig(saved, config);
  if (saved.config_digest == config.IdentityDigest()) return absl::OkStatus();
  return FailedPrecondition("the checkpoint was trained with configuration ", saved.config_digest,
                            ", but the run's config.toml is ", config.IdentityDigest(),
                            "; restore the config.toml of the run");
}

absl::Status CheckFitsText(const TrainMetadata& saved, const RunConfig& config,
                           const data::DatasetIndex& text) {
  ANYORDER_RETURN_IF_ERROR(CheckFitsConfig(saved, config));
  if (saved.tokenizer_digest == text.tokenizer_digest) return absl::OkStatus();
  return FailedPrecondition(
      "the held-out text was made by tokenizer ", text.tokenizer_digest,
      ", but the run was trained with ", saved.tokenizer_digest,
      "; prepare it with `anyorder prep --vocab DATASET`, or --tokenizer, the training data's");
}

std::string WarmStart::Description() const {
  return absl::StrCat(
      HasAverage(checkpoint) ? "averaged " : "", "weights of ", checkpoint.directory(), " (run ",
      checkpoint.run_id(), ", step ", checkpoint.step(), ", generation ", checkpoint.generation(),
      ")", plan.initialised.empty() ? "" : "; randomly initialised: ",
      absl::StrJoin(plan.initialised, ", "),
      plan.left_out.empty() ? "" : "; not taken: ", absl::StrJoin(plan.left_out, ", "));
}

absl::StatusOr<WarmStart> PlanWarmStart(const std::string& init_from, const RunConfig& config,
                                        const ParameterLayout& layout,
                                        const std::string& tokenizer_digest, FileSystem* fs) {
  ANYORDER_ASSIGN_OR_RETURN(ckpt::Checkpoint checkpoint, OpenOther(init_from, fs));
  const std::string context = absl::StrCat("train.init_from '", checkpoint.directory(), "'");
  const absl::StatusOr<TrainMetadata> saved = ParseMetadata(checkpoint.metadata_json());
  ANYORDER_RETURN_IF_ERROR(Annotate(saved.status(), context));
  if (saved->tokenizer_digest != tokenizer_digest) {
    return FailedPrecondition(context, " was trained with tokenizer ", saved->tokenizer_digest,
                              " but ", config.data.shards, " was made with ", tokenizer_digest,
                              "; prepare the data with --vocab or --tokenizer of its own data");
  }
  const absl::StatusOr<RunConfig> before = ParseRunConfig(saved->config_text, "checkpoint");
  ANYORDER_RETURN_IF_ERROR(Annotate(before.status(), context));
  ANYORDER_RETURN_IF_ERROR(Annotate(CheckSameNetwork(*before, config), context));
  absl::StatusOr<std::vector<ParameterInfo>> parameters = ReadSavedParameters(checkpoint);
  ANYORDER_RETURN_IF_ERROR(Annotate(parameters.status(), context));
  const std::vector<std::string> dropped =
      DropOtherTasksHead(before->model.task, config.model.task, *parameters);
  absl::StatusOr<TransferPlan> plan = PlanTransfer(*parameters, layout);
  if (!plan.ok()) {
    return FailedPrecondition(context, ": ", plan.status().message(),
                              "; set [model] as in the run that the weights come from");
  }
  plan->left_out.insert(plan->left_out.end(), dropped.begin(), dropped.end());
  return WarmStart{std::move(checkpoint), *std::move(plan)};
}

absl::Status ReadTransferred(const ckpt::Checkpoint& checkpoint, const TransferPlan& plan,
                             int64_t begin, int64_t end, float* master) {
  const char* const tensor = WeightTensor(checkpoint, WeightChoice::kAverage);
  return ApplyTransfer(plan, begin, end, master, [&](int64_t source, int64_t count, float* out) {
    return checkpoint.Read(tensor, source, source + count, out);
  });
}

}  // namespace anyorder
