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

// Whether the tensor holds the parameter, and nothing else of ours.
bool IsOf(const FileTensor& tensor, const ParameterInfo& info) {
  const auto others = std::count_if(tensor.blocks.begin(), tensor.blocks.end(),
                                    [](const TensorBlock& block) { return block.offset >= 0; });
  return others == 1 && !tensor.is_folded && tensor.blocks.back().offset == info.offset &&
         tensor.blocks.back().num_elements() == info.shape.num_elements();
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

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void AddOnce(std::string name, std::vector<std::string>& names) {
  if (!Has(names, name)) names.push_back(std::move(name));
}

// Collects what is written. Adapters are read from the checkpoint's own flat space, whole modules
// from that of the network. What is tied, or repeated, belongs to several modules: peft copies a
// module that is trained, and leaves the others with the base's values, so that all are written.
class PeftTensors {
 public:
  PeftTensors(const ParameterLayout& network, const TensorTable& tensors, bool has_output)
      : network_(network), tensors_(tensors), has_output_(has_output) {}

  void Add(const ParameterInfo& info) {
    absl::string_view projection = info.name;
    const bool is_a = absl::ConsumeSuffix(&projection, kAdapterA);
    if (is_a || absl::ConsumeSuffix(&projection, kAdapterB)) {
      AddAdapter(info, std::string(projection), is_a ? ".lora_A.weight" : ".lora_B.weight");
    } else {
      AddWhole(info);
    }
  }
  absl::Status ToStatus() const {
    for (const std::string& module : modules_) {
      if (Has(adapted_, module))
        return FailedPrecondition("peft gives a module an adapter or trains it whole, and ", module,
                                  " has both; export the run with --format hf or safetensors");
    }
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
      if (!Has(modules_, ModuleOf(tensor.name))) continue;
      tensor.name = absl::StrCat(kPrefix, tensor.name);
      tensor.is_alias = false;
      all.push_back(std::move(tensor));
    }
    return all;
  }
  std::vector<std::string> targets() const { return NamesFor(adapted_); }
  std::vector<std::string> saved() const { return NamesFor(modules_); }

 private:
  // The modules that hold the parameter; none if it is part of a joined tensor or no module's. A
  // module of modules is none: BERT's "cls.predictions" has the bias that its decoder has, too.
  std::vector<std::string> ModulesOf(const ParameterInfo& info) const {
    std::vector<std::string> modules;
    for (const FileTensor& tensor : tensors_) {
      const std::string module = ModuleOf(tensor.name);
      if (module.empty() || !IsOf(tensor, info) || (tensor.is_alias && !has_output_)) continue;
      const std::string inside = module + ".";
      if (std::none_of(tensors_.begin(), tensors_.end(), [&](const FileTensor& other) {
            return absl::StartsWith(ModuleOf(other.name), inside);
          }))
        AddOnce(module, modules);
    }
    return modules;
  }
  void AddAdapter(const ParameterInfo& info, const std::string& projection, const char* end) {
    const std::string dense = absl::StrCat(projection, ".weight");
    const ParameterInfo& weight = network_.Find(network_.Contains(dense) ? dense : projection);
    const std::vector<std::string> modules = ModulesOf(weight);
    if (modules.empty()) AddOnce(weight.name, no_modules_);
    for (const std::string& module : modules) {
      AddOnce(module, adapted_);
      adapters_.push_back(PlainTensor(info, absl::StrCat(kPrefix, module, end)));
    }
  }
  void AddWhole(const ParameterInfo& info) {
    const std::vector<std::string> modules = ModulesOf(network_.Find(info.name));
    if (modules.empty()) AddOnce(info.name, no_modules_);
    for (const std::string& module : modules) AddOnce(module, modules_);
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
            return absl::EndsWith(other, name) && !Has(modules, other);
          });
      AddOnce(takes_others ? module : name, names);
    }
    return names;
  }

  const ParameterLayout& network_;
  const TensorTable& tensors_;
  const bool has_output_;  // of a language model
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
  PeftTensors collected(network, tensors, work.has_output);
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
