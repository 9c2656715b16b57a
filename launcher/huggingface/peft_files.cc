#include "launcher/huggingface/peft_files.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/status.h"
#include "launcher/huggingface/weight_files.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

// What peft puts before the names of the model.
constexpr char kPrefix[] = "base_model.model.";

// The tensor that holds the parameter and nothing else; null if there is none.
const FileTensor* FindTensor(const TensorTable& tensors, const ParameterInfo& info) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const FileTensor& tensor) {
    return !tensor.is_alias && tensor.blocks.size() == 1 && !tensor.is_folded &&
           tensor.blocks[0].offset == info.offset &&
           tensor.blocks[0].num_elements() == info.shape.num_elements();
  });
  return found == tensors.end() ? nullptr : &*found;
}

// "model.layers.0.self_attn.q_proj" of "model.layers.0.self_attn.q_proj.weight"; "" of a tensor
// that is no module's.
std::string ModuleOf(const std::string& tensor) {
  absl::string_view module = tensor;
  if (absl::ConsumeSuffix(&module, ".weight") || absl::ConsumeSuffix(&module, ".bias"))
    return std::string(module);
  return "";
}

// What all layers call the module: what stands behind the layer's number, or all of it.
std::string NameInLayers(const std::string& module) {
  const std::vector<std::string> parts = absl::StrSplit(module, '.');
  int64_t number = 0;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (absl::SimpleAtoi(parts[i], &number))
      return absl::StrJoin(parts.begin() + static_cast<int64_t>(i) + 1, parts.end(), ".");
  }
  return module;
}

void AddOnce(std::string name, std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
}

// Collects what is written. Adapters are read from the checkpoint's own flat space, whole modules
// from that of the network.
class PeftTensors {
 public:
  PeftTensors(const ParameterLayout& network, const TensorTable& tensors)
      : network_(network), tensors_(tensors) {}

  void Add(const ParameterInfo& info) {
    absl::string_view projection = info.name;
    const bool is_a = absl::ConsumeSuffix(&projection, kAdapterA);
    if (is_a || absl::ConsumeSuffix(&projection, kAdapterB)) {
      AddAdapter(info, std::string(projection), is_a ? ".lora_A.weight" : ".lora_B.weight");
    } else {
      AddModule(info);
    }
  }
  absl::Status ToStatus() const {
    if (no_modules_.empty()) return absl::OkStatus();
    const size_t others = no_modules_.size() - 1;
    return FailedPrecondition(
        "peft knows modules alone, and ", no_modules_[0],
        others == 0 ? " is none"
                    : absl::StrCat(" and ", others, " others that are trained are none"),
        " in this model; export the run with --format hf or safetensors, which merge its adapters");
  }

  const TensorTable& adapters() const { return adapters_; }
  // Every tensor of the modules that are trained.
  TensorTable modules() const {
    TensorTable all;
    for (FileTensor tensor : tensors_) {
      const std::string module = ModuleOf(tensor.name);
      if (tensor.is_alias || std::find(modules_.begin(), modules_.end(), module) == modules_.end())
        continue;
      tensor.name = absl::StrCat(kPrefix, tensor.name);
      all.push_back(std::move(tensor));
    }
    return all;
  }
  std::vector<std::string> targets() const { return NamesFor(adapted_); }
  std::vector<std::string> saved() const { return NamesFor(modules_); }

 private:
  void AddAdapter(const ParameterInfo& info, const std::string& projection, const char* end) {
    const std::string dense = absl::StrCat(projection, ".weight");
    const ParameterInfo& weight = network_.Find(network_.Contains(dense) ? dense : projection);
    const FileTensor* const tensor = FindTensor(tensors_, weight);
    const std::string module = tensor == nullptr ? "" : ModuleOf(tensor->name);
    if (module.empty() || tensor->shape.rank() != 2) return AddOnce(weight.name, no_modules_);
    AddOnce(module, adapted_);
    adapters_.push_back(PlainTensor(info, absl::StrCat(kPrefix, module, end)));
  }
  void AddModule(const ParameterInfo& info) {
    const FileTensor* const tensor = FindTensor(tensors_, network_.Find(info.name));
    const std::string module = tensor == nullptr ? "" : ModuleOf(tensor->name);
    if (module.empty()) return AddOnce(info.name, no_modules_);
    AddOnce(module, modules_);
  }
  // What tells peft which modules are meant; it takes every one whose name ends so. What all layers
  // call a module or, where others end so that are not meant, all of its name: BERT's
  // "output.dense" is the end of "attention.output.dense".
  std::vector<std::string> NamesFor(const std::vector<std::string>& modules) const {
    std::vector<std::string> names;
    for (const std::string& module : modules) {
      const std::string name = NameInLayers(module);
      const bool takes_others =
          std::any_of(tensors_.begin(), tensors_.end(), [&](const FileTensor& tensor) {
            const std::string other = ModuleOf(tensor.name);
            return absl::EndsWith(other, name) &&
                   std::find(modules.begin(), modules.end(), other) == modules.end();
          });
      AddOnce(takes_others ? module : name, names);
    }
    return names;
  }

  const ParameterLayout& network_;
  const TensorTable& tensors_;
  TensorTable adapters_;
  std::vector<std::string> adapted_, modules_;
  std::vector<std::string> no_modules_;  // what is trained and is in none
};

std::string ConfigText(const PeftExport& work, const PeftTensors& tensors) {
  const LoraConfig& lora = work.config.lora;
  Json json = {{"peft_type", "LORA"},
               {"base_model_name_or_path", work.base_name},
               {"task_type", nullptr},
               {"inference_mode", true},
               {"r", lora.rank},
               {"lora_alpha", lora.alpha},
               {"lora_dropout", 0.0},
               {"target_modules", tensors.targets()},
               {"modules_to_save", nullptr},
               {"bias", "none"},
               {"fan_in_fan_out", false},
               {"use_rslora", false}};
  // Other programs expect a whole number where it is one.
  if (lora.alpha == static_cast<double>(static_cast<int64_t>(lora.alpha)))
    json["lora_alpha"] = static_cast<int64_t>(lora.alpha);
  if (!work.task_type.empty()) json["task_type"] = work.task_type;
  if (!tensors.saved().empty()) json["modules_to_save"] = tensors.saved();
  return DumpJson(json, 2) + "\n";
}

}  // namespace

absl::Status WritePeftFiles(const PeftExport& work, const ParameterLayout& network,
                            const TensorTable& tensors, const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<ParameterInfo> saved, ReadSavedParameters(work.checkpoint));
  PeftTensors collected(network, tensors);
  for (const ParameterInfo& info : saved) collected.Add(info);
  RETURN_IF_ERROR(collected.ToStatus());
  const WeightReader own = WeightReader::OfTrained(work.checkpoint, work.choice);
  ASSIGN_OR_RETURN(const WeightReader merged,
                   WeightReader::Open(work.checkpoint, work.choice, work.config.train.init_from));
  RETURN_IF_ERROR(WriteWeightFile({{own, WithType(collected.adapters(), work.dtype)},
                                   {merged, WithType(collected.modules(), work.dtype)}},
                                  JoinPath(directory, "adapter_model.safetensors")));
  return WriteFileAtomically(JoinPath(directory, "adapter_config.json"),
                             ConfigText(work, collected));
}

}  // namespace anyorder::launcher
