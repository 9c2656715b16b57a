#include "launcher/huggingface/model_description.h"

#include <type_traits>

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "core/config/adaptive_clusters.h"
#include "core/config/attention_windows.h"
#include "core/objective/objective_traits.h"
#include "launcher/huggingface/families/config_reader.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

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
  Json json = {{"name", ExampleTaskName(task.task)},
               {"num_classes", task.num_classes},
               {"outputs", task.num_outputs()},
               {"span_head", EnumName(task.span_head)},
               {"answer_class", task.answer_class}};
  if (!classes.empty()) json["classes"] = classes;
  return json;
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

}  // namespace anyorder::launcher
