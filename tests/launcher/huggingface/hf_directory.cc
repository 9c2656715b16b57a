#include "tests/launcher/huggingface/hf_directory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/network/tensors/parameters.h"

namespace anyorder::launcher {
namespace {

constexpr int64_t kPieces = 14;

ParameterLayout Layout() {
  ModelConfig model;
  model.num_layers = 2;
  model.model_dim = 8;
  model.num_heads = 2;
  model.head_dim = 4;
  model.ffn_dim = 12;
  return ParameterLayout(model, kPieces);
}

HfTensor MakeTensor(const std::string& name, const Shape& shape, float first_value) {
  std::vector<float> values(shape.num_elements());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = first_value + static_cast<float>(i) / 1024.0f;
  return {{name, DType::kFloat32, shape}, BytesOf(values)};
}

// A field of a protobuf message shorter than 128 bytes.
std::string Field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

}  // namespace

HfTensor& StoredModel::Tensor(const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const HfTensor& tensor) {
    return tensor.entry.name == name;
  });
  ANYORDER_CHECK(found != tensors.end()) << name;
  return *found;
}

void StoredModel::Remove(const std::string& name) {
  tensors.erase(tensors.begin() + (&Tensor(name) - tensors.data()));
}

void StoredModel::WriteModel(const std::string& directory, int num_files) const {
  std::filesystem::create_directories(directory);
  WriteFile(directory + "/config.json", config.dump(1));
  if (num_files == 1) return WriteSafetensors(directory + "/model.safetensors", tensors);
  nlohmann::ordered_json index;
  for (int part = 0; part < num_files; ++part) {
    const std::string name =
        absl::StrCat("model-0000", part + 1, "-of-0000", num_files, ".safetensors");
    std::vector<HfTensor> held;
    for (size_t i = part; i < tensors.size(); i += num_files) {
      held.push_back(tensors[i]);
      index["weight_map"][held.back().entry.name] = name;
    }
    WriteSafetensors(absl::StrCat(directory, "/", name), held);
  }
  WriteFile(directory + "/model.safetensors.index.json", index.dump());
}

HfDirectory::HfDirectory() {
  config = nlohmann::ordered_json::parse(R"({"architectures": ["XLNetLMHeadModel"],
    "attn_type": "bi", "model_type": "xlnet", "d_model": 8, "n_layer": 2, "n_head": 2,
    "d_inner": 12, "vocab_size": 14, "ff_activation": "gelu", "mem_len": null, "untie_r": true,
    "torch_dtype": "float32", "task_specific_params": {"text-generation": {"max_length": 250}}})");
  float first_value = 0;
  const ParameterLayout layout = Layout();
  for (const ParameterInfo& info : layout.parameters())
    tensors.push_back(MakeTensor(info.name, info.shape, first_value += 1));
  pieces = {{"<unk>", 2}, {"<s>", 3},    {"</s>", 3},  {"<cls>", 3}, {"<sep>", 3},
            {"<pad>", 3}, {"<mask>", 3}, {"<eod>", 3}, {"<eop>", 4}};
  while (pieces.size() < kPieces) pieces.emplace_back(absl::StrCat("p", pieces.size()), 1);
}

void HfDirectory::Add(const std::string& name, std::initializer_list<int64_t> shape,
                      float first_value) {
  tensors.push_back(MakeTensor(name, Shape(shape), first_value));
}

void HfDirectory::AddSummary(int64_t outputs) {
  Add("sequence_summary.summary.weight", {8, 8}, 50);
  Add("sequence_summary.summary.bias", {8}, 51);
  Add("logits_proj.weight", {outputs, 8}, 52);
  Add("logits_proj.bias", {outputs}, 53);
}

void HfDirectory::Write(const std::string& directory, int num_files) const {
  WriteModel(directory, num_files);
  WriteFile(directory + "/tokenizer_config.json", "{\"do_lower_case\": true, \"mine\": 7}\n");
  WriteFile(directory + "/spiece.model", SentencePieceModel(pieces));
}

std::string SentencePieceModel(const std::vector<std::pair<std::string, int>>& pieces) {
  std::string model;
  for (const auto& [text, type] : pieces) {
    std::string piece = Field(1, text) + std::string("\x15\0\0\x80\xBF", 5);  // score -1
    if (type != 1) piece += std::string{'\x18', static_cast<char>(type)};
    model += Field(1, piece);
  }
  return model + Field(2, "\x18\x01");  // trainer_spec.model_type: unigram
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string StoredBytes(const std::string& directory, const std::string& name) {
  const auto reader = ckpt::SafetensorsReader::Open(directory + "/model.safetensors");
  const auto* const found = reader.ok() ? reader->Find(name) : nullptr;
  if (found == nullptr) return "";
  const int64_t elements = found->entry.shape.num_elements();
  std::string bytes(static_cast<size_t>(elements * SizeOf(found->entry.dtype)), '\0');
  ANYORDER_CHECK_OK(reader->Read(name, 0, elements, bytes.data()));
  return bytes;
}

std::vector<float> StoredValues(const std::string& directory, const std::string& name) {
  const std::string bytes = StoredBytes(directory, name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<char*>(values.data()));
  return values;
}

void WriteSafetensors(const std::string& path, const std::vector<HfTensor>& tensors) {
  std::vector<ckpt::SafetensorsEntry> entries;
  for (const HfTensor& tensor : tensors) entries.push_back(tensor.entry);
  std::filesystem::remove(path);
  absl::StatusOr<ckpt::SafetensorsWriter> writer =
      ckpt::SafetensorsWriter::Create(path, entries, {{"format", "pt"}});
  ANYORDER_CHECK(writer.ok()) << writer.status().ToString();
  for (const HfTensor& tensor : tensors) {
    const absl::Status written = writer->WriteRange(
        tensor.entry.name, 0, tensor.entry.shape.num_elements(), tensor.bytes.data());
    ANYORDER_CHECK(written.ok()) << written.ToString();
  }
  ANYORDER_CHECK(writer->Finish().ok());
}

}  // namespace anyorder::launcher
