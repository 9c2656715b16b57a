#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "ckpt/reader.h"
#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/log.h"
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
#include "launcher/huggingface/peft_files.h"
#include "launcher/huggingface/tokenizer_files.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/process/new_files.h"
#include "launcher/run/imported_run.h"
#include "launcher/run/saved_step.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

// The vocabulary that the run was trained with, checked. Says in `settings` how text is cleaned.
absl::StatusOr<Vocabulary> CopyVocabulary(const std::string& source,
                                          const std::string& expected_digest,
                                          const fs::path& directory, TokenizerSettings& settings) {
  ASSIGN_OR_RETURN(const data::DatasetVocabulary read,
                   data::ReadVocabularyOf(source, expected_digest));
  if (read.Digest() != expected_digest)
    return DataLoss(source, " is damaged: its digest does not match");
  settings.cleaning = read.cleaning;
  ASSIGN_OR_RETURN(const data::Tokenizer tokenizer,
                   data::Tokenizer::Load(read.bytes, source, "prepare the data again"));
  RETURN_IF_ERROR(WriteFileAtomically((directory / "spiece.model").string(), read.bytes));
  return Vocabulary{tokenizer.bridge().pieces(), data::ReadModelRules(read.bytes)};
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
                                     TokenizerSettings settings) {
  const fs::path model = fs::path(work.config.data.shards) / dataset.tokenizer.file;
  if (dataset.tokenizer.file == data::kHuggingFaceFile)
    return WriteOtherTokenizerFiles(model.string(), dataset.vocab_ids, settings.max_length,
                                    work.directory.string());
  // Special ids of data whose tokenizer is unknown.
  if (dataset.tokenizer.file != data::kTokenizerFile)
    return CopyIfThere(model.string(), (work.directory / dataset.tokenizer.file).string());
  ASSIGN_OR_RETURN(
      const Vocabulary vocabulary,
      CopyVocabulary(work.config.data.shards, dataset.tokenizer_digest, work.directory, settings));
  return WriteTokenizerFiles(vocabulary, settings, work.directory.string());
}

// The same for a run that was imported: what came with the weights goes with them again, and no
// dataset is needed.
absl::Status WriteTokenizerOfImport(const Export& work, TokenizerSettings settings) {
  const std::string& kept = work.imported.directory;
  if (!work.imported.has_vocabulary()) return CopyKeptFiles(kept, work.directory.string());
  ASSIGN_OR_RETURN(const Vocabulary vocabulary,
                   CopyVocabulary(work.imported.vocabulary, work.saved.tokenizer_digest,
                                  work.directory, settings));
  RETURN_IF_ERROR(WriteTokenizerFiles(vocabulary, settings, work.directory.string()));
  return CopyKeptFiles(kept, work.directory.string());
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
    ASSIGN_OR_RETURN(const std::string original, ReadWholeFile(work.imported.config));
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

// What peft calls the task of such a model.
std::string PeftTask(const HfFamily& family, const ModelConfig& model) {
  const TaskConfig& task = model.task;
  if (absl::EndsWith(family.Architecture(model), "ForCausalLM")) return "CAUSAL_LM";
  if (task.has_tags()) return "TOKEN_CLS";
  if (task.has_spans()) return "QUESTION_ANS";
  return task.has_head() && !task.has_choices() ? "SEQ_CLS" : "";
}

absl::Status WritePeft(const Export& work, const HfFamily& family) {
  const RunConfig& config = work.config;
  RETURN_IF_ERROR(CheckMetadataConfig(work.saved, config));
  const ParameterLayout network(config.model, VocabSizeOf(work.weights.parameters()));
  const bool has_output = !config.model.task.has_head() ||
                          absl::EndsWith(family.Architecture(config.model), "DoubleHeadsModel");
  const PeftExport peft = {.checkpoint = work.checkpoint,
                           .config = config,
                           .choice = work.options.weights(),
                           .dtype = work.dtype(),
                           .has_output = has_output,
                           .task_type = PeftTask(family, config.model),
                           .base_name = work.imported.source()};
  TensorTable tensors = family.Tensors(config.model, network);
  // How many rows stand before the first position is said by config.json alone.
  if (config.lora.Trains("transformer.position_embedding.weight")) {
    ASSIGN_OR_RETURN(const std::string text, ConfigText(work, family));
    ASSIGN_OR_RETURN(const HfConfig described, ParseHfConfig(text, "config.json"));
    family.FitTensors(described, tensors);
  }
  return WritePeftFiles(peft, network, tensors, work.directory.string());
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
  std::error_code ignored;
  if (fs::exists(directory.output() / "tokenizer.json", ignored))
    absl::PrintF("its tokenizer: AutoTokenizer.from_pretrained(\"%s\")\n",
                 directory.output().string());
  return absl::OkStatus();
}

Subcommand DeclareExport(CLI::App& front) {
  struct Texts {
    std::string format = "hf", dtype = "auto", shard_size;
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
  AddChoice(command, "--format", texts->format, {"hf", "safetensors", "peft"},
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
            if (texts->format == "peft") options->format = ExportFormat::kPeft;
            if (texts->format == "safetensors") options->format = ExportFormat::kSafetensors;
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
