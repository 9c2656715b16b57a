// Small models of Llama's kind and diffusion transformers as others store them: their config.json,
// and the names and shapes of their tensors, written down here. Values are random.

#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tests/launcher/huggingface/hf_directory.h"

namespace anyorder::launcher {

enum class Storing { kUntied, kTied, kTiedStoredTwice };

// What differs between the shapes of a kind.
struct ForeignShape {
  const char* name;
  const char* model_type;
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

inline void PrintTo(const ForeignShape& shape, std::ostream* out) { *out << shape.name; }

// Names and shapes of its tensors, in the order of the model.
std::vector<ckpt::SafetensorsEntry> ForeignTensors(const ForeignShape& shape);

class ForeignModel {
 public:
  explicit ForeignModel(const ForeignShape& shape, unsigned seed = 1);

  // config.json, model.safetensors or its parts with an index, and the files around them.
  void Write(const std::string& directory, int num_files = 1) const;

  HfTensor& Tensor(const std::string& name);
  void Remove(const std::string& name);
  // Finite values around 0.5 wide, of the model's type.
  void Add(const std::string& name, const Shape& shape);

  nlohmann::ordered_json config;
  std::vector<HfTensor> tensors;

 private:
  ForeignShape shape_;
  unsigned state_;
};

// Names of the files beside config.json and weights that Write makes.
std::vector<std::string> ForeignFiles();

}  // namespace anyorder::launcher
