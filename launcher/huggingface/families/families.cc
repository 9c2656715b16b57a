#include <algorithm>

#include "absl/strings/str_join.h"

#include "core/base/status.h"
#include "launcher/huggingface/families/hf_family.h"

namespace anyorder::launcher {
namespace {

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
    return Obstacles(*a, config).size() < Obstacles(*b, config).size();
  });
}

const HfFamily& VariantOfRun(const HfFamily& family, const RunConfig& config) {
  const HfFamily* best = &family;
  for (const HfFamily* const other : HfFamilies()) {
    const bool is_variant =
        absl::string_view(other->names().model_type) == family.names().model_type;
    if (is_variant && Obstacles(*other, config).size() < Obstacles(*best, config).size())
      best = other;
  }
  return *best;
}

}  // namespace anyorder::launcher
