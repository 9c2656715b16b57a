#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/status.h"
#include "launcher/huggingface/families/hf_family.h"

namespace anyorder::launcher {
namespace {

size_t NumObstacles(const HfFamily& family, const RunConfig& config) {
  HfObstacles obstacles;
  family.Check(config, obstacles);
  return obstacles.list.size();
}

// The types of all families, each once.
std::vector<std::string> Types() {
  std::vector<std::string> types;
  for (const HfFamily* const family : HfFamilies()) {
    const char* const type = family->names().model_type;
    if (std::find(types.begin(), types.end(), type) == types.end()) types.emplace_back(type);
  }
  return types;
}

}  // namespace

absl::string_view HfFamily::NameOf(absl::string_view model_key) const {
  for (const HfKeyName& name : keys())
    if (model_key == name.ours) return name.theirs;
  return "";
}

void HfFamily::SetDefaults(const HfConfig& /*model*/, RunConfig& /*config*/) const {}

void HfFamily::FitTensors(const HfConfig& /*config*/, TensorTable& /*tensors*/) const {}

absl::Status HfFamily::Fold(const HfConfig& /*config*/, const ParameterLayout& /*layout*/,
                            const TensorReader& /*read*/, float* /*flat*/) const {
  return absl::OkStatus();
}

void HfFamily::CheckPlainLayers(const ModelConfig& model, bool is_tied, HfObstacles& obstacles) {
  obstacles.Require(!model.rms_norm(), "model.norm is rms_norm");
  obstacles.Require(!model.qk_norm, "model.qk_norm is true");
  obstacles.Require(!model.gated_ffn, "model.gated_ffn is true");
  obstacles.Require(model.ffn_biases, "model.ffn_biases is false");
  obstacles.Require(model.ffn_residual == FfnResidual::kInput, "model.ffn_residual is normed");
  obstacles.Require(model.attention_output_bias, "model.attention_output_bias is false");
  obstacles.Require(model.kv_heads() == model.num_heads,
                    absl::StrCat("model.num_kv_heads is ", model.num_kv_heads,
                                 ", below model.num_heads = ", model.num_heads));
  obstacles.Require(model.activation != kernels::Activation::kSilu, "model.activation is silu");
  obstacles.Require(
      model.tie_embeddings == is_tied,
      absl::StrCat("model.tie_embeddings is ", model.tie_embeddings ? "true" : "false"));
}

std::span<const HfFamily* const> HfFamilies() {
  // Of two that are as close to a run's network the first is taken.
  static const HfFamily* const families[] = {
      &XlnetFamily(),     &BertFamily(), &RobertaFamily(),       &LongformerFamily(),
      &OpenAiGptFamily(), &Gpt2Family(), &TransformerXlFamily(), &LladaFamily(),
      &LlamaFamily(),     &A3Family(),   &Qwen2Family(),         &Qwen3Family(),
      &DreamFamily(),     &MdlmFamily(), &Bd3LmFamily()};
  return families;
}

std::string HfFamilyTypes() { return absl::StrJoin(Types(), ", "); }

absl::StatusOr<const HfFamily*> FamilyOfType(absl::string_view model_type,
                                             absl::string_view architecture) {
  const HfFamily* first = nullptr;
  for (const HfFamily* const family : HfFamilies()) {
    const HfFamily::Names names = family->names();
    if (model_type != names.model_type) continue;
    if (architecture == names.architecture || architecture == names.bare_architecture)
      return family;
    if (first == nullptr) first = family;
  }
  if (first != nullptr) return first;
  return FailedPrecondition("'model_type' is \"", model_type.empty() ? "(none)" : model_type,
                            "\", not \"", absl::StrJoin(Types(), "\", \""), "\"");
}

const HfFamily& FamilyOfRun(const RunConfig& config) {
  const std::span<const HfFamily* const> all = HfFamilies();
  return **std::min_element(all.begin(), all.end(), [&config](const auto* a, const auto* b) {
    return NumObstacles(*a, config) < NumObstacles(*b, config);
  });
}

const HfFamily& VariantOfRun(const HfFamily& family, const RunConfig& config) {
  const HfFamily* best = &family;
  for (const HfFamily* const other : HfFamilies()) {
    const bool is_variant =
        absl::string_view(other->names().model_type) == family.names().model_type;
    if (is_variant && NumObstacles(*other, config) < NumObstacles(*best, config)) best = other;
  }
  return *best;
}

absl::Status CheckFamily(const HfFamily& family, const RunConfig& config) {
  HfObstacles obstacles;
  family.Check(config, obstacles);
  if (obstacles.list.empty()) return absl::OkStatus();
  return FailedPrecondition("Hugging Face's ", family.Architecture(config.model),
                            " cannot represent this model: ", absl::StrJoin(obstacles.list, "; "),
                            "; --format safetensors exports any");
}

}  // namespace anyorder::launcher
