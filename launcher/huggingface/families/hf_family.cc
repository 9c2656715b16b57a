#include "launcher/huggingface/families/hf_family.h"

namespace anyorder::launcher {

HfConfig HfFamily::ReadConfig(HfConfigReader& reader) const {
  HfConfig config{.family = this};
  HfKeys keys(reader, config);
  VisitKeys(keys);
  ReadTask(reader, config);
  return config;
}

HfConfig HfFamily::Describe(const RunConfig& config, int64_t vocab_size,
                            const VocabIds& ids) const {
  return {.family = this,
          .model = config.model,
          .vocab_size = vocab_size,
          .max_length = config.sampling.seq_len,
          .block_len = config.sampling.any_order.block_len,
          .reuse_len = config.sampling.reuse_len,
          .ids = ids};
}

Json HfFamily::NewConfig(const RunConfig& config, int64_t vocab_size, DType dtype,
                         const VocabIds& ids, const std::vector<std::string>& classes) const {
  Json json = {{"architectures", {Architecture(config.model)}}, {"model_type", names().model_type}};
  HfConfig described = Describe(config, vocab_size, ids);
  HfKeys keys(described, json, HfKeys::In::kNew);
  VisitKeys(keys);
  json["torch_dtype"] = TorchName(dtype);
  WriteTask(config.model.task, classes, json);
  return json;
}

void HfFamily::UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                            const std::vector<std::string>& classes, Json& json) const {
  HfConfig described = Describe(config, vocab_size, {});
  HfKeys keys(described, json, trained ? HfKeys::In::kTrained : HfKeys::In::kAll);
  VisitKeys(keys);
  WriteTask(config.model.task, classes, json);
}

std::string HfFamily::NameOf(absl::string_view model_key) const {
  HfConfig config;
  Json json;
  HfKeys keys(config, json, HfKeys::In::kNew);
  VisitKeys(keys);
  std::string name;
  auto visit = [&](const char* key, const auto& field, auto&&...) {
    if (model_key == key) name = keys.NameOf(&field);
  };
  ModelConfig::VisitFields(config.model, visit);
  return name;
}

}  // namespace anyorder::launcher
