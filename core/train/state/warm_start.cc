#include "core/train/state/warm_start.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

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
        "train.init_from '", init_from, "' is no directory; name a run or a checkpoint"));
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

// Finds each tensor of the layout among the saved ones.
absl::Status Match(const ParameterLayout& layout, const std::vector<ParameterInfo>& saved,
                   WarmStart& plan) {
  std::map<absl::string_view, const ParameterInfo*> by_name;
  for (const ParameterInfo& info : saved)
    by_name[info.name] = &info;
  FaultList faults;
  for (const ParameterInfo& info : layout.parameters()) {
    const auto found = by_name.find(info.name);
    if (found == by_name.end()) {
      plan.drawn.push_back(info.name);
      faults.Require(IsHeadParameter(info.name), absl::StrCat("it has no tensor ", info.name));
    } else if (const ParameterInfo& there = *found->second; !(there.shape == info.shape)) {
      faults.Add(absl::StrCat(info.name, " is ", there.shape.ToString(), " there but ",
                              info.shape.ToString(), " here"));
    } else {
      plan.pieces.push_back({info.offset, info.end(), there.offset});
    }
  }
  for (const ParameterInfo& info : saved) {
    faults.Require(layout.Contains(info.name) || IsHeadParameter(info.name),
                   absl::StrCat("the run has no tensor ", info.name));
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(faults.Joined(), "; make [model] that of the run whose weights these are"));
}

}  // namespace

std::string WarmStart::Description() const {
  return absl::StrCat("weights of ", checkpoint, " (step ", step, ", state_digest ", digest, ")",
                      drawn.empty() ? "" : "; drawn: ", absl::StrJoin(drawn, ", "));
}

absl::StatusOr<WarmStart> PlanWarmStart(const std::string& init_from, const RunConfig& config,
                                        const ParameterLayout& layout,
                                        const std::string& tokenizer_digest) {
  WarmStart plan;
  ANYORDER_ASSIGN_OR_RETURN(plan.checkpoint, FindCheckpoint(init_from));
  const std::string context = absl::StrCat("train.init_from '", plan.checkpoint, "'");
  ANYORDER_ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint,
                            ckpt::Checkpoint::Open(plan.checkpoint));
  const absl::StatusOr<std::string> digest = checkpoint.StateDigest();
  ANYORDER_RETURN_IF_ERROR(Annotate(digest.status(), context));
  plan.digest = *digest;
  const absl::StatusOr<TrainMetadata> saved = ParseMetadata(checkpoint.metadata_json());
  ANYORDER_RETURN_IF_ERROR(Annotate(saved.status(), context));
  plan.step = saved->step;
  if (saved->tokenizer_digest != tokenizer_digest) {
    return absl::FailedPreconditionError(
        absl::StrCat(context, " was trained with tokenizer ", saved->tokenizer_digest, " but ",
                     config.data.shards, " was made with ", tokenizer_digest,
                     "; prepare the data with --vocab of its own data's spiece.model"));
  }
  ANYORDER_RETURN_IF_ERROR(Annotate(CheckSameNetwork(saved->config_text, config), context));
  const auto parameters = ReadSavedParameters(checkpoint);
  ANYORDER_RETURN_IF_ERROR(Annotate(parameters.status(), context));
  ANYORDER_RETURN_IF_ERROR(Annotate(Match(layout, *parameters, plan), context));
  return plan;
}

absl::Status ReadWarmStart(const WarmStart& plan, int64_t begin, int64_t end, float* master) {
  ANYORDER_ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint,
                            ckpt::Checkpoint::Open(plan.checkpoint));
  for (const WarmStart::Piece& piece : plan.pieces) {
    const int64_t first = std::max(begin, piece.begin);
    const int64_t last = std::min(end, piece.end);
    if (first >= last) continue;
    const int64_t source = piece.source + (first - piece.begin);
    ANYORDER_RETURN_IF_ERROR(
        checkpoint.Read(kMasterTensor, source, source + (last - first), master + (first - begin)));
  }
  return absl::OkStatus();
}

}  // namespace anyorder
