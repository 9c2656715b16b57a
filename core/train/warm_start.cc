#include "core/train/warm_start.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "ckpt/layout.h"
#include "ckpt/reader.h"
#include "core/base/status.h"
#include "core/train/config_file.h"
#include "core/train/resume.h"

namespace anyorder {
namespace {

using Json = nlohmann::json;

constexpr char kMaster[] = "master";

struct SavedTensor {
  int64_t offset = 0;
  std::vector<int64_t> shape;
};

// Parts of a network that belong to a task, not to what pretraining taught.
bool IsHead(const std::string& name) {
  for (const char* prefix : {"task_head.", "sequence_summary.", "logits_proj."}) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  return false;
}

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

// The table of parameters that every checkpoint of ours has. Offsets are checked against `num_elements`.
absl::StatusOr<std::map<std::string, SavedTensor>> ReadTable(const std::string& metadata,
                                                             int64_t num_elements) {
  const Json json = Json::parse(metadata, nullptr, /*allow_exceptions=*/false);
  std::map<std::string, SavedTensor> table;
  const auto bad = [] {
    return absl::FailedPreconditionError(
        "its list of parameters is missing or damaged; use a checkpoint of anyorder-train");
  };
  if (!json.is_object() || !json.contains("parameters") || !json["parameters"].is_array())
    return bad();
  for (const Json& one : json["parameters"]) {
    if (!one.is_object() || !one.contains("name") || !one["name"].is_string() ||
        !one.contains("offset") || !one["offset"].is_number_unsigned() || !one.contains("shape") ||
        !one["shape"].is_array())
      return bad();
    SavedTensor tensor;
    tensor.offset = one["offset"].get<int64_t>();
    if (tensor.offset < 0 || tensor.offset > num_elements) return bad();
    const int64_t room = num_elements - tensor.offset;
    int64_t size = 1;
    for (const Json& length : one["shape"]) {
      if (!length.is_number_unsigned()) return bad();
      tensor.shape.push_back(length.get<int64_t>());
      if (tensor.shape.back() < 1 || tensor.shape.back() > room / size) return bad();
      size *= tensor.shape.back();
    }
    table[one["name"].get<std::string>()] = std::move(tensor);
  }
  return table;
}

std::vector<int64_t> Lengths(const Shape& shape) {
  std::vector<int64_t> lengths;
  for (int i = 0; i < shape.rank(); ++i)
    lengths.push_back(shape[i]);
  return lengths;
}

// Keys of [model] that decide what the weights compute. Heads, which [objective] asks for, may differ.
absl::Status CheckSameNetwork(const std::string& saved_text, const RunConfig& config) {
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig saved, ParseRunConfig(saved_text, "checkpoint"));
  RunConfig without_heads = config;
  without_heads.objective = saved.objective;
  without_heads.Resolve();
  return CheckSameFunction(saved, without_heads);
}

absl::StatusOr<int64_t> MasterElements(const ckpt::Checkpoint& checkpoint) {
  for (const ckpt::TensorInfo& info : checkpoint.tensors()) {
    if (info.name == kMaster && info.dtype == DType::kFloat32 && info.shape.rank() == 1)
      return info.shape.num_elements();
  }
  return absl::FailedPreconditionError("it holds no tensor 'master': not a training checkpoint");
}

// Finds each tensor of the layout in the table.
absl::Status Match(const ParameterLayout& layout,
                   const std::map<std::string, SavedTensor>& table,
                   WarmStart& plan) {
  FaultList faults;
  for (const ParameterInfo& info : layout.parameters()) {
    const auto found = table.find(info.name);
    if (found == table.end()) {
      plan.drawn.push_back(info.name);
      faults.Require(IsHead(info.name), absl::StrCat("it has no tensor ", info.name));
    } else if (found->second.shape != Lengths(info.shape)) {
      faults.Add(absl::StrCat(info.name,
                              " is [",
                              absl::StrJoin(found->second.shape, ", "),
                              "] there but ",
                              info.shape.ToString(),
                              " here"));
    } else {
      plan.pieces.push_back({info.offset, info.end(), found->second.offset});
    }
  }
  for (const auto& [name, tensor] : table) {
    faults.Require(layout.Contains(name) || IsHead(name),
                   absl::StrCat("the run has no tensor ", name));
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(faults.Joined(), "; make [model] that of the run whose weights these are"));
}

}  // namespace

std::string WarmStart::Description() const {
  return absl::StrCat("weights of ",
                      checkpoint,
                      " (step ",
                      step,
                      ", state_digest ",
                      digest,
                      ")",
                      drawn.empty() ? "" : "; drawn: ",
                      absl::StrJoin(drawn, ", "));
}

absl::StatusOr<WarmStart> PlanWarmStart(const std::string& init_from,
                                        const RunConfig& config,
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
        absl::StrCat(context,
                     " was trained with tokenizer ",
                     saved->tokenizer_digest,
                     " but ",
                     config.data.shards,
                     " was made with ",
                     tokenizer_digest,
                     "; prepare the data with --vocab of its own data's spiece.model"));
  }
  ANYORDER_RETURN_IF_ERROR(Annotate(CheckSameNetwork(saved->config_text, config), context));
  const absl::StatusOr<int64_t> elements = MasterElements(checkpoint);
  ANYORDER_RETURN_IF_ERROR(Annotate(elements.status(), context));
  const auto table = ReadTable(checkpoint.metadata_json(), *elements);
  ANYORDER_RETURN_IF_ERROR(Annotate(table.status(), context));
  ANYORDER_RETURN_IF_ERROR(Annotate(Match(layout, *table, plan), context));
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
        checkpoint.Read(kMaster, source, source + (last - first), master + (first - begin)));
  }
  return absl::OkStatus();
}

}  // namespace anyorder
