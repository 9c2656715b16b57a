#include "core/train/state/warm_start.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "ckpt/layout.h"
#include "ckpt/reader.h"
#include "core/base/status.h"
#include "core/train/run/config_file.h"
#include "core/train/state/resume.h"
#include "core/train/state/saved_parameters.h"

namespace anyorder {
namespace {

absl::StatusOr<std::string> FindCheckpoint(const std::string& init_from) {
  std::error_code error;
  const std::filesystem::path path(init_from);
  if (std::filesystem::exists(path / ckpt::kManifestName, error)) return init_from;
  if (!std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "train.init_from '", init_from, "' is not a directory; name a run or a checkpoint"));
  }
  // Another run's directory: nothing in it is changed.
  const absl::StatusOr<std::string> newest =
      ckpt::FindNewestGood(init_from, /*quarantine_bad=*/false);
  if (!absl::IsNotFound(newest.status())) return newest;
  return absl::FailedPreconditionError(absl::StrCat(
      "train.init_from '", init_from, "' has no committed checkpoint; name a run that has one"));
}

// Keys of [model] that decide what the weights compute. Heads, which [objective] asks for, may
// differ.
absl::Status CheckSameNetwork(const std::string& saved_text, const RunConfig& config) {
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig saved, ParseRunConfig(saved_text, "checkpoint"));
  RunConfig without_heads = config;
  without_heads.objective = saved.objective;
  without_heads.Resolve();
  return CheckSameFunction(saved, without_heads);
}

}  // namespace

std::string WarmStart::Description() const {
  return absl::StrCat("weights of ", checkpoint, " (step ", step, ", state_digest ", digest, ")",
                      plan.initialised.empty() ? "" : "; randomly initialised: ",
                      absl::StrJoin(plan.initialised, ", "));
}

absl::StatusOr<WarmStart> PlanWarmStart(const std::string& init_from, const RunConfig& config,
                                        const ParameterLayout& layout,
                                        const std::string& tokenizer_digest) {
  WarmStart start;
  ANYORDER_ASSIGN_OR_RETURN(start.checkpoint, FindCheckpoint(init_from));
  const std::string context = absl::StrCat("train.init_from '", start.checkpoint, "'");
  ANYORDER_ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint,
                            ckpt::Checkpoint::Open(start.checkpoint));
  const absl::StatusOr<std::string> digest = checkpoint.StateDigest();
  ANYORDER_RETURN_IF_ERROR(Annotate(digest.status(), context));
  start.digest = *digest;
  const absl::StatusOr<TrainMetadata> saved = ParseMetadata(checkpoint.metadata_json());
  ANYORDER_RETURN_IF_ERROR(Annotate(saved.status(), context));
  start.step = saved->step;
  if (saved->tokenizer_digest != tokenizer_digest) {
    return absl::FailedPreconditionError(
        absl::StrCat(context, " was trained with tokenizer ", saved->tokenizer_digest, " but ",
                     config.data.shards, " was made with ", tokenizer_digest,
                     "; prepare the data with --vocab of its own data's spiece.model"));
  }
  ANYORDER_RETURN_IF_ERROR(Annotate(CheckSameNetwork(saved->config_text, config), context));
  const auto parameters = ReadSavedParameters(checkpoint);
  ANYORDER_RETURN_IF_ERROR(Annotate(parameters.status(), context));
  absl::StatusOr<TransferPlan> plan = PlanTransfer(*parameters, layout);
  if (!plan.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(context, ": ", plan.status().message(),
                     "; set [model] as in the run that the weights come from"));
  }
  start.plan = *std::move(plan);
  return start;
}

absl::Status ReadTransferred(const ckpt::Checkpoint& checkpoint, const TransferPlan& plan,
                             int64_t begin, int64_t end, float* master) {
  return ApplyTransfer(plan, begin, end, master, [&](int64_t source, int64_t count, float* out) {
    return checkpoint.Read(kMasterTensor, source, source + count, out);
  });
}

}  // namespace anyorder
