#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "launcher/huggingface/hf_model.h"
#include "launcher/process/child_process.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Read and converted at once, so that memory stays small for any model.
constexpr int64_t kReadElements = 4 << 20;
constexpr char kEmbedding[] = "transformer.word_embedding.weight";
constexpr char kOutputWeight[] = "lm_loss.weight";
constexpr char kSharedBias[] = "transformer.r_";
constexpr char kFetchAgain[] = "; fetch or convert the weights again";

// What models for other tasks have beside the network (modeling_xlnet: sequence classification,
// multiple choice, token classification, questions).
constexpr const char* kHeads[] = {"sequence_summary.", "logits_proj.",  "classifier.",
                                  "qa_outputs.",       "start_logits.", "end_logits.",
                                  "answer_class."};

bool IsHead(absl::string_view name) {
  return std::any_of(std::begin(kHeads), std::end(kHeads),
                     [name](const char* head) { return absl::StartsWith(name, head); });
}

// "transformer.layer.3.rel_attn.r_w_bias" for "transformer.r_w_bias".
std::string BiasOfLayer(int64_t layer, absl::string_view shared_name) {
  return absl::StrCat("transformer.layer.", layer, ".rel_attn.",
                      shared_name.substr(strlen("transformer.")));
}

// IEEE 754 binary16; exact.
float FromFloat16(uint16_t bits) {
  const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  const int exponent = bits >> 10 & 0x1f;
  const auto fraction = static_cast<float>(bits & 0x3ffu);
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * std::ldexp(1024.0f + fraction, exponent - 25);
}

bool IsReadable(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

absl::Status NoWeights(const std::string& directory) {
  const fs::path root(directory);
  if (IsFile(root / "pytorch_model.bin") || IsFile(root / "pytorch_model.bin.index.json")) {
    return FailedPrecondition(
        "'", directory,
        "' has its weights as PyTorch's .bin only; convert them first (needs Python's "
        "torch): python3 ",
        ProgramDirectory(), "/convert_bin.py ", directory);
  }
  return FailedPrecondition(
      "'", directory,
      "' has neither model.safetensors nor model.safetensors.index.json; name the directory that "
      "save_pretrained wrote");
}

}  // namespace

absl::StatusOr<HfWeights> HfWeights::Open(const std::string& directory) {
  HfWeights weights;
  const fs::path root(directory);
  const fs::path whole = root / "model.safetensors";
  const fs::path index = root / "model.safetensors.index.json";
  // In the order in which transformers looks for them.
  if (IsFile(whole)) {
    ANYORDER_RETURN_IF_ERROR(weights.AddFile(whole.string()));
  } else if (IsFile(index)) {
    ANYORDER_RETURN_IF_ERROR(weights.AddIndexed(directory, index.string()));
  } else {
    return NoWeights(directory);
  }
  return weights;
}

absl::Status HfWeights::AddFile(const std::string& path) {
  absl::StatusOr<ckpt::SafetensorsReader> reader = ckpt::SafetensorsReader::Open(path);
  if (absl::IsDataLoss(reader.status())) return DataLoss(reader.status().message(), kFetchAgain);
  ANYORDER_RETURN_IF_ERROR(reader.status());
  for (const ckpt::SafetensorsTensor& tensor : reader->tensors()) {
    const Tensor* const known = Find(tensor.entry.name);
    if (known != nullptr) {
      return DataLoss(Where(*known), " is in '", path, "', too; only one file may hold it",
                      kFetchAgain);
    }
    tensors_.push_back({files_.size(), tensor.entry});
  }
  files_.push_back({path, *std::move(reader)});
  return absl::OkStatus();
}

absl::Status HfWeights::AddIndexed(const std::string& directory, const std::string& index_path) {
  ANYORDER_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(index_path));
  const auto damaged = [&](absl::string_view what) {
    return DataLoss("'", index_path, "': ", what, kFetchAgain);
  };
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    return damaged("no object 'weight_map'");
  std::set<std::string> names;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) return damaged(absl::StrCat("'", tensor, "' has no file name"));
    const std::string name = file.get<std::string>();
    if (name.empty() || name.find('/') != std::string::npos || name[0] == '.')
      return damaged(absl::StrCat("'", tensor, "' lies in '", name, "', not in this directory"));
    names.insert(name);
  }
  for (const std::string& name : names) {
    const std::string path = (fs::path(directory) / name).string();
    if (!IsFile(path))
      return damaged(absl::StrCat("the file '", name, "' that it names is missing"));
    ANYORDER_RETURN_IF_ERROR(AddFile(path));
  }
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    const Tensor* const found = Find(tensor);
    const std::string name = file.get<std::string>();
    if (found == nullptr || fs::path(files_[found->file].path).filename() != name)
      return damaged(absl::StrCat("tensor '", tensor, "' is not in '", name, "'"));
  }
  return absl::OkStatus();
}

const HfWeights::Tensor* HfWeights::Find(absl::string_view name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(), [name](const Tensor& tensor) {
    return tensor.entry.name == name;
  });
  return found == tensors_.end() ? nullptr : &*found;
}

const HfWeights::Tensor* HfWeights::SourceOf(const ParameterInfo& parameter) const {
  if (const Tensor* const tensor = Find(parameter.name)) return tensor;
  // The two are one tensor there, and a writer of safetensors may keep either name.
  if (parameter.name == kEmbedding) return Find(kOutputWeight);
  // They repeat what layers share in every layer.
  if (absl::StartsWith(parameter.name, kSharedBias)) return Find(BiasOfLayer(0, parameter.name));
  return nullptr;
}

std::string HfWeights::Where(const Tensor& tensor) const {
  return absl::StrCat("'", files_[tensor.file].path, "': tensor '", tensor.entry.name, "'");
}

absl::Status HfWeights::CheckParameter(const ParameterInfo& parameter) const {
  const Tensor* const tensor = SourceOf(parameter);
  if (tensor == nullptr) {
    const bool is_bare = Find(absl::StripPrefix(parameter.name, "transformer.")) != nullptr;
    return FailedPrecondition(
        "'", files_.front().path, files_.size() > 1 ? "' and its companions have" : "' has",
        " no tensor '", parameter.name, "' ", parameter.shape.ToString(),
        is_bare ? ", but one without 'transformer.': it is an XLNetModel, which has no output" : "",
        "; save an XLNetLMHeadModel with this config.json");
  }
  if (!(tensor->entry.shape == parameter.shape)) {
    return FailedPrecondition(Where(*tensor), " is ", tensor->entry.shape.ToString(),
                              " but config.json makes it ", parameter.shape.ToString(),
                              "; use the config.json that belongs to these weights");
  }
  const DType dtype = tensor->entry.dtype;
  if (!IsReadable(dtype)) {
    return FailedPrecondition(
        Where(*tensor), " is ", Name(dtype),
        " but must be F32, F16 or BF16; save the model in one of these types");
  }
  return absl::OkStatus();
}

absl::Status HfWeights::Check(const ParameterLayout& layout,
                              std::vector<std::string>& left_out) const {
  std::set<std::string> used = {kOutputWeight};
  for (const ParameterInfo& parameter : layout.parameters()) {
    ANYORDER_RETURN_IF_ERROR(CheckParameter(parameter));
    used.insert(SourceOf(parameter)->entry.name);
    if (!absl::StartsWith(parameter.name, kSharedBias)) continue;
    ParameterInfo copy = parameter;
    for (int64_t layer = 0;
         Find(absl::StrCat("transformer.layer.", layer, ".rel_attn.q")) != nullptr; ++layer) {
      copy.name = BiasOfLayer(layer, parameter.name);
      ANYORDER_RETURN_IF_ERROR(CheckParameter(copy));
      used.insert(copy.name);
    }
  }
  if (const Tensor* const output = Find(kOutputWeight)) {
    ParameterInfo copy = layout.Find(kEmbedding);
    copy.name = output->entry.name;
    ANYORDER_RETURN_IF_ERROR(CheckParameter(copy));
  }
  for (const Tensor& tensor : tensors_) {
    if (used.count(tensor.entry.name) != 0) continue;
    if (!IsHead(tensor.entry.name)) {
      return FailedPrecondition(
          Where(tensor), " ", tensor.entry.shape.ToString(),
          " is unknown: the model of config.json has none of that name; use the config.json that "
          "belongs to these weights");
    }
    left_out.push_back(tensor.entry.name);
  }
  return absl::OkStatus();
}

HfWeights::Totals HfWeights::totals() const {
  Totals totals;
  totals.files = static_cast<int64_t>(files_.size());
  totals.tensors = static_cast<int64_t>(tensors_.size());
  for (const Tensor& tensor : tensors_) {
    const int64_t elements = tensor.entry.shape.num_elements();
    totals.elements += elements;
    totals.bytes += elements * SizeOf(tensor.entry.dtype);
    std::string name(Name(tensor.entry.dtype));
    if (std::find(totals.dtypes.begin(), totals.dtypes.end(), name) == totals.dtypes.end())
      totals.dtypes.push_back(std::move(name));
  }
  return totals;
}

std::vector<ckpt::SafetensorsEntry> HfWeights::entries() const {
  std::vector<ckpt::SafetensorsEntry> entries;
  for (const Tensor& tensor : tensors_) entries.push_back(tensor.entry);
  return entries;
}

absl::Status HfWeights::CheckValues() const {
  std::vector<float> piece(kReadElements);
  for (const Tensor& tensor : tensors_) {
    if (!IsReadable(tensor.entry.dtype)) continue;
    const int64_t elements = tensor.entry.shape.num_elements();
    for (int64_t begin = 0; begin < elements; begin += kReadElements) {
      ANYORDER_RETURN_IF_ERROR(
          ReadPiece(tensor, begin, std::min(kReadElements, elements - begin), piece.data()));
    }
  }
  return absl::OkStatus();
}

bool HfWeights::HasNextSentenceHead() const {
  return std::any_of(tensors_.begin(), tensors_.end(), [](const Tensor& tensor) {
    return absl::StartsWith(tensor.entry.name, "sequence_summary.") ||
           absl::StartsWith(tensor.entry.name, "logits_proj.");
  });
}

absl::Status HfWeights::ReadPiece(const Tensor& tensor, int64_t begin, int64_t count,
                                  float* out) const {
  const ckpt::SafetensorsReader& reader = files_[tensor.file].reader;
  const std::string& name = tensor.entry.name;
  if (tensor.entry.dtype == DType::kFloat32) {
    ANYORDER_RETURN_IF_ERROR(reader.Read(name, begin, begin + count, out));
  } else {
    std::vector<uint16_t> halves(count);
    ANYORDER_RETURN_IF_ERROR(reader.Read(name, begin, begin + count, halves.data()));
    const bool is_bfloat = tensor.entry.dtype == DType::kBFloat16;
    std::transform(halves.begin(), halves.end(), out, [is_bfloat](uint16_t bits) {
      return is_bfloat ? std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)
                       : FromFloat16(bits);
    });
  }
  const float* const bad =
      std::find_if(out, out + count, [](float value) { return !std::isfinite(value); });
  if (bad == out + count) return absl::OkStatus();
  return DataLoss(Where(tensor), " holds ", *bad, " as element ", begin + (bad - out),
                  ", which cannot be trained on; use weights from before "
                  "the training that made it");
}

absl::Status HfWeights::ReadTensor(const Tensor& tensor, float* out) const {
  const int64_t elements = tensor.entry.shape.num_elements();
  for (int64_t begin = 0; begin < elements; begin += kReadElements) {
    const int64_t count = std::min(kReadElements, elements - begin);
    ANYORDER_RETURN_IF_ERROR(ReadPiece(tensor, begin, count, out + begin));
  }
  return absl::OkStatus();
}

absl::Status HfWeights::RequireEqual(const Tensor& tensor, const float* values,
                                     absl::string_view why) const {
  const int64_t elements = tensor.entry.shape.num_elements();
  std::vector<float> piece(std::min(kReadElements, elements));
  for (int64_t begin = 0; begin < elements; begin += kReadElements) {
    const int64_t count = std::min(kReadElements, elements - begin);
    ANYORDER_RETURN_IF_ERROR(ReadPiece(tensor, begin, count, piece.data()));
    const auto [found, expected] =
        std::mismatch(piece.begin(), piece.begin() + count, values + begin);
    if (found == piece.begin() + count) continue;
    return FailedPrecondition(Where(tensor), " has ", *found, " as element ",
                              begin + (found - piece.begin()), " where ", *expected,
                              " is expected: ", why);
  }
  return absl::OkStatus();
}

absl::Status HfWeights::Read(const ParameterLayout& layout, float* flat) const {
  for (const ParameterInfo& parameter : layout.parameters()) {
    const Tensor* const source = SourceOf(parameter);
    ANYORDER_CHECK(source != nullptr) << parameter.name << " was not checked";
    float* const values = flat + parameter.offset;
    ANYORDER_RETURN_IF_ERROR(ReadTensor(*source, values));
    if (!absl::StartsWith(parameter.name, kSharedBias)) continue;
    int64_t layer = 1;
    for (const Tensor* copy = nullptr; (copy = Find(BiasOfLayer(layer, parameter.name))) != nullptr;
         ++layer) {
      ANYORDER_RETURN_IF_ERROR(RequireEqual(
          *copy, values,
          "untie_r is false in config.json, so that all layers share it; set untie_r to true"));
    }
  }
  const Tensor* const output = Find(kOutputWeight);
  if (output == nullptr || Find(kEmbedding) == nullptr) return absl::OkStatus();
  return RequireEqual(*output, flat + layout.Find(kEmbedding).offset,
                      "it must be the word embedding, an output of its own is not supported; save "
                      "the model with tied embeddings");
}

}  // namespace anyorder::launcher
