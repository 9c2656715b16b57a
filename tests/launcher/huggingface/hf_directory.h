// A model directory as Hugging Face writes it, small and made by hand, that a test then spoils in
// one place.

#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/safetensors.h"

namespace anyorder::launcher {

struct HfTensor {
  ckpt::SafetensorsEntry entry;
  std::string bytes;
};

// Elements as the little-endian bytes of a file.
template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

struct StoredModel {
  HfTensor& Tensor(const std::string& name);
  void Remove(const std::string& name);
  // Makes the directory with config.json and model.safetensors, or its parts with an index.
  void WriteModel(const std::string& directory, int num_files) const;

  nlohmann::ordered_json config;
  std::vector<HfTensor> tensors;
};

struct HfDirectory : StoredModel {
  // A whole XLNet: 2 layers, d_model 8, 2 heads, d_inner 12, 14 pieces; all values different.
  HfDirectory();

  void Add(const std::string& name, std::initializer_list<int64_t> shape, float first_value);
  // XLNet's summary and a head of so many outputs on it.
  void AddSummary(int64_t outputs);
  // Also spiece.model and tokenizer_config.json.
  void Write(const std::string& directory, int num_files = 1) const;

  std::vector<std::pair<std::string, int>> pieces;  // text and type
};

// A SentencePiece model of nothing but pieces.
std::string SentencePieceModel(const std::vector<std::pair<std::string, int>>& pieces);
void WriteFile(const std::string& path, const std::string& bytes);
// A tensor of DIRECTORY/model.safetensors as it is stored, and its values of fp32; empty if there
// is none.
std::string StoredBytes(const std::string& directory, const std::string& name);
std::vector<float> StoredValues(const std::string& directory, const std::string& name);
void WriteSafetensors(const std::string& path, const std::vector<HfTensor>& tensors);

}  // namespace anyorder::launcher
