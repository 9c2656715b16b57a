#include "launcher/huggingface/model_description.h"

#include <type_traits>

#include "absl/strings/str_join.h"

#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/config/adaptive_clusters.h"
#include "core/config/attention_windows.h"
#include "core/objective/objective_traits.h"
#include "launcher/huggingface/families/hf_keys.h"
#include "launcher/huggingface/hf_model.h"

namespace anyorder::launcher {
namespace {

// Every key of section [model], under its own name.
Json ModelJson(const ModelConfig& model) {
  Json json = Json::object();
  const auto visit = [&json](const char* key, const auto& value, auto&&...) {
    if constexpr (std::is_enum_v<std::decay_t<decltype(value)>>) {
      json[key] = EnumName(value);
    } else {
      json[key] = value;
    }
  };
  ModelConfig::VisitFields(model, visit);
  return json;
}

// [layers][heads][left, right, stride], or null.
absl::StatusOr<Json> WindowsJson(const ModelConfig& model) {
  ASSIGN_OR_RETURN(const std::vector<kernels::Band> bands, AttentionWindows(model));
  if (bands.empty()) return Json(nullptr);
  Json layers = Json::array();
  for (size_t i = 0; i < bands.size(); ++i) {
    if (i % static_cast<size_t>(model.num_heads) == 0) layers.push_back(Json::array());
    layers.back().push_back({bands[i].left, bands[i].right, bands[i].stride});
  }
  return layers;
}

Json ClustersJson(const ModelConfig& model, int64_t vocab_size) {
  Json clusters = Json::array();
  for (const AdaptiveCluster& cluster : AdaptiveClusters(model, vocab_size))
    clusters.push_back({cluster.begin, cluster.end});
  return clusters.empty() ? Json(nullptr) : clusters;
}

Json TaskJson(const TaskConfig& task, const std::vector<std::string>& classes) {
  if (!task.has_head()) return nullptr;
  Json json = {{"name", EnumName(task.task)},
               {"num_classes", task.num_classes},
               {"outputs", task.num_outputs()},
               {"span_head", EnumName(task.span_head)},
               {"answer_class", task.answer_class}};
  if (!classes.empty()) json["classes"] = classes;
  return json;
}

Json TokenizerFilesOf(const std::string& directory) {
  Json files = Json::array();
  for (const char* name : {"spiece.model", "tokenizer.json", "tokenizer_config.json"})
    if (IsFile(JoinPath(directory, name))) files.push_back(name);
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

absl::StatusOr<std::string> DescribeModel(const ModelDescription& model) {
  const ModelConfig& network = model.config.model;
  ASSIGN_OR_RETURN(const Json windows, WindowsJson(network));
  ASSIGN_OR_RETURN(const ObjectiveTraits* const traits,
                   ObjectiveNamed(model.config.objective.name));
  const Json json = {{"model_type", kAnyorderModelType},
                     {"format_version", 1},
                     {"objective", model.config.objective.name},
                     {"causal", traits->has(ObjectiveTraits::kCausal)},
                     {"step", model.step},
                     {"torch_dtype", TorchName(model.dtype)},
                     {"vocab_size", model.vocab_size},
                     {"seq_len", model.config.sampling.seq_len},
                     {"network", ModelJson(network)},
                     {"windows", windows},
                     {"clusters", ClustersJson(network, model.vocab_size)},
                     {"task", TaskJson(network.task, model.classes)},
                     {"next_sentence_head", network.next_sentence_head},
                     {"tokenizer_digest", model.tokenizer_digest}};
  return DumpJson(json, 2) + "\n";
}

bool IsModelDirectory(const std::string& directory) {
  return IsFile(JoinPath(directory, "config.json"));
}

absl::StatusOr<Json> DescribeModelDirectory(const std::string& directory, bool verify,
                                            bool with_tensors) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFileInside(directory, "config.json", kMaxTableBytes));
  const auto parsed = ParseJsonObject<Json>(text, "; export or fetch the model again");
  RETURN_IF_ERROR(Annotate(parsed.status(), JoinPath(directory, "config.json")));
  const Json& config = *parsed;
  ASSIGN_OR_RETURN(const HfWeights weights, HfWeights::Open(directory));
  if (verify) RETURN_IF_ERROR(weights.CheckValues());
  const bool is_ours = config.contains("model_type") && config["model_type"] == kAnyorderModelType;
  const HfWeights::Totals totals = weights.totals();
  Json json = {{"kind", "model"},
               {"path", directory},
               {"format", is_ours ? "named tensors of `anyorder export --format safetensors`"
                                  : "Hugging Face model directory"}};
  TakeMembers(config, json);
  json["parameters"] = totals.elements;
  json["dtype"] = absl::StrJoin(totals.dtypes, ", ");
  json["num_tensors"] = totals.tensors;
  json["files"] = totals.files;
  json["bytes"] = totals.bytes;
  json["tokenizer"] = TokenizerFilesOf(directory);
  json["verified"] = verify ? "every value was read and is finite; the format has no checksums"
                            : "headers and sizes only (--verify reads every value)";
  if (!with_tensors) return json;
  json["tensors"] = Json::array();
  for (const ckpt::SafetensorsEntry& entry : weights.entries()) {
    json["tensors"].push_back({{"name", entry.name},
                               {"dtype", std::string(Name(entry.dtype))},
                               {"shape", entry.shape.ToString()}});
  }
  return json;
}

}  // namespace anyorder::launcher
