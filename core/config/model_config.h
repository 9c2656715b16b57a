// The network's hyperparameters (section [model] of a run's configuration).

#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "core/base/fields.h"
#include "core/config/task_config.h"
#include "kernels/activation.h"

namespace anyorder {

enum class ComputeType {
  kFloat32,
  kBFloat16,
  kFloat64
};  // fp64: reference backend only, for tests
enum class InitialMemory { kMasked, kZeros };
enum class Initializer {
  kNormal,
  kUniform,
  kTruncatedNormal
};  // the last: normal, drawn again beyond two deviations
// How the network knows where a slot is: distances in the attention scores (Transformer-XL), a
// learned vector added to the input (GPT, BERT), queries and keys turned by the position (rotary),
// or not at all.
enum class Positions { kRelative, kLearned, kRope, kNone };
// How it knows segments: same or different in the scores (XLNet), a learned vector added to the
// input (BERT), or not at all.
enum class Segments { kRelative, kLearned, kNone };
// A learned bias of the scores by head and bucket of distance (distance_bias.h): T5's encoder has
// buckets for both sides, its decoder for the past alone.
enum class PositionBias { kNone, kT5, kT5Causal };
enum class LayerNormPlace {
  kPost,
  kPre
};  // LN(x + f(x)), or x + f(LN(x)) with one more at the end
// Transformer-XL's same_length: each row sees as many keys as any other, mem_len of them (the
// PyTorch code) or one more (the TensorFlow code).
enum class SameLength { kOff, kTorch, kTensorFlow };
// One softmax over the vocabulary, or one over frequent words and clusters of rare ones, then one
// inside the cluster (Grave et al. 2017), with embeddings cut the same way (Baevski & Auli 2019).
// See adaptive_clusters.h.
enum class Softmax { kFull, kAdaptive };

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
  // What a lane attends to before it has produced mem_len states: nothing (masked), or zero
  // vectors, which still score by position and segment (the released TF code; for comparisons with
  // it).
  InitialMemory initial_memory = InitialMemory::kMasked;

  // Other backbones on the same layers; the defaults above and here are XLNet's. README.md says
  // which systems use which.
  Positions positions = Positions::kRelative;
  int64_t max_positions = 512;  // learned: slots may stand at [0, max_positions)
  double rope_base = 10000.0;   // rope: angles are pos * rope_base^(-2f / head_dim)
  PositionBias position_bias = PositionBias::kNone;  // beside learned positions, or none
  int64_t position_buckets = 32;                     // of position_bias, a head
  int64_t position_bias_max_distance = 128;          // from here on distances share a bucket
  Segments segments = Segments::kRelative;  // segment_term = false is the older spelling of "none"
  int64_t num_segments = 2;                 // learned: ids in [0, num_segments)
  LayerNormPlace layer_norm = LayerNormPlace::kPost;
  bool embedding_layer_norm = false;  // LayerNorm of the sum of embeddings, before its dropout
  double layer_norm_gain_range =
      0.0;                        // gains start at N(1, this); Transformer-XL's PyTorch code: 0.02
  bool attention_biases = false;  // of q, k, v and o
  bool softmax_bias = true;
  bool mlm_head = false;  // dense, activation and LayerNorm between the readout and the softmax
  bool readout_dropout = true;  // dropout of what is read out, as XLNet and Transformer-XL have it
  bool global_projections = false;  // global slots have q, k and v of their own (Longformer)
  // Windows of (layer, head), see attention_windows.h; empty: unlimited.
  std::string attention_windows;
  SameLength same_length = SameLength::kOff;
  Softmax softmax = Softmax::kFull;
  std::string cutoffs;          // adaptive: where clusters begin, "20000, 40000, 200000"
  int64_t div_val = 1;          // adaptive: cluster i has embeddings of model_dim / div_val^i
  bool tie_projections = true;  // adaptive: those of clusters serve input and softmax
  double projection_init_range = 0.01;  // adaptive: standard deviation of their initial values
  // Whether there is a two-class head on CLS. No key of [model]: it is what [objective]
  // next_sentence asks for.
  bool next_sentence_head = false;
  // The head of fine-tuning, if any. No keys of [model] either: [objective] task, num_classes,
  // lm_weight, classifier_dropout.
  TaskConfig task;

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
    visit("positions", self.positions);
    visit("max_positions", self.max_positions);
    visit("rope_base", self.rope_base);
    visit("position_bias", self.position_bias);
    visit("position_buckets", self.position_buckets);
    visit("position_bias_max_distance", self.position_bias_max_distance);
    visit("segments", self.segments);
    visit("num_segments", self.num_segments);
    visit("layer_norm", self.layer_norm);
    visit("embedding_layer_norm", self.embedding_layer_norm);
    visit("layer_norm_gain_range", self.layer_norm_gain_range);
    visit("attention_biases", self.attention_biases);
    visit("softmax_bias", self.softmax_bias);
    visit("mlm_head", self.mlm_head);
    visit("readout_dropout", self.readout_dropout);
    visit("global_projections", self.global_projections);
    visit("attention_windows", self.attention_windows);
    visit("same_length", self.same_length);
    visit("softmax", self.softmax);
    visit("cutoffs", self.cutoffs);
    visit("div_val", self.div_val);
    visit("tie_projections", self.tie_projections);
    visit("projection_init_range", self.projection_init_range);
    visit("dropout", self.dropout);
    visit("attention_dropout", self.attention_dropout);
    visit("initializer", self.initializer);
    visit("init_range", self.init_range);
    visit("dtype", self.dtype);
  }

  bool relative_positions() const { return positions == Positions::kRelative; }
  bool relative_segments() const { return segments == Segments::kRelative && segment_term; }
  bool has_distance_bias() const { return position_bias != PositionBias::kNone; }
  bool adaptive() const { return softmax == Softmax::kAdaptive; }
  // Whether clusters' embeddings have sizes of their own and come to model_dim by projections.
  bool projects_clusters() const { return adaptive() && div_val > 1; }
  bool pre_norm() const { return layer_norm == LayerNormPlace::kPre; }
  // Whether the input is more than a dropped-out token embedding.
  bool sums_embeddings() const {
    return positions == Positions::kLearned || segments == Segments::kLearned ||
           embedding_layer_norm;
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
    {{Initializer::kNormal, "normal"},
     {Initializer::kUniform, "uniform"},
     {Initializer::kTruncatedNormal, "truncated_normal"}});
template <>
inline constexpr auto kEnumNames<Positions> =
    std::to_array<std::pair<Positions, const char*>>({{Positions::kRelative, "relative"},
                                                      {Positions::kLearned, "learned"},
                                                      {Positions::kRope, "rope"},
                                                      {Positions::kNone, "none"}});
template <>
inline constexpr auto kEnumNames<PositionBias> =
    std::to_array<std::pair<PositionBias, const char*>>({{PositionBias::kNone, "none"},
                                                         {PositionBias::kT5, "t5"},
                                                         {PositionBias::kT5Causal, "t5_causal"}});
template <>
inline constexpr auto kEnumNames<Segments> =
    std::to_array<std::pair<Segments, const char*>>({{Segments::kRelative, "relative"},
                                                     {Segments::kLearned, "learned"},
                                                     {Segments::kNone, "none"}});
template <>
inline constexpr auto kEnumNames<LayerNormPlace> =
    std::to_array<std::pair<LayerNormPlace, const char*>>({{LayerNormPlace::kPost, "post"},
                                                           {LayerNormPlace::kPre, "pre"}});
template <>
inline constexpr auto kEnumNames<SameLength> =
    std::to_array<std::pair<SameLength, const char*>>({{SameLength::kOff, "off"},
                                                       {SameLength::kTorch, "torch"},
                                                       {SameLength::kTensorFlow, "tensorflow"}});
template <>
inline constexpr auto kEnumNames<Softmax> = std::to_array<std::pair<Softmax, const char*>>(
    {{Softmax::kFull, "full"}, {Softmax::kAdaptive, "adaptive"}});
template <>
inline constexpr auto kEnumNames<kernels::Activation> =
    std::to_array<std::pair<kernels::Activation, const char*>>(
        {{kernels::Activation::kGeluTanh, "gelu"},
         {kernels::Activation::kGeluErf, "gelu_erf"},
         {kernels::Activation::kRelu, "relu"}});

}  // namespace anyorder
