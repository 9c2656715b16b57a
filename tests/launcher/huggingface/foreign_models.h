// Small models of Llama's kind and diffusion transformers as others store them: their config.json,
// and the names and shapes of their tensors, written down here. Values are random.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/launcher/huggingface/hf_directory.h"

namespace anyorder::launcher {

enum class Storing { kUntied, kTied, kTiedStoredTwice };

// What differs between the shapes of a kind.
struct ForeignShape {
  const char* type;  // "model_type"
  int64_t layers = 2;
  int64_t dim = 16;
  int64_t heads = 4;
  int64_t key_heads = 4;
  int64_t head_dim = 4;  // explicit where heads * head_dim is not dim
  int64_t ffn = 24;
  int64_t vocab = 30;
  bool attention_bias = false;  // Llama, Qwen3: of all four; LLaDA: of q, k and v
  bool mlp_bias = false;
  Storing storing = Storing::kUntied;
  int64_t condition = 6;     // MDLM, BD3-LM: width of what modulates
  bool is_modulated = true;  // BD3-LM
  bool has_buffers = false;
  bool is_two_stream = false;  // of type "llama": A3
  DType dtype = DType::kFloat32;
};

// Names and shapes of tensors, in the order of a model.
struct ForeignTensors {
  void Add(const std::string& name, std::initializer_list<int64_t> sizes) {
    entries.push_back({name, dtype, Shape(sizes)});
  }
  // Its weight and, of most, its bias.
  void AddLinear(const std::string& name, int64_t outputs, int64_t inputs, bool has_bias = true) {
    Add(name + ".weight", {outputs, inputs});
    if (has_bias) Add(name + ".bias", {outputs});
  }
  void AddNorm(const std::string& name, int64_t size) {
    Add(name + ".weight", {size});
    Add(name + ".bias", {size});
  }

  DType dtype = DType::kFloat32;
  std::vector<ckpt::SafetensorsEntry> entries = {};
};

void AddForeignTensors(const ForeignShape& shape, ForeignTensors& list);

struct ForeignModel : StoredModel {
  explicit ForeignModel(const ForeignShape& shape);

  // Also the files around it.
  void Write(const std::string& directory, int num_files = 1) const;
  // Finite values around 0.5 wide, of the model's type.
  void Add(const std::string& name, const Shape& shape);

  DType dtype;
};

// Names of the files beside config.json and weights that Write makes.
std::vector<std::string> ForeignFiles();

}  // namespace anyorder::launcher
