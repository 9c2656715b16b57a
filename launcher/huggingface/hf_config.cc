
#include "core/base/json_members.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "launcher/huggingface/hf_model.h"
#include "launcher/huggingface/model_description.h"
#include "launcher/run/imported_run.h"

namespace anyorder::launcher {
namespace {

// The first class that `architectures` names, or "".
std::string ClassOf(const Json& json) {
  const auto found = json.find("architectures");
  const bool has_one = found != json.end() && found->is_array() && !found->empty();
  return has_one && found->front().is_string() ? found->front().get<std::string>() : "";
}

std::string Text(const Json& json) { return DumpJson(json, 2) + "\n"; }

}  // namespace

absl::StatusOr<HfConfig> ParseHfConfig(absl::string_view text, absl::string_view path) {
  ASSIGN_OR_RETURN(const Json json,
                   Annotate(ParseJsonObject<Json>(text, "; fetch the model's config.json again"),
                            absl::StrCat("'", path, "'")));
  HfConfigReader reader(json);
  std::string type;
  reader.String("model_type", type);
  if (type == kAnyorderModelType) {
    return FailedPrecondition("'", path,
                              "' was written by `anyorder export --format safetensors`, which "
                              "cannot be imported; import the run itself with --format run");
  }
  ASSIGN_OR_RETURN(const HfFamily* const family, Annotate(FamilyOfType(type, ClassOf(json)), path));
  HfConfig config = family->ReadConfig(reader);
  if (!reader.faults().empty())
    return DataLoss(path, ": ", reader.faults().Joined(), "; use the config.json of these weights");
  if (!reader.unsupported().empty())
    return FailedPrecondition(path, ": ", reader.unsupported().Joined());
  return config;
}

absl::StatusOr<const HfFamily*> FamilyOfExport(const std::string& run_dir,
                                               const RunConfig& config) {
  const ImportedRun imported = ImportOfExport(run_dir, config);
  if (!imported.exists()) return &FamilyOfRun(config);
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(imported.config, kMaxTableBytes));
  ASSIGN_OR_RETURN(const HfConfig original, ParseHfConfig(text, imported.config));
  return &VariantOfRun(*original.family, config);
}

std::string HfConfigText(const HfFamily& family, const RunConfig& config, int64_t vocab_size,
                         DType dtype, const data::VocabIds& ids,
                         const std::vector<std::string>& classes) {
  return Text(family.NewConfig(config, vocab_size, dtype, ids, classes));
}

std::string UpdatedHfConfigText(const HfFamily& family, const std::string& original,
                                const RunConfig& config, int64_t vocab_size,
                                std::optional<DType> dtype, bool trained,
                                const std::vector<std::string>& classes) {
  auto json = TryParseJson<Json>(original);
  if (!json.is_object()) json = Json::object();
  const absl::StatusOr<const HfFamily*> origin =
      FamilyOfType(family.names().model_type, ClassOf(json));
  const bool has_class = json.contains("architectures") && origin.ok() && *origin == &family;
  if (!family.names().keeps_storage || !has_class) {
    if (ClassOf(json) != family.Architecture(config.model)) json.erase("auto_map");
    json["architectures"] = {family.Architecture(config.model)};
  }
  // All tensors are floats, and after training no other place has these weights.
  for (const char* key : {"quantization_config", "compression_config"}) json.erase(key);
  if (trained) json.erase("_name_or_path");
  for (const char* key : {"torch_dtype", "dtype"})
    if (dtype && json.contains(key)) json[key] = TorchName(*dtype);
  // Where neither is there, some versions of transformers load fp32.
  if (dtype == DType::kBFloat16 && !json.contains("dtype")) json["torch_dtype"] = TorchName(*dtype);
  family.UpdateConfig(config, vocab_size, trained, classes, json);
  return Text(json);
}

}  // namespace anyorder::launcher
