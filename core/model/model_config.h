// The network's hyperparameters (section [model] of a run's configuration).

#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "core/base/fields.h"
#include "kernels/backend.h"

namespace anyorder {

enum class ComputeType {
  kFloat32,
  kBFloat16,
  kFloat64
};  // fp64: reference backend only, for tests
enum class InitialMemory { kMasked, kZeros };
enum class Initializer { kNormal, kUniform };

struct ModelConfig {
  // Architecture. Defaults are XLNet-Base (Yang et al. 2019; released xlnet_config.json).
  int64_t num_layers = 12;
  int64_t model_dim = 768;
  int64_t num_heads = 12;
  int64_t head_dim = 64;  // num_heads * head_dim may differ from model_dim, except for HF export
  int64_t ffn_dim = 3072;
  kernels::Activation activation = kernels::Activation::kGeluTanh;
  double layer_norm_epsilon = 1e-12;
  bool untie_r = true;  // one set of u, v, s biases per layer (released models), or one for all
  bool segment_term = true;      // relative segment encodings; off for Transformer-XL
  bool scale_embedding = false;  // multiply embeddings by sqrt(model_dim) (Transformer-XL)
  int64_t mem_len = 384;         // recurrence memory, slots a lane; 0: none
  int64_t clamp_len = -1;        // largest |distance| fed to the sinusoids; -1: no limit
  // What a lane attends to before it has produced mem_len states: nothing (masked), or zero vectors, which
  // still score by position and segment (the released TF code; for comparisons with it).
  InitialMemory initial_memory = InitialMemory::kMasked;
  // Whether there is a two-class head on CLS. No key of [model]: it is what [objective] next_sentence asks for.
  bool next_sentence_head = false;

  // Regularisation and numerics.
  double dropout = 0.1;            // embeddings, position table, residual branches, feed-forward
  double attention_dropout = 0.1;  // attention probabilities
  Initializer initializer = Initializer::kNormal;
  double init_range = 0.02;  // standard deviation (normal) or half width (uniform)
  ComputeType dtype = ComputeType::kFloat32;

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("num_layers", self.num_layers);
    visit("model_dim", self.model_dim);
    visit("num_heads", self.num_heads);
    visit("head_dim", self.head_dim);
    visit("ffn_dim", self.ffn_dim);
    visit("activation", self.activation);
    visit("layer_norm_epsilon", self.layer_norm_epsilon);
    visit("untie_r", self.untie_r);
    visit("segment_term", self.segment_term);
    visit("scale_embedding", self.scale_embedding);
    visit("mem_len", self.mem_len);
    visit("clamp_len", self.clamp_len);
    visit("initial_memory", self.initial_memory);
    visit("dropout", self.dropout);
    visit("attention_dropout", self.attention_dropout);
    visit("initializer", self.initializer);
    visit("init_range", self.init_range);
    visit("dtype", self.dtype);
  }

  // InvalidArgument listing every fault with key, value and bound.
  absl::Status Validate() const;
};

DType ToDType(ComputeType type);

template <>
inline constexpr auto kEnumNames<ComputeType> =
    std::to_array<std::pair<ComputeType, const char*>>({{ComputeType::kFloat32, "fp32"},
                                                        {ComputeType::kBFloat16, "bf16"},
                                                        {ComputeType::kFloat64, "fp64"}});
template <>
inline constexpr auto kEnumNames<InitialMemory> =
    std::to_array<std::pair<InitialMemory, const char*>>({{InitialMemory::kMasked, "masked"},
                                                          {InitialMemory::kZeros, "zeros"}});
template <>
inline constexpr auto kEnumNames<Initializer> = std::to_array<std::pair<Initializer, const char*>>(
    {{Initializer::kNormal, "normal"}, {Initializer::kUniform, "uniform"}});
template <>
inline constexpr auto kEnumNames<kernels::Activation> =
    std::to_array<std::pair<kernels::Activation, const char*>>(
        {{kernels::Activation::kGeluTanh, "gelu"},
         {kernels::Activation::kGeluErf, "gelu_erf"},
         {kernels::Activation::kRelu, "relu"}});

}  // namespace anyorder
