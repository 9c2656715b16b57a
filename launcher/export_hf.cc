#include "launcher/export_hf.h"

#include <nlohmann/json.hpp>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"

#include "ckpt/file_system.h"
#include "ckpt/reader.h"
#include "ckpt/safetensors.h"
#include "core/base/status.h"
#include "core/model/parameters.h"
#include "core/train/config_file.h"
#include "core/train/resume.h"
#include "core/train/run_directory.h"
#include "data/dataset_index.h"
#include "data/digest.h"
#include "launcher/saved_step.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Read and written at once, so that memory stays small for any model.
constexpr int64_t kPieceElements = 4 << 20;

// One tensor of the exported file and where its values are in the checkpoint's flat "master".
struct ExportTensor {
  std::string name;
  Shape shape;
  int64_t offset = -1;  // -1: zeros
};

absl::Status CheckRepresentable(const RunConfig& config) {
  FaultList faults;
  const ModelConfig& model = config.model;
  faults.Require(config.objective.name == "permutation_lm",
                 absl::StrCat("objective.name is ", config.objective.name, ", not permutation_lm"));
  faults.Require(model.num_heads * model.head_dim == model.model_dim,
                 absl::StrCat("model.num_heads * model.head_dim is ",
                              model.num_heads * model.head_dim,
                              ", not model.model_dim = ",
                              model.model_dim));
  faults.Require(!model.scale_embedding, "model.scale_embedding is true");
  if (faults.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "Hugging Face's XLNetLMHeadModel cannot represent this model: ", faults.Joined()));
}

// Hugging Face keeps relative biases per layer always, and has a segment term always: shared biases are repeated, a
// missing segment term is zero, which is the same function.
std::vector<ExportTensor> ExportTensors(const RunConfig& config, const ParameterLayout& layout) {
  std::vector<ExportTensor> tensors;
  const ModelConfig& model = config.model;
  const auto add_from = [&](const std::string& name, const std::string& source, Shape shape) {
    const int64_t offset = layout.Contains(source) ? layout.Find(source).offset : -1;
    tensors.push_back({name, shape, offset});
  };
  const std::string shared = "transformer.";
  for (const ParameterInfo& info : layout.parameters()) {
    const bool is_shared_bias = !model.untie_r && info.name.rfind(shared + "r_", 0) == 0;
    if (!is_shared_bias) tensors.push_back({info.name, info.shape, info.offset});
  }
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string attention = absl::StrCat("transformer.layer.", layer, ".rel_attn.");
    for (const char* bias : {"r_w_bias", "r_r_bias", "r_s_bias"}) {
      if (layout.Contains(attention + bias)) continue;
      add_from(attention + bias, shared + bias, Shape{model.num_heads, model.head_dim});
    }
    if (!layout.Contains(attention + "seg_embed"))
      tensors.push_back({attention + "seg_embed", Shape{2, model.num_heads, model.head_dim}, -1});
  }
  return tensors;
}

absl::Status WriteWeights(const ckpt::Checkpoint& checkpoint,
                          const std::vector<ExportTensor>& tensors,
                          const std::string& path) {
  std::vector<ckpt::SafetensorsEntry> entries;
  for (const ExportTensor& tensor : tensors)
    entries.push_back({tensor.name, DType::kFloat32, tensor.shape});
  ANYORDER_ASSIGN_OR_RETURN(ckpt::SafetensorsWriter writer,
                            ckpt::SafetensorsWriter::Create(path, entries, {{"format", "pt"}}));
  std::vector<float> values;
  for (const ExportTensor& tensor : tensors) {
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

const char* HuggingFaceActivation(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kGeluTanh:
      return "gelu_new";
    case kernels::Activation::kGeluErf:
      return "gelu";
    case kernels::Activation::kRelu:
      return "relu";
  }
  return "gelu_new";
}

Json ModelJson(const RunConfig& config, const data::DatasetIndex& dataset) {
  const ModelConfig& model = config.model;
  return {{"architectures", {"XLNetLMHeadModel"}},
          {"model_type", "xlnet"},
          {"vocab_size", dataset.vocab_size},
          {"n_token", dataset.vocab_size},
          {"d_model", model.model_dim},
          {"n_layer", model.num_layers},
          {"n_head", model.num_heads},
          {"d_head", model.head_dim},
          {"d_inner", model.ffn_dim},
          {"ff_activation", HuggingFaceActivation(model.activation)},
          {"untie_r", model.untie_r},
          {"attn_type", "bi"},
          {"bi_data", false},
          {"clamp_len", model.clamp_len},
          {"same_length", false},
          {"mem_len", model.mem_len},
          {"reuse_len", config.sampling.reuse_len},
          {"use_mems_eval", true},
          {"use_mems_train", false},
          {"dropout", model.dropout},
          {"initializer_range", model.init_range},
          {"layer_norm_eps", model.layer_norm_epsilon},
          {"summary_type", "last"},
          {"summary_use_proj", true},
          {"summary_activation", "tanh"},
          {"summary_last_dropout", 0.1},
          {"start_n_top", 5},
          {"end_n_top", 5},
          {"tie_word_embeddings", true},
          {"torch_dtype", "float32"},
          {"bos_token_id", dataset.vocab_ids.bos},
          {"eos_token_id", dataset.vocab_ids.eos},
          {"pad_token_id", dataset.vocab_ids.pad}};
}

Json SpecialTokensJson() {
  return {{"bos_token", "<s>"},
          {"eos_token", "</s>"},
          {"unk_token", "<unk>"},
          {"sep_token", "<sep>"},
          {"pad_token", "<pad>"},
          {"cls_token", "<cls>"},
          {"mask_token", "<mask>"},
          {"additional_special_tokens", {"<eop>", "<eod>"}}};
}

Json TokenizerJson(const data::DatasetIndex& dataset, const RunConfig& config) {
  const auto letter_case = dataset.settings.find("case");
  const bool lower = letter_case != dataset.settings.end() && letter_case->second == "uncased";
  Json json = SpecialTokensJson();
  json["tokenizer_class"] = "XLNetTokenizer";
  json["do_lower_case"] = lower;
  json["remove_space"] = true;
  json["keep_accents"] = false;  // data/cleaning.h drops them always
  json["padding_side"] = "left";
  json["model_max_length"] = config.sampling.seq_len;
  return json;
}

absl::Status WriteJson(const fs::path& path, const Json& json) {
  return ckpt::WriteSmallFileAtomically(
      ckpt::FileSystem::Posix(), path.string(), json.dump(2) + "\n");
}

// The tokenizer that the run was trained with, checked.
absl::Status CopyTokenizer(const RunConfig& config,
                           const data::DatasetIndex& dataset,
                           const fs::path& directory) {
  const fs::path source = fs::path(config.data.shards) / dataset.tokenizer.file;
  ANYORDER_ASSIGN_OR_RETURN(const data::Digest128 digest, data::DigestOfFile(source.string()));
  if (digest.Hex() != dataset.tokenizer.digest)
    return absl::DataLossError(
        absl::StrCat(source.string(), " is damaged: its digest does not match"));
  std::error_code error;
  fs::copy_file(source, directory / "spiece.model", error);
  return error ? ErrnoStatus("copy", source.string(), error.value()) : absl::OkStatus();
}

absl::Status RefuseUnlessAbsentOrEmpty(const fs::path& output) {
  if (output.empty()) return absl::InvalidArgumentError("--output is empty; name a directory");
  std::error_code error;
  if (!fs::exists(output, error) ||
      (fs::is_directory(output, error) && fs::is_empty(output, error)))
    return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("--output '",
                   output.string(),
                   "' is not an empty directory; name another (nothing was changed)"));
}

// Writes the files of the export into `directory`, which exists; returns the step they hold.
absl::StatusOr<int64_t> WriteAll(const ExportOptions& options, const fs::path& directory) {
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig config,
                            LoadRunConfig(RunDirectory(options.run_dir).config, {}));
  ANYORDER_RETURN_IF_ERROR(CheckRepresentable(config));
  ANYORDER_ASSIGN_OR_RETURN(const data::DatasetIndex dataset,
                            data::ReadDatasetIndex(config.data.shards));
  ANYORDER_ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint,
                            OpenSavedStep(options.run_dir, options.step));
  ANYORDER_ASSIGN_OR_RETURN(const TrainMetadata saved, ParseMetadata(checkpoint.metadata_json()));
  ANYORDER_RETURN_IF_ERROR(CheckMetadata(saved, config, dataset));

  const ParameterLayout layout(config.model, static_cast<int64_t>(dataset.vocab_size));
  ANYORDER_RETURN_IF_ERROR(WriteWeights(
      checkpoint, ExportTensors(config, layout), (directory / "model.safetensors").string()));
  ANYORDER_RETURN_IF_ERROR(WriteJson(directory / "config.json", ModelJson(config, dataset)));
  ANYORDER_RETURN_IF_ERROR(
      WriteJson(directory / "tokenizer_config.json", TokenizerJson(dataset, config)));
  ANYORDER_RETURN_IF_ERROR(WriteJson(directory / "special_tokens_map.json", SpecialTokensJson()));
  ANYORDER_RETURN_IF_ERROR(CopyTokenizer(config, dataset, directory));
  return checkpoint.step();
}

// umask can only be read by setting it; no other thread of this program makes files.
mode_t CurrentUmask() {
  const mode_t mask = umask(0);
  umask(mask);
  return mask;
}

// A new directory beside `output`, so that a rename puts the finished export in place. Its name is nobody's: what
// an earlier export or the user left there stays.
absl::StatusOr<fs::path> MakeTemporaryBeside(const fs::path& output) {
  std::error_code error;
  if (output.has_parent_path()) fs::create_directories(output.parent_path(), error);
  if (error) return ErrnoStatus("mkdir", output.parent_path().string(), error.value());
  std::string name = output.string() + ".partial-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) return ErrnoStatus("mkdir", name);
  // mkdtemp makes it private; an export is as readable as any other directory of the user.
  fs::permissions(name, fs::perms(0777 & ~CurrentUmask()), error);
  return fs::path(name);
}

}  // namespace

absl::Status ExportHuggingFace(const ExportOptions& options) {
  fs::path output = fs::path(options.output).lexically_normal();
  if (!output.has_filename()) output = output.parent_path();  // "dir/"
  ANYORDER_RETURN_IF_ERROR(RefuseUnlessAbsentOrEmpty(output));
  ANYORDER_RETURN_IF_ERROR(CheckIsRun(options.run_dir));
  ANYORDER_ASSIGN_OR_RETURN(const fs::path temporary, MakeTemporaryBeside(output));
  std::error_code error;
  const absl::StatusOr<int64_t> step = WriteAll(options, temporary);
  if (!step.ok()) {
    fs::remove_all(temporary, error);
    return step.status();
  }
  fs::rename(temporary, output, error);  // replaces an empty directory
  if (error) {
    const absl::Status failed = ErrnoStatus("rename", output.string(), error.value());
    fs::remove_all(temporary, error);
    return failed;
  }
  const std::string parent = output.has_parent_path() ? output.parent_path().string() : ".";
  ANYORDER_RETURN_IF_ERROR(ckpt::FileSystem::Posix()->SyncDirectory(parent));
  std::printf("exported step %lld to %s\n", static_cast<long long>(*step), output.string().c_str());
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
