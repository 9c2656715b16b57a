// All parameters of a model live in one flat space in a fixed order, without padding, so that
// sharding and checkpoints speak of element ranges and never of ranks.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/base/tensor.h"
#include "core/config/model_config.h"

namespace anyorder {

enum class ParameterInit {
  kWeights,        // ModelConfig::initializer and init_range
  kZeros,          // dense biases, LayerNorm beta
  kProjections,    // N(0, ModelConfig::projection_init_range): of an adaptive softmax
  kGains,          // LayerNorm gamma: 1, or N(1, ModelConfig::layer_norm_gain_range)
  kGlorotUniform,  // mask_emb: uniform within sqrt(6 / (1 + model_dim)), as the released code
                   // leaves it
  kAdapterA,       // LoraConfig's A: uniform within 1 / sqrt(in), as peft draws it
  kAdapterB,       // its B: zeros, so that the network begins as the one without adapters
};

// How the names of an adapter's matrices end, behind those of their projection.
inline constexpr char kAdapterA[] = ".lora_A";
inline constexpr char kAdapterB[] = ".lora_B";

struct ParameterInfo {
  std::string name;    // Hugging Face's name, e.g. "transformer.layer.0.rel_attn.q"
  Shape shape;         // Hugging Face's shape
  int64_t offset = 0;  // first element in the flat space
  ParameterInit init = ParameterInit::kWeights;
  bool decays = true;  // whether weight decay applies (all but LayerNorm and dense biases)
  // The input, and what all layers share, count all layers; heads count 0, like the last layer.
  int64_t layers_above = 0;

  int64_t end() const { return offset + shape.num_elements(); }
};

// The order is ParameterWalk's (parameter_walk.h).
// With an adaptive softmax the word embedding is: table of the head's words, cluster_weight, tables
// of the other clusters, (input projections of all); and lm_loss.bias is: (softmax projections that
// are not the input's), bias of the head's words, cluster_bias, biases of the other clusters. So
// the head's softmax over words and clusters is one matrix. Names are then Hugging Face's for
// Transformer-XL, which keeps one table, not one a cluster, where clusters have no projections.
// Names are Hugging Face's for XLNet; what XLNet does not have is named in their manner.
// With adapters (ModelConfig::lora) the flat space is that of what is trained, and what is not lies
// in a second one, which is no part of a run's state: it is read from the weights that the run
// begins with. A tied softmax weight is the word embedding and no parameter of its own. Every model
// has mask_emb, which only query slots use. Models without a segment term have no r_s_bias and no
// seg_embed: an exporter writes zeros, which is the same function.
class ParameterLayout {
 public:
  explicit ParameterLayout(const ModelConfig& config, int64_t vocab_size);

  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  int64_t num_elements() const { return num_elements_; }
  // The parameters of the second space.
  const std::vector<ParameterInfo>& frozen() const { return frozen_; }
  int64_t num_frozen_elements() const { return num_frozen_elements_; }
  // Where the windows begin in which the network computes gradients, from the last to the first:
  // input and what layers share, each layer, heads. Some may be empty.
  const std::vector<int64_t>& windows() const { return windows_; }
  // The same of the second space.
  const std::vector<int64_t>& frozen_windows() const { return frozen_windows_; }
  bool Contains(absl::string_view name) const { return Search(name) != nullptr; }
  // REQUIRES: the name exists.
  const ParameterInfo& Find(absl::string_view name) const;

  // Names that this thread has compared to find others, in all layouts so far: what tests count.
  static int64_t NumComparedNames();

 private:
  // The next elements are the first of windows up to `window`.
  void EnterWindow(int64_t window) {
    while (static_cast<int64_t>(windows_.size()) <= window) {
      windows_.push_back(num_elements_);
      frozen_windows_.push_back(num_frozen_elements_);
    }
  }
  // Null: there is none.
  const ParameterInfo* Search(absl::string_view name) const;

  std::vector<ParameterInfo> parameters_;
  std::vector<int64_t> windows_, frozen_windows_;
  std::vector<size_t> by_name_;  // indices of parameters_, by name
  int64_t num_elements_ = 0;
  std::vector<ParameterInfo> frozen_;
  int64_t num_frozen_elements_ = 0;
};

// Writes elements [begin, end) of the initial flat space to `out`: a pure function of (layout,
// seed, element).
void InitializeParameters(const ParameterLayout& layout, const ModelConfig& config, uint64_t seed,
                          int64_t begin, int64_t end, float* out);

// Whether a parameter of this name belongs to a task, not to what pretraining taught: a model may
// lack it, and then it is drawn.
bool IsHeadParameter(absl::string_view name);

}  // namespace anyorder
