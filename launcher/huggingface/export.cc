#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "ckpt/reader.h"
#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/log.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/network/tensors/parameters.h"
#include "core/train/state/resume.h"
#include "core/train/state/weight_reader.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_format.h"
#include "data/prep/tokenizer.h"
#include "data/prep/vocabulary.h"
#include "launcher/huggingface/exchange.h"
#include "launcher/huggingface/families/hf_family.h"
#include "launcher/huggingface/hf_model.h"
#include "launcher/huggingface/model_description.h"
#include "launcher/huggingface/originals.h"
#include "launcher/huggingface/tokenizer_files.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/process/new_files.h"
#include "launcher/run/imported_run.h"
#include "launcher/run/saved_step.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

// The vocabulary that the run was trained with, checked, and the tokenizer's files. `settings` but
// for how text is cleaned, which the vocabulary says.
absl::Status WriteVocabulary(const std::string& source, const std::string& expected_digest,
                             const fs::path& directory, TokenizerSettings settings) {
  ASSIGN_OR_RETURN(const data::DatasetVocabulary read,
                   data::ReadVocabularyOf(source, expected_digest));
  if (read.Digest() != expected_digest)
    return DataLoss(source, " is damaged: its digest does not match");
  settings.cleaning = read.cleaning;
  ASSIGN_OR_RETURN(const data::Tokenizer tokenizer,
                   data::Tokenizer::Load(read.bytes, source, "prepare the data again"));
  RETURN_IF_ERROR(WriteFileAtomically((directory / "spiece.model").string(), read.bytes));
  return WriteTokenizerFiles({tokenizer.bridge().pieces(), data::ReadModelRules(read.bytes)},
                             settings, directory.string());
}

// What is exported, and where to.
struct Export {
  const ExportOptions& options;
  const RunConfig& config;
  const ckpt::Checkpoint& checkpoint;
  const WeightReader& weights;
  TrainMetadata saved;
  fs::path directory;
  ImportedRun imported;

  absl::Status Write(const char* name, const std::string& text) const {
    return WriteFileAtomically((directory / name).string(), text);
  }
  DType dtype() const { return options.files.dtype.value_or(DType::kFloat32); }
  absl::Status WriteWeights(const std::vector<WrittenTensor>& tensors) const {
    return WriteWeightFiles(weights, tensors, options.files, directory.string());
  }
};

// The tokenizer's files, of the dataset that the run was trained on.
absl::Status WriteTokenizerOfDataset(const Export& work, const data::DatasetIndex& dataset,
                                     const TokenizerSettings& settings) {
  RETURN_IF_ERROR(CheckFileInside(work.config.data.shards, dataset.tokenizer.file));
  const fs::path model = fs::path(work.config.data.shards) / dataset.tokenizer.file;
  if (dataset.tokenizer.file == data::kHuggingFaceFile)
    return WriteOtherTokenizerFiles(model.string(), dataset.vocab_ids, settings.max_length,
                                    work.directory.string());
  // Special ids of data whose tokenizer is unknown.
  if (dataset.tokenizer.file != data::kTokenizerFile)
    return CopyIfThere(work.config.data.shards, work.directory.string(), dataset.tokenizer.file);
  return WriteVocabulary(work.config.data.shards, dataset.tokenizer_digest, work.directory,
                         settings);
}

// The same for a run that was imported: what came with the weights goes with them again, and no
// dataset is needed.
absl::Status WriteTokenizerOfImport(const Export& work, const TokenizerSettings& settings) {
  if (work.imported.has_vocabulary())
    RETURN_IF_ERROR(WriteVocabulary(work.imported.vocabulary, work.saved.tokenizer_digest,
                                    work.directory, settings));
  return CopyKeptFiles(work.imported.directory, work.directory.string());
}

// The names of a classifier's labels, in the dataset that the run learns from; none where it is
// gone.
std::vector<std::string> ClassesOf(const Export& work) {
  if (!work.config.model.task.has_head() || work.saved.is_imported()) return {};
  const absl::StatusOr<data::DatasetIndex> dataset =
      data::ReadDatasetIndex(work.config.data.shards);
  if (!dataset.ok() || !dataset->examples || !CheckMetadata(work.saved, work.config, *dataset).ok())
    return {};
  return dataset->examples->classes;
}

// The text of the model's config.json. With `tokenizer`, writes its files, too.
absl::StatusOr<std::string> ConfigText(const Export& work, const HfFamily& family,
                                       const TokenizerSettings* tokenizer = nullptr) {
  const RunConfig& config = work.config;
  if (work.imported.exists()) {
    RETURN_IF_ERROR(CheckMetadataConfig(work.saved, config));
    if (tokenizer != nullptr) RETURN_IF_ERROR(WriteTokenizerOfImport(work, *tokenizer));
    ASSIGN_OR_RETURN(const std::string original,
                     ReadWholeFile(work.imported.config, kMaxTableBytes));
    ASSIGN_OR_RETURN(const HfConfig read, ParseHfConfig(original, work.imported.config));
    std::optional<DType> dtype = work.options.files.dtype;
    if (!dtype && !family.names().keeps_storage) dtype = work.dtype();
    return UpdatedHfConfigText(family, original, config, read.vocab_size, dtype,
                               !work.saved.is_imported(), ClassesOf(work));
  }
  ASSIGN_OR_RETURN(const data::DatasetIndex dataset,
                   ReadTrainingData(config.data.shards, "the vocabulary of the run",
                                    "put the dataset back there, or take --format "
                                    "safetensors, which writes the weights without it"));
  RETURN_IF_ERROR(CheckMetadata(work.saved, config, dataset));
  if (tokenizer != nullptr) RETURN_IF_ERROR(WriteTokenizerOfDataset(work, dataset, *tokenizer));
  return HfConfigText(family, config, static_cast<int64_t>(dataset.vocab_size), work.dtype(),
                      dataset.vocab_ids, ClassesOf(work));
}

absl::Status WriteFamily(const Export& work, const HfFamily& family) {
  const TokenizerSettings tokenizer = {
      .max_length = work.config.sampling.seq_len,
      .objective = family.names().has_xlnet_tokenizer ? "" : work.config.objective.name};
  ASSIGN_OR_RETURN(const std::string text, ConfigText(work, family, &tokenizer));
  RETURN_IF_ERROR(work.Write("config.json", text));
  ASSIGN_OR_RETURN(const HfConfig config, ParseHfConfig(text, "config.json"));
  const bool is_untouched = work.imported.exists() && work.saved.is_imported();
  RETURN_IF_ERROR(CheckSays(config, work.config, /*trained=*/!is_untouched));
  const ModelConfig& model = work.config.model;
  TensorTable tensors = family.Tensors(model, ParameterLayout(model, config.vocab_size));
  family.FitTensors(config, tensors);
  ASSIGN_OR_RETURN(const std::optional<Originals> originals,
                   Originals::Open(work.imported.originals));
  if (originals && !work.options.files.dtype)
    return work.WriteWeights(originals->Choose(tensors, work.saved.is_imported()));
  return work.WriteWeights(WithType(tensors, work.dtype()));
}

// Of any network: what the checkpoint's own table names. The dataset may be gone.
absl::Status WriteAnyNetwork(const Export& work) {
  const RunConfig& config = work.config;
  RETURN_IF_ERROR(CheckMetadataConfig(work.saved, config));
  const std::vector<ParameterInfo>& tensors = work.weights.parameters();
  ModelDescription model = {.config = config,
                            .step = work.checkpoint.step(),
                            .vocab_size = VocabSizeOf(tensors),
                            .dtype = work.dtype(),
                            .tokenizer_digest = work.saved.tokenizer_digest};
  const TokenizerSettings settings = {.max_length = config.sampling.seq_len,
                                      .objective = config.objective.name};
  if (work.imported.exists()) {
    RETURN_IF_ERROR(WriteTokenizerOfImport(work, settings));
  } else {
    const absl::StatusOr<data::DatasetIndex> dataset = data::ReadDatasetIndex(config.data.shards);
    absl::Status found = dataset.status();
    if (found.ok()) found = CheckMetadata(work.saved, config, *dataset);
    if (found.ok()) {
      if (dataset->examples) model.classes = dataset->examples->classes;
      RETURN_IF_ERROR(WriteTokenizerOfDataset(work, *dataset, settings));
    } else {
      LogWarning(absl::StrCat("the tokenizer is left out: ", found.message()));
    }
  }
  ASSIGN_OR_RETURN(const std::string description, DescribeModel(model));
  RETURN_IF_ERROR(work.Write("config.json", description));
  return work.WriteWeights(WithType(PlainTensors(tensors), work.dtype()));
}

// What peft puts before the names of the model.
constexpr char kPeftPrefix[] = "base_model.model.";

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
      tensor.name = absl::StrCat(kPeftPrefix, tensor.name);
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
      adapters_.push_back(PlainTensor(info, absl::StrCat(kPeftPrefix, module, end)));
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

// What peft calls the task of such a model; null where it has no name for it.
Json PeftTask(const HfFamily& family, const ModelConfig& model) {
  const TaskConfig& task = model.task;
  if (absl::EndsWith(family.Architecture(model), "ForCausalLM")) return "CAUSAL_LM";
  if (task.has_tags()) return "TOKEN_CLS";
  if (task.has_spans()) return "QUESTION_ANS";
  return task.has_head() && !task.has_choices() ? Json("SEQ_CLS") : Json();
}

std::string PeftConfigText(const Export& work, const HfFamily& family, const PeftTensors& tensors) {
  const LoraConfig& lora = work.config.lora;
  Json json = {{"peft_type", "LORA"},
               {"base_model_name_or_path", work.imported.source()},
               {"task_type", PeftTask(family, work.config.model)},
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
  if (!tensors.saved().empty()) json["modules_to_save"] = tensors.saved();
  return DumpJson(json, 2) + "\n";
}

// Writes the adapters for peft, which loads them on top of the run's base model. peft adapts
// modules that have one weight of their own. A module that is trained whole is saved with all its
// tensors; a tensor that several modules share is written for each of them. FailedPrecondition
// naming a projection or a trained tensor that is no such module in this family, or the token types
// that the run trains and the base lacks.
absl::Status WritePeft(const Export& work, const HfFamily& family) {
  const RunConfig& config = work.config;
  RETURN_IF_ERROR(CheckMetadataConfig(work.saved, config));
  if (work.imported.exists() && config.lora.Trains("transformer.segment_embedding.weight")) {
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(work.imported.config, kMaxTableBytes));
    ASSIGN_OR_RETURN(const HfConfig base, ParseHfConfig(text, work.imported.config));
    if (base.model.num_segments < config.model.num_segments) {
      return FailedPrecondition("the run trains ", config.model.num_segments,
                                " token types, but peft keeps the size of the base's table, ",
                                base.model.num_segments, "; export it with --format hf");
    }
  }
  const ParameterLayout network(config.model, VocabSizeOf(work.weights.parameters()));
  TensorTable tensors = family.Tensors(config.model, network);
  // How many rows stand before the first position is said by config.json alone.
  if (config.lora.Trains("transformer.position_embedding.weight")) {
    ASSIGN_OR_RETURN(const std::string text, ConfigText(work, family));
    ASSIGN_OR_RETURN(const HfConfig described, ParseHfConfig(text, "config.json"));
    family.FitTensors(described, tensors);
  }
  const bool has_output = !config.model.task.has_head() ||
                          absl::EndsWith(family.Architecture(config.model), "DoubleHeadsModel");
  PeftTensors collected(network, tensors, has_output);
  ASSIGN_OR_RETURN(const std::vector<ParameterInfo> saved, ReadSavedParameters(work.checkpoint));
  for (const ParameterInfo& info : saved) collected.Add(info);
  RETURN_IF_ERROR(collected.ToStatus());
  const WeightReader own = WeightReader::OfTrained(work.checkpoint, work.options.weights());
  RETURN_IF_ERROR(WriteWeightFile({{own, WithType(collected.adapters(), work.dtype())},
                                   {work.weights, WithType(collected.modules(), work.dtype())}},
                                  (work.directory / "adapter_model.safetensors").string()));
  return work.Write("adapter_config.json", PeftConfigText(work, family, collected));
}

// Writes the files of the export into `directory`, which exists; returns the step they hold.
absl::StatusOr<int64_t> WriteAll(const ExportOptions& options, const RunConfig& config,
                                 const HfFamily* family, const fs::path& directory) {
  ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint, OpenSavedStep(options.run_dir, options.step));
  ASSIGN_OR_RETURN(TrainMetadata saved, ParseMetadata(checkpoint.metadata_json()));
  RETURN_IF_ERROR(AcceptRecordedSchedule(options.run_dir, config, &saved));
  LogWeights(checkpoint, options.weights());
  ASSIGN_OR_RETURN(const WeightReader weights,
                   WeightReader::Open(checkpoint, options.weights(), config.train.init_from));
  const Export work = {options,
                       config,
                       checkpoint,
                       weights,
                       std::move(saved),
                       directory,
                       ImportOfExport(options.run_dir, config)};
  if (options.format == ExportFormat::kPeft) {
    RETURN_IF_ERROR(WritePeft(work, *family));
  } else {
    RETURN_IF_ERROR(family != nullptr ? WriteFamily(work, *family) : WriteAnyNetwork(work));
  }
  return checkpoint.step();
}

}  // namespace

absl::Status ExportModel(const ExportOptions& options) {
  RETURN_IF_ERROR(RefuseUnlessAbsentOrEmpty(options.output, "--output"));
  ASSIGN_OR_RETURN(const RunConfig config, LoadConfigOfRun(options.run_dir));
  const HfFamily* family = nullptr;  // none: our own names
  if (options.format == ExportFormat::kPeft && !config.lora.is_on()) {
    return FailedPrecondition("'", options.run_dir,
                              "' has no adapters (train.lora.rank is 0); export its weights with "
                              "--format hf or safetensors");
  }
  if (options.format != ExportFormat::kSafetensors) {
    ASSIGN_OR_RETURN(family, FamilyOfExport(options.run_dir, config));
    RETURN_IF_ERROR(CheckFamily(*family, config));
  }
  ASSIGN_OR_RETURN(NewDirectory directory, NewDirectory::Create(options.output, "--output"));
  ASSIGN_OR_RETURN(const int64_t step, WriteAll(options, config, family, directory.path()));
  RETURN_IF_ERROR(directory.Publish());
  absl::PrintF("exported step %d to %s\n", step, directory.output().string());
  if (options.format == ExportFormat::kPeft) {
    absl::PrintF("in peft: PeftModel.from_pretrained(BASE, \"%s\")\n", directory.output().string());
  } else if (family != nullptr) {
    const HfFamily::Names names = family->names();
    const bool is_known = names.is_in_transformers;
    absl::PrintF("in transformers: %s.from_pretrained(\"%s\"%s)%s\n",
                 is_known ? family->Architecture(config.model) : "AutoModel",
                 directory.output().string(), is_known ? "" : ", trust_remote_code=True",
                 names.class_file == nullptr ? "" : absl::StrCat(" of ", names.class_file));
  } else {
    absl::PrintF("in PyTorch: Anyorder(\"%s\") of %s/load_anyorder.py\n",
                 directory.output().string(), ProgramDirectory());
  }
  if (IsThere(directory.output() / "tokenizer.json"))
    absl::PrintF("its tokenizer: AutoTokenizer.from_pretrained(\"%s\")\n",
                 directory.output().string());
  return absl::OkStatus();
}

Subcommand DeclareExport(CLI::App& front) {
  struct Texts {
    std::string dtype = "auto", shard_size;
  };
  const auto options = std::make_shared<ExportOptions>();
  const auto texts = std::make_shared<Texts>();
  CLI::App* command =
      AddCommand(front, "export", "Write a checkpoint's weights for other programs.",
                 {"anyorder export runs/a --output exported",
                  "anyorder export runs/a --format safetensors --dtype bf16 --output exported"});
  AddRunDir(command, options->run_dir, "run directory");
  AddStep(command, options->step);
  AddRawWeights(command, options->raw_weights);
  AddEnum(command, "--format", options->format,
          absl::StrCat("hf: a Hugging Face model (", HfFamilyTypes(),
                       "), if one can be this network; safetensors: named tensors of any run, "
                       "which load_anyorder.py loads into PyTorch; both merge adapters; peft: "
                       "the adapters alone (train.lora)"));
  AddChoice(command, "--dtype", texts->dtype, {"auto", "fp32", "bf16"},
            "element type of the tensors; auto: of imported models of Llama's kind and diffusion "
            "transformers as they had it, else fp32");
  command
      ->add_option("--max-shard-size", texts->shard_size,
                   "split the weights into files of at most this size, with an index, such as 5GB "
                   "(default: one file)")
      ->type_name("SIZE");
  AddPath(command, "--output", options->output, "directory to create; absent or empty",
          PathUse::kMakeDirectory)
      ->required();
  return {command, [options, texts] {
            if (texts->dtype == "fp32") options->files.dtype = DType::kFloat32;
            if (texts->dtype == "bf16") options->files.dtype = DType::kBFloat16;
            if (!texts->shard_size.empty()) {
              const absl::StatusOr<int64_t> bytes =
                  ParseByteSize(texts->shard_size, "--max-shard-size");
              if (!bytes.ok()) return Report(bytes.status());
              options->files.max_shard_bytes = *bytes;
            }
            return Report(ExportModel(*options));
          }};
}

}  // namespace anyorder::launcher
