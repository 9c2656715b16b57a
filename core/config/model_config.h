// The network's hyperparameters (section [model] of a run's configuration).

#pragma once

#include <cstdint>
#include <string>

#include "core/base/fields.h"
#include "core/config/lora_config.h"
#include "core/config/task_config.h"
#include "kernels/activation.h"

namespace anyorder {

// fp64: reference backend only, for tests.
enum class ComputeType { kFloat32, kBFloat16, kFloat64 };
enum class InitialMemory { kMasked, kZeros };
// The last: normal, drawn again beyond two deviations.
enum class Initializer { kNormal, kUniform, kTruncatedNormal };
// The keys below say what these mean.
enum class Positions { kRelative, kLearned, kLearnedPairs, kRope, kNone };
enum class Segments { kRelative, kLearned, kNone };
enum class PositionBias { kNone, kT5, kT5Causal };  // core/network/layers/positions.h
enum class LayerNormPlace { kPost, kPre };
enum class Norm { kLayerNorm, kRmsNorm };  // kernels/rows.h
enum class FfnResidual { kInput, kNormed };
enum class RopeScaling { kNone, kLlama3 };  // core/network/layers/positions.h
enum class SameLength { kOff, kTorch, kTensorFlow };
enum class Softmax { kFull, kAdaptive };  // adaptive_clusters.h

struct ModelConfig {
  // Architecture. Defaults are XLNet-Base (Yang et al. 2019; released xlnet_config.json).
  int64_t num_layers = 12;
  int64_t model_dim = 768;
  int64_t num_heads = 12;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 64;
  int64_t ffn_dim = 3072;
  kernels::Activation activation = kernels::Activation::kGeluTanh;
  double layer_norm_epsilon = 1e-12;
  bool untie_r = true;
  bool scale_embedding = false;
  int64_t mem_len = 384;
  int64_t clamp_len = -1;
  InitialMemory initial_memory = InitialMemory::kMasked;

  // Other backbones on the same layers; the defaults above and here are XLNet's. README.md says
  // which systems use which.
  Positions positions = Positions::kRelative;
  int64_t max_positions = 512;
  double rope_base = 10000.0;
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_factor = 8.0;
  double rope_low_freq_factor = 1.0;
  double rope_high_freq_factor = 4.0;
  int64_t rope_original_positions = 8192;
  PositionBias position_bias = PositionBias::kNone;
  int64_t position_buckets = 32;
  int64_t position_bias_max_distance = 128;
  Segments segments = Segments::kRelative;
  int64_t num_segments = 2;
  LayerNormPlace layer_norm = LayerNormPlace::kPost;
  Norm norm = Norm::kLayerNorm;
  bool qk_norm = false;
  bool embedding_layer_norm = false;
  double layer_norm_gain_range = 0.0;
  bool attention_biases = false;
  bool attention_output_bias = true;
  bool gated_ffn = false;
  bool ffn_biases = true;
  FfnResidual ffn_residual = FfnResidual::kInput;
  bool softmax_bias = true;
  bool tie_embeddings = true;
  bool mlm_head = false;
  bool readout_dropout = true;
  bool global_projections = false;
  std::string attention_windows;
  SameLength same_length = SameLength::kOff;
  Softmax softmax = Softmax::kFull;
  std::string cutoffs;
  int64_t div_val = 1;
  bool tie_projections = true;
  double projection_init_range = 0.01;
  // Whether there is a two-class head on CLS. No key of [model]: it is what [objective]
  // next_sentence asks for.
  bool next_sentence_head = false;
  // The head of fine-tuning, if any. No keys of [model] either: [objective] task, num_classes,
  // lm_weight, classifier_dropout.
  TaskConfig task;
  // Adapters instead of trained weights; off where a network computes with weights that have them
  // merged. No keys of [model]: RunConfig::TrainedModel.
  LoraConfig lora;

  // Regularisation and numerics.
  double dropout = 0.1;
  double attention_dropout = 0.1;
  Initializer initializer = Initializer::kNormal;
  double init_range = 0.02;
  ComputeType dtype = ComputeType::kFloat32;

  static void VisitFields(auto& self, auto& visit) {
    visit("num_layers", self.num_layers, "Transformer layers.", Between(1, 1 << 16));
    visit("model_dim", self.model_dim,
          "Width of the residual stream; even, and divisible by num_heads.", Between(1, 1 << 20));
    visit("num_heads", self.num_heads, "Attention heads per layer.", Between(1, 1 << 16));
    visit("num_kv_heads", self.num_kv_heads,
          "Heads of keys and values, each shared by num_heads / num_kv_heads query heads "
          "(grouped-query attention); 0: num_heads.",
          Between(0, 1 << 16));
    visit("head_dim", self.head_dim,
          "Width of an attention head; num_heads * head_dim may differ from model_dim, except for "
          "export to Hugging Face.",
          Between(1, 1 << 16));
    visit("ffn_dim", self.ffn_dim, "Hidden width of the feed-forward layers.", Between(1, 1 << 22));
    visit("activation", self.activation,
          "Activation of the feed-forward layers; \"gelu\" is the tanh approximation, \"gelu_erf\" "
          "the exact form; \"silu\" with gated_ffn is SwiGLU.");
    visit("layer_norm_epsilon", self.layer_norm_epsilon,
          "Added to the variance in each LayerNorm, to the mean square in each RMSNorm.", Above(0));
    visit("untie_r", self.untie_r,
          "Relative attention biases (u, v, s) of each layer's own, as in released models; false: "
          "one set for all layers.");
    visit("scale_embedding", self.scale_embedding,
          "Multiply token embeddings by sqrt(model_dim) (Transformer-XL).");
    visit("mem_len", self.mem_len, "Recurrence memory of each lane; 0: none.",
          Between(0, 1 << 24, "tokens"), Decides::kTraining);
    visit("clamp_len", self.clamp_len,
          "Largest distance that the relative position encoding distinguishes; -1: no limit.",
          AtLeast(-1, "tokens"));
    visit("initial_memory", self.initial_memory,
          "What a lane attends to before its memory is full: nothing (\"masked\"), or zero vectors "
          "that still score by position and segment (\"zeros\", the released TensorFlow code).",
          Decides::kTraining);
    visit("positions", self.positions,
          "Position encoding: distances in the attention scores (\"relative\", Transformer-XL), a "
          "learned vector added to the input (\"learned\"; \"learned_pairs\": two of half the "
          "width, of a token's own position and of the one that it predicts, sigma-GPT), rotary "
          "(\"rope\"), or \"none\".");
    visit("max_positions", self.max_positions,
          "Learned positions: rows of the table, the longest sequence.",
          Between(1, 1 << 24, "tokens"));
    visit("rope_base", self.rope_base,
          "Rotary positions: angles are position * rope_base^(-2f / head_dim).", Above(1));
    visit("rope_scaling", self.rope_scaling,
          "Rotary positions beyond those of pretraining: \"llama3\" slows down low frequencies by "
          "the next four keys (Llama 3.1).");
    visit("rope_factor", self.rope_factor, "rope_scaling: low frequencies are divided by this.",
          AtLeast(1));
    visit("rope_low_freq_factor", self.rope_low_freq_factor,
          "rope_scaling: frequencies with a wavelength above rope_original_positions / "
          "rope_low_freq_factor are low.",
          Above(0));
    visit("rope_high_freq_factor", self.rope_high_freq_factor,
          "rope_scaling: frequencies with a wavelength below rope_original_positions / "
          "rope_high_freq_factor are kept.",
          Above(0));
    visit("rope_original_positions", self.rope_original_positions,
          "rope_scaling: sequence length of pretraining.", Between(1, 1 << 24, "tokens"));
    visit("position_bias", self.position_bias,
          "Learned bias of the attention scores by head and bucket of distance, with learned "
          "positions or none: T5's encoder (\"t5\", both sides) or decoder (\"t5_causal\").");
    visit("position_buckets", self.position_buckets, "Distance buckets of position_bias per head.",
          AtLeast(2));
    visit("position_bias_max_distance", self.position_bias_max_distance,
          "Distances from here on share the last bucket of position_bias.",
          Between(1, 1 << 20, "tokens"));
    visit("segments", self.segments,
          "Segment encoding: same or different in the attention scores (\"relative\", XLNet), a "
          "learned vector added to the input (\"learned\", BERT), or \"none\".");
    visit("num_segments", self.num_segments, "Learned segments: rows of the table.", AtLeast(1));
    visit("layer_norm", self.layer_norm,
          "Normalisation after each residual sum (\"post\"), or before each sublayer with one more "
          "at the end (\"pre\").");
    visit("norm", self.norm,
          "Normalisation: \"layer_norm\", or \"rms_norm\" (Zhang & Sennrich 2019), which has no "
          "bias and does not subtract the mean.");
    visit("qk_norm", self.qk_norm,
          "RMSNorm of each head's queries and keys before rotary positions, with one gain vector "
          "for all heads of a layer each (Qwen3).");
    visit("embedding_layer_norm", self.embedding_layer_norm,
          "LayerNorm of the summed input embeddings, before dropout (BERT).");
    visit("layer_norm_gain_range", self.layer_norm_gain_range,
          "Standard deviation of the initial LayerNorm gains around 1 (Transformer-XL's PyTorch "
          "code: 0.02).",
          AtLeast(0), Decides::kTraining);
    visit("attention_biases", self.attention_biases,
          "Biases in the query, key, value and output projections.");
    visit("attention_output_bias", self.attention_output_bias,
          "With attention_biases: whether the output projection has one, too (Qwen2: false).");
    visit("gated_ffn", self.gated_ffn,
          "Feed-forward layers multiply the activation of one projection by a second one (GLU "
          "variants, Shazeer 2020).");
    visit("ffn_biases", self.ffn_biases, "Biases in the feed-forward layers.");
    visit(
        "ffn_residual", self.ffn_residual,
        "With layer_norm = \"pre\": what a feed-forward layer is added to, its \"input\", or that "
        "\"normed\", as in A3's released layers.");
    visit("softmax_bias", self.softmax_bias, "A bias per vocabulary entry in the output softmax.");
    visit("tie_embeddings", self.tie_embeddings,
          "The output softmax multiplies by the token embeddings; false: by a matrix of its own.");
    visit("mlm_head", self.mlm_head,
          "Dense layer, activation and LayerNorm before the output softmax (BERT).");
    visit("readout_dropout", self.readout_dropout,
          "Dropout of the final hidden states, as in XLNet and Transformer-XL.",
          Decides::kTraining);
    visit("global_projections", self.global_projections,
          "Separate query, key and value projections for tokens with global attention "
          "(Longformer).");
    visit(
        "attention_windows", self.attention_windows,
        "Attention window of each layer and head as LEFT:RIGHT[:STRIDE], such as \"32:0; 2x "
        "128:0:2 / 6x 128:0\": layers between semicolons, groups of heads between slashes; empty: "
        "unlimited.",
        Decides::kTraining);
    visit("same_length", self.same_length,
          "Every token sees the same number of keys: mem_len (\"torch\") or mem_len + 1 "
          "(\"tensorflow\"), as the two Transformer-XL codes do.",
          Decides::kTraining);
    visit("softmax", self.softmax,
          "Output softmax: \"full\", or \"adaptive\" with clusters of rare words (Grave et al. "
          "2017) and embeddings cut the same way.");
    visit("cutoffs", self.cutoffs,
          "Adaptive softmax: vocabulary ids at which clusters begin, such as \"20000, 40000\".");
    visit("div_val", self.div_val,
          "Adaptive softmax: cluster i has embeddings of width model_dim / div_val^i.", AtLeast(1));
    visit("tie_projections", self.tie_projections,
          "Adaptive softmax: input embedding and softmax share the cluster projections.");
    visit("projection_init_range", self.projection_init_range,
          "Adaptive softmax: standard deviation of the initial cluster projections.", Above(0));
    visit("dropout", self.dropout,
          "Dropout of embeddings, position table, residual branches and feed-forward layers.",
          Rate(), Decides::kTraining);
    visit("attention_dropout", self.attention_dropout, "Dropout of attention probabilities.",
          Rate(), Decides::kTraining);
    visit("initializer", self.initializer,
          "Distribution of initial weights; \"truncated_normal\" resamples beyond two standard "
          "deviations.",
          Decides::kTraining);
    visit("init_range", self.init_range,
          "Standard deviation (normal) or half width (uniform) of initial weights.", Above(0),
          Decides::kTraining);
    visit("dtype", self.dtype,
          "Compute type of activations and matrix products; master weights and Adam moments are "
          "fp32. \"fp64\" is for tests only.",
          Decides::kTraining);
  }

  int64_t kv_heads() const { return num_kv_heads == 0 ? num_heads : num_kv_heads; }
  bool rms_norm() const { return norm == Norm::kRmsNorm; }
  bool relative_positions() const { return positions == Positions::kRelative; }
  bool paired_positions() const { return positions == Positions::kLearnedPairs; }
  // Whether a table has a row for each position.
  bool learned_positions() const { return positions == Positions::kLearned || paired_positions(); }
  bool relative_segments() const { return segments == Segments::kRelative; }
  bool has_distance_bias() const { return position_bias != PositionBias::kNone; }
  bool adaptive() const { return softmax == Softmax::kAdaptive; }
  // Whether clusters' embeddings have sizes of their own and come to model_dim by projections.
  bool projects_clusters() const { return adaptive() && div_val > 1; }
  bool pre_norm() const { return layer_norm == LayerNormPlace::kPre; }
  // Whether that projection exists and has an adapter.
  bool HasAdapter(AdapterTarget target) const {
    return lora.is_on() && HasProjection(target) && lora.Adapts(target);
  }
  bool HasProjection(AdapterTarget target) const {
    if (target == AdapterTarget::kR) return relative_positions();
    return target != AdapterTarget::kGate || gated_ffn;
  }
  // Whether the input is more than a dropped-out token embedding.
  bool sums_embeddings() const {
    return learned_positions() || segments == Segments::kLearned || embedding_layer_norm;
  }

  // Every fault, with key, value and bound.
  FaultList Validate() const;
};

inline DType ToDType(ComputeType type) {
  if (type == ComputeType::kFloat64) return DType::kFloat64;
  return type == ComputeType::kBFloat16 ? DType::kBFloat16 : DType::kFloat32;
}

constexpr auto SpellingsOf(ComputeType) { return std::array{"fp32", "bf16", "fp64"}; }
constexpr auto SpellingsOf(InitialMemory) { return std::array{"masked", "zeros"}; }
constexpr auto SpellingsOf(Initializer) {
  return std::array{"normal", "uniform", "truncated_normal"};
}
constexpr auto SpellingsOf(Positions) {
  return std::array{"relative", "learned", "learned_pairs", "rope", "none"};
}
constexpr auto SpellingsOf(PositionBias) { return std::array{"none", "t5", "t5_causal"}; }
constexpr auto SpellingsOf(Segments) { return std::array{"relative", "learned", "none"}; }
constexpr auto SpellingsOf(LayerNormPlace) { return std::array{"post", "pre"}; }
constexpr auto SpellingsOf(Norm) { return std::array{"layer_norm", "rms_norm"}; }
constexpr auto SpellingsOf(FfnResidual) { return std::array{"input", "normed"}; }
constexpr auto SpellingsOf(RopeScaling) { return std::array{"none", "llama3"}; }
constexpr auto SpellingsOf(SameLength) { return std::array{"off", "torch", "tensorflow"}; }
constexpr auto SpellingsOf(Softmax) { return std::array{"full", "adaptive"}; }

}  // namespace anyorder
