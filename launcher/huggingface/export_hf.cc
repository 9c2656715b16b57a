#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "ckpt/reader.h"
#include "ckpt/safetensors.h"
#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/network/tensors/parameters.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/resume.h"
#include "data/dataset/dataset_index.h"
#include "launcher/huggingface/exchange.h"
#include "launcher/huggingface/hf_model.h"
#include "launcher/huggingface/saved_step.h"
#include "launcher/huggingface/spiece_file.h"
#include "launcher/process/command_line.h"
#include "launcher/process/new_directory.h"
#include "launcher/process/private_files.h"
#include "launcher/start/imported_run.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Read and written at once, so that memory stays small for any model.
constexpr int64_t kPieceElements = 4 << 20;

absl::Status CheckRepresentable(const RunConfig& config) {
  FaultList faults;
  const ModelConfig& model = config.model;
  const std::string& objective = config.objective.name;
  faults.Require(
      objective == "permutation_lm" || objective == "dae" || objective == "as_arm",
      absl::StrCat("objective.name is ", objective, ", not permutation_lm, dae or as_arm"));
  faults.Require(
      model.num_heads * model.head_dim == model.model_dim,
      absl::StrCat("model.num_heads * model.head_dim is ", model.num_heads * model.head_dim,
                   ", not model.model_dim = ", model.model_dim));
  faults.Require(!model.scale_embedding, "model.scale_embedding is true");
  faults.Require(model.relative_positions(), "model.positions is not relative");
  faults.Require(!model.has_distance_bias(), "model.position_bias is on");
  faults.Require(model.segments != Segments::kLearned, "model.segments is learned");
  faults.Require(!model.pre_norm(), "model.layer_norm is pre");
  faults.Require(!model.embedding_layer_norm, "model.embedding_layer_norm is true");
  faults.Require(!model.attention_biases, "model.attention_biases is true");
  faults.Require(model.softmax_bias, "model.softmax_bias is false");
  faults.Require(!model.mlm_head, "model.mlm_head is true");
  faults.Require(!model.adaptive(), "model.softmax is adaptive");
  faults.Require(model.attention_windows.empty(), "model.attention_windows is set");
  if (faults.empty()) return absl::OkStatus();
  return FailedPrecondition("Hugging Face's XLNetLMHeadModel cannot represent this model: ",
                            faults.Joined());
}

// Hugging Face keeps relative biases per layer always, and has a segment term always: shared biases
// are repeated, a missing segment term is zero (offset -1), which is the same function.
std::vector<ParameterInfo> ExportTensors(const RunConfig& config, const ParameterLayout& layout) {
  std::vector<ParameterInfo> tensors;
  const ModelConfig& model = config.model;
  const std::string shared = "transformer.";
  for (const ParameterInfo& info : layout.parameters()) {
    const bool is_shared_bias = !model.untie_r && info.name.rfind(shared + "r_", 0) == 0;
    if (!is_shared_bias) tensors.push_back(info);
  }
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string attention = absl::StrCat("transformer.layer.", layer, ".rel_attn.");
    for (const char* bias : {"r_w_bias", "r_r_bias", "r_s_bias"}) {
      if (layout.Contains(attention + bias)) continue;
      const std::string source = shared + bias;
      tensors.push_back({attention + bias, Shape{model.num_heads, model.head_dim},
                         layout.Contains(source) ? layout.Find(source).offset : -1});
    }
    if (!layout.Contains(attention + "seg_embed"))
      tensors.push_back({attention + "seg_embed", Shape{2, model.num_heads, model.head_dim}, -1});
  }
  return tensors;
}

absl::Status WriteWeights(const ckpt::Checkpoint& checkpoint,
                          const std::vector<ParameterInfo>& tensors, const std::string& path) {
  std::vector<ckpt::SafetensorsEntry> entries;
  for (const ParameterInfo& tensor : tensors)
    entries.push_back({tensor.name, DType::kFloat32, tensor.shape});
  ANYORDER_ASSIGN_OR_RETURN(ckpt::SafetensorsWriter writer,
                            ckpt::SafetensorsWriter::Create(path, entries, {{"format", "pt"}}));
  std::vector<float> values;
  for (const ParameterInfo& tensor : tensors) {
    const int64_t elements = tensor.shape.num_elements();
    for (int64_t begin = 0; begin < elements; begin += kPieceElements) {
      const int64_t end = std::min(elements, begin + kPieceElements);
      values.assign(end - begin, 0.0f);
      if (tensor.offset >= 0) {
        ANYORDER_RETURN_IF_ERROR(
            checkpoint.Read("master", tensor.offset + begin, tensor.offset + end, values.data()));
      }
      ANYORDER_RETURN_IF_ERROR(writer.WriteRange(tensor.name, begin, end, values.data()));
    }
  }
  return writer.Finish();
}

Json SpecialTokensJson() {
  return {{"bos_token", "<s>"},     {"eos_token", "</s>"},
          {"unk_token", "<unk>"},   {"sep_token", "<sep>"},
          {"pad_token", "<pad>"},   {"cls_token", "<cls>"},
          {"mask_token", "<mask>"}, {"additional_special_tokens", {"<eop>", "<eod>"}}};
}

Json TokenizerJson(bool is_uncased, const RunConfig& config) {
  Json json = SpecialTokensJson();
  json["tokenizer_class"] = "XLNetTokenizer";
  json["do_lower_case"] = is_uncased;
  json["remove_space"] = true;
  json["keep_accents"] = false;  // data/prep/cleaning.h drops them always
  json["padding_side"] = "left";
  json["model_max_length"] = config.sampling.seq_len;
  return json;
}

absl::Status WriteText(const fs::path& path, const std::string& text) {
  return WriteFileAtomically(path.string(), text);
}

absl::Status WriteTokenizerJson(const fs::path& directory, bool is_uncased,
                                const RunConfig& config) {
  ANYORDER_RETURN_IF_ERROR(WriteText(directory / "tokenizer_config.json",
                                     TokenizerJson(is_uncased, config).dump(2) + "\n"));
  return WriteText(directory / "special_tokens_map.json", SpecialTokensJson().dump(2) + "\n");
}

// The vocabulary that the run was trained with, checked.
absl::Status CopyVocabulary(const fs::path& source, const std::string& expected_digest,
                            const fs::path& directory) {
  ANYORDER_ASSIGN_OR_RETURN(const Digest128 digest, DigestOfFile(source.string()));
  if (digest.Hex() != expected_digest)
    return DataLoss(source.string(), " is damaged: its digest does not match");
  std::error_code error;
  fs::copy_file(source, directory / "spiece.model", error);
  return error ? ErrnoStatus("copy", source.string(), error.value()) : absl::OkStatus();
}

// What surrounds the weights comes from the dataset that the run was trained on. Returns the
// vocabulary's size.
absl::StatusOr<int64_t> WriteFilesOfDataset(const RunConfig& config, const TrainMetadata& saved,
                                            const fs::path& directory) {
  ANYORDER_ASSIGN_OR_RETURN(const data::DatasetIndex dataset,
                            data::ReadDatasetIndex(config.data.shards));
  ANYORDER_RETURN_IF_ERROR(CheckMetadata(saved, config, dataset));
  const auto vocab_size = static_cast<int64_t>(dataset.vocab_size);
  ANYORDER_RETURN_IF_ERROR(
      WriteText(directory / "config.json", HfConfigText(config, vocab_size, dataset.vocab_ids)));
  const auto letter_case = dataset.settings.find("case");
  const bool is_uncased = letter_case != dataset.settings.end() && letter_case->second == "uncased";
  ANYORDER_RETURN_IF_ERROR(WriteTokenizerJson(directory, is_uncased, config));
  ANYORDER_RETURN_IF_ERROR(CopyVocabulary(fs::path(config.data.shards) / dataset.tokenizer.file,
                                          dataset.tokenizer.digest, directory));
  return vocab_size;
}

// The same for a run that was imported: what came with the weights goes with them again, and no
// dataset is needed.
absl::StatusOr<int64_t> WriteFilesOfImport(const ImportedRun& imported, const RunConfig& config,
                                           const TrainMetadata& saved, const fs::path& directory) {
  ANYORDER_RETURN_IF_ERROR(CheckMetadataConfig(saved, config));
  ANYORDER_RETURN_IF_ERROR(CopyVocabulary(imported.vocabulary, saved.tokenizer_digest, directory));
  ANYORDER_ASSIGN_OR_RETURN(const std::string model, ReadWholeFile(imported.vocabulary));
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<VocabularyPiece> pieces,
                            ParsePieces(model, imported.vocabulary));
  const auto vocab_size = static_cast<int64_t>(pieces.size());
  ANYORDER_RETURN_IF_ERROR(WriteTokenizerJson(directory, /*is_uncased=*/false, config));
  ANYORDER_RETURN_IF_ERROR(CopyKeptFiles(imported.directory, directory.string()));
  ANYORDER_ASSIGN_OR_RETURN(const std::string original, ReadWholeFile(imported.config));
  ANYORDER_RETURN_IF_ERROR(
      WriteText(directory / "config.json",
                UpdatedHfConfigText(original, config, vocab_size, !saved.is_imported())));
  return vocab_size;
}

// Writes the files of the export into `directory`, which exists; returns the step they hold.
absl::StatusOr<int64_t> WriteAll(const ExportOptions& options, const RunConfig& config,
                                 const fs::path& directory) {
  ANYORDER_RETURN_IF_ERROR(CheckRepresentable(config));
  ANYORDER_ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint,
                            OpenSavedStep(options.run_dir, options.step));
  ANYORDER_ASSIGN_OR_RETURN(TrainMetadata saved, ParseMetadata(checkpoint.metadata_json()));
  ANYORDER_RETURN_IF_ERROR(AcceptRecordedSchedule(options.run_dir, config, &saved));
  const ImportedRun imported(options.run_dir);
  ANYORDER_ASSIGN_OR_RETURN(const int64_t vocab_size,
                            imported.exists()
                                ? WriteFilesOfImport(imported, config, saved, directory)
                                : WriteFilesOfDataset(config, saved, directory));
  const ParameterLayout layout(config.model, vocab_size);
  ANYORDER_RETURN_IF_ERROR(WriteWeights(checkpoint, ExportTensors(config, layout),
                                        (directory / "model.safetensors").string()));
  return checkpoint.step();
}

}  // namespace

absl::Status ExportHuggingFace(const ExportOptions& options) {
  SetLogName("export");
  ANYORDER_RETURN_IF_ERROR(RefuseUnlessAbsentOrEmpty(options.output, "--output"));
  ANYORDER_RETURN_IF_ERROR(CheckIsRun(options.run_dir));
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig config,
                            LoadRunConfig(RunDirectory(options.run_dir).config, {}));
  if (config.run.is_private) KeepFilesPrivate();
  ANYORDER_ASSIGN_OR_RETURN(NewDirectory directory,
                            NewDirectory::Create(options.output, "--output"));
  ANYORDER_ASSIGN_OR_RETURN(const int64_t step, WriteAll(options, config, directory.path()));
  ANYORDER_RETURN_IF_ERROR(directory.Publish());
  absl::PrintF("exported step %d to %s\n", step, directory.output().string());
  return absl::OkStatus();
}

Subcommand DeclareExport(CLI::App& front) {
  const auto options = std::make_shared<ExportOptions>();
  const auto format = std::make_shared<std::string>("hf");
  CLI::App* command =
      AddCommand(front, "export", "Write a checkpoint's weights for other programs.",
                 {"anyorder export --run-dir runs/a --output exported",
                  "anyorder export --run-dir runs/a --step 2000 --output exported"});
  AddRunDir(command, options->run_dir, "run directory");
  AddStep(command, options->step);
  AddChoice(command, "--format", *format, {"hf"}, "hf: a Hugging Face XLNetLMHeadModel");
  AddPath(command, "--output", options->output, "directory to create; absent or empty")->required();
  return {command, [options, format] { return Report(ExportHuggingFace(*options)); }};
}

}  // namespace anyorder::launcher
