#include "core/train/state/saved_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "ckpt/layout.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/train/run/config_file.h"
#include "core/train/state/training_state.h"

namespace anyorder {

namespace {

// A mask, or rows, may be declared besides what an imported tokenizer's file has.
bool IsOfTokenizer(const TrainMetadata& saved, const data::DatasetIndex& text) {
  return saved.tokenizer_digest == text.tokenizer_digest ||
         saved.tokenizer_digest == text.tokenizer.digest;
}

// Read and rounded at once, so that fp32 and bf16 weights never lie in memory together.
constexpr int64_t kPieceElements = 4 << 20;

using ReadPiece = std::function<absl::Status(int64_t begin, int64_t end, float* out)>;

// Fills `values`, of the activation dtype, with what `read` gives in fp32.
absl::Status LoadRounded(TensorView values, kernels::Backend& backend, const ReadPiece& read) {
  const int64_t elements = values.num_elements();
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Buffer> memory,
                   backend.Allocate(std::min(kPieceElements, elements) * SizeOf(DType::kFloat32)));
  for (int64_t begin = 0; begin < elements; begin += kPieceElements) {
    const Shape shape{std::min(kPieceElements, elements - begin)};
    const TensorView piece(memory->data(), DType::kFloat32, shape);
    RETURN_IF_ERROR(WriteInPieces(piece, backend, [&](int64_t from, int64_t to, void* data) {
      return read(begin + from, begin + to, static_cast<float*>(data));
    }));
    backend.Cast(piece, values.Slice(begin, shape), {});
  }
  backend.Synchronize({});  // before the piece's memory goes
  return absl::OkStatus();
}

absl::StatusOr<ckpt::Checkpoint> OpenOther(const std::string& init_from, FileSystem* fs) {
  if (!IsDirectory(init_from)) {
    return InvalidArgument("train.init_from '", init_from,
                           "' is not a directory; name a run or a checkpoint");
  }
  absl::StatusOr<ckpt::Checkpoint> named = ckpt::Checkpoint::Open(init_from, fs);
  if (!absl::IsNotFound(named.status())) return named;
  // Another run's directory: nothing in it is changed.
  const absl::StatusOr<std::string> newest =
      ckpt::FindNewest(init_from, /*quarantine_bad=*/false, fs);
  if (absl::IsNotFound(newest.status())) {
    if (IsFile(JoinPath(init_from, "config.json"))) {
      return InvalidArgument("train.init_from '", init_from,
                             "' is a Hugging Face model directory; make a run of it first: "
                             "anyorder import --input ",
                             init_from, " --output RUN");
    }
    return FailedPrecondition("train.init_from '", init_from,
                              "' has no committed checkpoint; name a run that has one");
  }
  RETURN_IF_ERROR(newest.status());
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

// Each entry of train.lora.tensors is part of a name.
absl::Status CheckNamesOfTensors(const LoraConfig& lora, const ParameterLayout& network) {
  const std::vector<ParameterInfo>& all = network.parameters();
  FaultList faults;
  for (const std::string& part : ListOf(lora.tensors)) {
    LoraConfig alone = lora;
    alone.tensors = part;
    faults.Require(std::any_of(all.begin(), all.end(),
                               [&](const ParameterInfo& info) { return alone.Trains(info.name); }),
                   absl::StrCat("train.lora.tensors names '", part,
                                "', which is part of no weight's name; `anyorder inspect "
                                "CHECKPOINT --json` prints them"));
  }
  return faults.ToStatus();
}

}  // namespace

absl::StatusOr<SavedWeights> LoadWeights(const ckpt::Checkpoint& checkpoint,
                                         const RunConfig& config, const ParameterLayout& layout,
                                         kernels::Backend& backend, WeightChoice choice) {
  ASSIGN_OR_RETURN(const WeightReader reader,
                   WeightReader::Open(checkpoint, choice, config.train.init_from));
  const int64_t elements = layout.num_elements();
  if (reader.num_elements() != elements) {
    return FailedPrecondition(checkpoint.directory(), " holds ", reader.num_elements(),
                              " parameters but the model has ", elements);
  }
  const DType dtype = ToDType(config.model.dtype);
  SavedWeights weights;
  ASSIGN_OR_RETURN(weights.storage, backend.Allocate(elements * SizeOf(dtype)));
  const TensorView values(weights.storage->data(), dtype, {elements});
  RETURN_IF_ERROR(LoadRounded(values, backend, [&](int64_t begin, int64_t end, float* out) {
    return reader.Read(begin, end, out);
  }));
  weights.values = values;
  return weights;
}

absl::Status LoadFrozenWeights(const WarmStart& start, kernels::Backend& backend,
                               dist::WeightWindows& frozen,
                               const std::function<absl::Status(int64_t elements)>& done) {
  for (const dist::WeightWindows::Window& window : frozen.windows()) {
    const dist::Range part = window.is_whole ? window.range : window.slice_range;
    const auto read = [&](int64_t begin, int64_t end, float* out) -> absl::Status {
      RETURN_IF_ERROR(done(end - begin));
      return ReadTransferred(start.weights, start.frozen, part.begin + begin, part.begin + end,
                             out);
    };
    RETURN_IF_ERROR(LoadRounded(window.is_whole ? window.data : window.slice, backend, read));
  }
  return absl::OkStatus();
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
  RETURN_IF_ERROR(CheckFitsConfig(saved, config));
  if (IsOfTokenizer(saved, text)) return absl::OkStatus();
  return FailedPrecondition(
      "the held-out text was made by tokenizer (and cleaning) ", text.tokenizer_digest,
      ", but the run was trained with ", saved.tokenizer_digest,
      "; prepare it with `anyorder prep --vocab DATASET`, or --tokenizer, the training data's");
}

std::string NoteOfBest(const ckpt::Checkpoint& newest) {
  const absl::StatusOr<TrainMetadata> saved = ParseMetadata(newest.metadata_json());
  if (!saved.ok()) return "";
  const BestEvaluationState& best = saved->best_evaluation;
  if (best.step < 0 || best.step == newest.step()) return "";
  const std::string path =
      JoinPath(ParentPath(NamedPath(newest.directory())), ckpt::StepName(best.step));
  return absl::StrCat("step ", newest.step(), ", the newest, is taken; the best ", best.metric,
                      ", ", LossText(best.value), ", was after step ", best.step, ": ",
                      IsThere(path)
                          ? absl::StrCat("--step best, or as train.init_from '", path, "'")
                          : "it was not kept (checkpoint.keep_best = true keeps it)");
}

std::string WarmStart::Description() const {
  return absl::StrCat(
      HasAverage(*checkpoint) ? "averaged " : "", "weights of ", checkpoint->directory(), " (run ",
      checkpoint->run_id(), ", step ", checkpoint->step(), ", generation ",
      checkpoint->generation(), ")", weights.has_adapters() ? ", adapters merged" : "",
      plan.initialised.empty() ? "" : "; randomly initialised: ",
      absl::StrJoin(plan.initialised, ", "),
      plan.left_out.empty() ? "" : "; not taken: ", absl::StrJoin(plan.left_out, ", "));
}

absl::StatusOr<WarmStart> PlanWarmStart(const std::string& init_from, const RunConfig& config,
                                        const data::DatasetIndex& text, FileSystem* fs) {
  ASSIGN_OR_RETURN(ckpt::Checkpoint opened, OpenOther(init_from, fs));
  auto checkpoint = std::make_unique<const ckpt::Checkpoint>(std::move(opened));
  const std::string context = absl::StrCat("train.init_from '", checkpoint->directory(), "'");
  const absl::StatusOr<TrainMetadata> saved = ParseMetadata(checkpoint->metadata_json());
  RETURN_IF_ERROR(Annotate(saved.status(), context));
  if (!IsOfTokenizer(*saved, text)) {
    return FailedPrecondition(context, " was trained with tokenizer (and cleaning) ",
                              saved->tokenizer_digest, " but ", config.data.shards,
                              " was made with ", text.tokenizer_digest,
                              "; prepare the data with --vocab or --tokenizer of its own data");
  }
  const absl::StatusOr<RunConfig> before = ParseRunConfig(saved->config_text, "checkpoint");
  RETURN_IF_ERROR(Annotate(before.status(), context));
  RETURN_IF_ERROR(Annotate(CheckSameNetwork(*before, config), context));
  absl::StatusOr<WeightReader> weights =
      WeightReader::Open(*checkpoint, WeightChoice::kAverage, "", fs);
  RETURN_IF_ERROR(Annotate(weights.status(), context));
  std::vector<ParameterInfo> parameters = weights->parameters();
  const std::vector<std::string> dropped =
      DropOtherTasksHead(before->model.task, config.model.task, parameters);
  const auto vocab_size = static_cast<int64_t>(text.vocab_size);
  const ParameterLayout network(config.model, vocab_size);
  absl::StatusOr<TransferPlan> plan = PlanTransfer(parameters, network);
  if (!plan.ok()) {
    return FailedPrecondition(context, ": ", plan.status().message(),
                              "; set [model] as in the run that the weights come from");
  }
  plan->left_out.insert(plan->left_out.end(), dropped.begin(), dropped.end());
  WarmStart start{std::move(checkpoint), *std::move(weights), *std::move(plan), {}};
  if (!config.lora.is_on()) return start;
  RETURN_IF_ERROR(CheckNamesOfTensors(config.lora, network));
  const ParameterLayout trained(config.TrainedModel(), vocab_size);
  start.frozen = PlanOfPart(start.plan, network, trained.frozen());
  start.plan = PlanOfPart(start.plan, network, trained.parameters());
  return start;
}

absl::Status ReadTransferred(const WeightReader& weights, const TransferPlan& plan, int64_t begin,
                             int64_t end, float* master) {
  return ApplyTransfer(plan, begin, end, master, [&](int64_t source, int64_t count, float* out) {
    return weights.Read(source, source + count, out);
  });
}

}  // namespace anyorder
