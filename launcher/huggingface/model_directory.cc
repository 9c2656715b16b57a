#include "launcher/huggingface/model_directory.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_join.h"

#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "launcher/huggingface/hf_model.h"
#include "launcher/huggingface/model_description.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

bool HasFile(const std::string& directory, const char* name) {
  std::error_code error;
  return std::filesystem::is_regular_file(JoinPath(directory, name), error);
}

Json TokenizerFilesOf(const std::string& directory) {
  Json files = Json::array();
  for (const char* name : {"spiece.model", "tokenizer.json", "tokenizer_config.json"})
    if (HasFile(directory, name)) files.push_back(name);
  return files;
}

// Copies members of config.json that say what the network is, ours or Hugging Face's.
void TakeMembers(const Json& config, Json& json) {
  for (const char* key : {"model_type", "architectures", "objective", "step", "vocab_size",
                          "n_layer", "d_model", "num_hidden_layers", "hidden_size", "task"})
    if (config.contains(key) && !config[key].is_null()) json[key] = config[key];
  if (!config.contains("network") || !config["network"].is_object()) return;
  for (const char* key : {"num_layers", "model_dim"})
    if (config["network"].contains(key)) json[key] = config["network"][key];
}

}  // namespace

bool IsModelDirectory(const std::string& directory) { return HasFile(directory, "config.json"); }

absl::StatusOr<Json> DescribeModelDirectory(const ModelDirectoryOptions& options) {
  const std::string path = JoinPath(options.path, "config.json");
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  const auto config = TryParseJson<Json>(text);
  if (!config.is_object())
    return DataLoss("'", path, "' is not a JSON object; export or fetch the model again");
  ASSIGN_OR_RETURN(const HfWeights weights, HfWeights::Open(options.path));
  if (options.verify) RETURN_IF_ERROR(weights.CheckValues());
  const bool is_ours = config.contains("model_type") && config["model_type"] == kAnyorderModelType;
  const HfWeights::Totals totals = weights.totals();
  Json json = {{"kind", "model"},
               {"path", options.path},
               {"format", is_ours ? "named tensors of `anyorder export --format safetensors`"
                                  : "Hugging Face model directory"}};
  TakeMembers(config, json);
  json["parameters"] = totals.elements;
  json["dtype"] = absl::StrJoin(totals.dtypes, ", ");
  json["num_tensors"] = totals.tensors;
  json["files"] = totals.files;
  json["bytes"] = totals.bytes;
  json["tokenizer"] = TokenizerFilesOf(options.path);
  json["verified"] = options.verify
                         ? "every value was read and is finite; the format has no checksums"
                         : "headers and sizes only (--verify reads every value)";
  if (!options.with_tensors) return json;
  json["tensors"] = Json::array();
  for (const ckpt::SafetensorsEntry& entry : weights.entries()) {
    json["tensors"].push_back({{"name", entry.name},
                               {"dtype", std::string(Name(entry.dtype))},
                               {"shape", entry.shape.ToString()}});
  }
  return json;
}

}  // namespace anyorder::launcher
