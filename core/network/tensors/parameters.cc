#include "core/network/tensors/parameters.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/config/adaptive_clusters.h"

namespace anyorder {
namespace {

// Two independent numbers of [0, 1), 53 bits each, that belong to elements 2 * pair and 2 * pair +
// 1.
struct UniformPair {
  double first = 0;
  double second = 0;
};

class ElementGenerator {
 public:
  ElementGenerator(uint64_t seed, uint32_t parameter) : parameter_(parameter) {
    const PhiloxBlock key =
        Philox4x32<10>({static_cast<uint32_t>(RandomPurpose::kInit), parameter, 0, 0},
                       static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    key0_ = key[0];
    key1_ = key[1];
  }

  UniformPair Draw(int64_t pair, uint32_t attempt) const {
    const PhiloxBlock block = Philox4x32<10>(
        {static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32), parameter_, attempt},
        key0_, key1_);
    return {ToUniform(block[0], block[1]), ToUniform(block[2], block[3])};
  }

 private:
  static double ToUniform(uint32_t high, uint32_t low) {
    return static_cast<double>(((uint64_t{high} << 32) | low) >> 11) * 0x1.0p-53;
  }

  uint32_t parameter_;
  uint32_t key0_;
  uint32_t key1_;
};

// Box-Muller: both normals of a pair, so that one Philox block serves two elements.
UniformPair ToNormal(const UniformPair& uniform) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform.first));
  const double angle = 2.0 * std::numbers::pi * uniform.second;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

UniformPair ToSymmetric(const UniformPair& uniform) {
  return {2.0 * uniform.first - 1.0, 2.0 * uniform.second - 1.0};
}

// Draw number `attempt` of both elements of a pair.
UniformPair DrawPair(const ElementGenerator& generator, Initializer distribution, int64_t pair,
                     uint32_t attempt) {
  const UniformPair uniform = generator.Draw(pair, attempt);
  return distribution == Initializer::kUniform ? ToSymmetric(uniform) : ToNormal(uniform);
}

// Beyond this many deviations a truncated normal is drawn again.
constexpr double kTruncation = 2.0;

// How one parameter's elements are drawn: centre + range * draw.
struct InitialValues {
  Initializer distribution = Initializer::kNormal;
  double centre = 0.0;
  double range = 0.0;
};

// Elements [begin, end) of one parameter, counted from its own start.
void FillRandom(const ElementGenerator& generator, const InitialValues& values, int64_t begin,
                int64_t end, float* out) {
  UniformPair pair;
  for (int64_t element = begin; element < end; ++element) {
    const bool is_first = element % 2 == 0;
    if (is_first || element == begin)
      pair = DrawPair(generator, values.distribution, element / 2, 0);
    double draw = is_first ? pair.first : pair.second;
    for (uint32_t attempt = 1;
         values.distribution == Initializer::kTruncatedNormal && std::abs(draw) > kTruncation;
         ++attempt) {
      const UniformPair again = DrawPair(generator, values.distribution, element / 2, attempt);
      draw = is_first ? again.first : again.second;
    }
    *out++ = static_cast<float>(values.centre + values.range * draw);
  }
}

}  // namespace

ParameterLayout::ParameterLayout(const ModelConfig& config, int64_t vocab_size) {
  const int64_t dim = config.model_dim;
  Add("transformer.mask_emb", {1, 1, dim}, ParameterInit::kGlorotUniform, true);
  AddWordEmbedding(config, vocab_size);
  if (config.positions == Positions::kLearned)
    AddWeights("transformer.position_embedding.weight", {config.max_positions, dim});
  if (config.segments == Segments::kLearned)
    AddWeights("transformer.segment_embedding.weight", {config.num_segments, dim});
  if (config.embedding_layer_norm) AddLayerNorm("transformer.embedding_", dim);
  if (config.has_distance_bias())
    AddWeights("transformer.relative_attention_bias.weight",
               {config.position_buckets, config.num_heads});
  if (!config.untie_r) AddRelativeBiases(config, "transformer.");
  for (int64_t layer = 0; layer < config.num_layers; ++layer)
    AddLayer(config, absl::StrCat("transformer.layer.", layer, "."));
  if (config.pre_norm()) AddLayerNorm("transformer.", dim);
  if (config.mlm_head) {
    AddWeights("lm_head.dense.weight", {dim, dim});
    AddBias("lm_head.dense.bias", dim);
    AddLayerNorm("lm_head.", dim);
  }
  AddSoftmax(config, vocab_size);
  if (config.task.has_head()) {
    AddWeights("task_head.weight", {config.task.num_outputs(), dim});
    if (!config.task.has_choices()) AddBias("task_head.bias", config.task.num_outputs());
  }
  if (!config.next_sentence_head) return;
  AddWeights("sequence_summary.summary.weight", {dim, dim});
  AddBias("sequence_summary.summary.bias", dim);
  AddWeights("logits_proj.weight", {2, dim});
  AddBias("logits_proj.bias", 2);
}

void ParameterLayout::AddWordEmbedding(const ModelConfig& config, int64_t vocab_size) {
  if (!config.adaptive())
    return AddWeights("transformer.word_embedding.weight", {vocab_size, config.model_dim});
  const std::vector<AdaptiveCluster> clusters = AdaptiveClusters(config, vocab_size);
  const auto num_tails = static_cast<int64_t>(clusters.size()) - 1;
  for (size_t i = 0; i < clusters.size(); ++i) {
    AddWeights(absl::StrCat("transformer.word_emb.emb_layers.", i, ".weight"),
               {clusters[i].size(), clusters[i].dim});
    if (i == 0) AddWeights("crit.cluster_weight", {num_tails, clusters[0].dim});
  }
  if (!config.projects_clusters()) return;
  for (size_t i = 0; i < clusters.size(); ++i)
    AddProjection(absl::StrCat("transformer.word_emb.emb_projs.", i), config, clusters[i].dim);
}

void ParameterLayout::AddSoftmax(const ModelConfig& config, int64_t vocab_size) {
  if (!config.adaptive()) {
    if (config.softmax_bias) AddBias("lm_loss.bias", vocab_size);
    return;
  }
  const std::vector<AdaptiveCluster> clusters = AdaptiveClusters(config, vocab_size);
  for (size_t i = 0; i < clusters.size() && config.projects_clusters(); ++i) {
    if (i == 0 || !config.tie_projections)
      AddProjection(absl::StrCat("crit.out_projs.", i), config, clusters[i].dim);
  }
  if (!config.softmax_bias) return;
  for (size_t i = 0; i < clusters.size(); ++i) {
    AddBias(absl::StrCat("crit.out_layers.", i, ".bias"), clusters[i].size());
    if (i == 0) AddBias("crit.cluster_bias", static_cast<int64_t>(clusters.size()) - 1);
  }
}

void ParameterLayout::AddProjection(std::string name, const ModelConfig& config, int64_t dim) {
  Add(std::move(name), {config.model_dim, dim}, ParameterInit::kProjections, true);
}

void ParameterLayout::AddLayer(const ModelConfig& config, const std::string& prefix) {
  const int64_t dim = config.model_dim;
  const int64_t ffn = config.ffn_dim;
  const Shape projection{dim, config.num_heads, config.head_dim};
  const std::string attention = prefix + "rel_attn.";
  for (const char* name : {"q", "k", "v", "o"}) AddWeights(attention + name, projection);
  if (config.relative_positions()) AddWeights(attention + "r", projection);
  if (config.attention_biases) {
    for (const char* name : {"q_bias", "k_bias", "v_bias"})
      AddBias(attention + name, config.num_heads * config.head_dim);
    AddBias(attention + "o_bias", dim);
  }
  if (config.global_projections) {
    for (const char* name : {"global_q", "global_k", "global_v"})
      AddWeights(attention + name, projection);
  }
  if (config.global_projections && config.attention_biases) {
    for (const char* name : {"global_q_bias", "global_k_bias", "global_v_bias"})
      AddBias(attention + name, config.num_heads * config.head_dim);
  }
  if (config.untie_r) AddRelativeBiases(config, attention);
  if (config.relative_segments())
    AddWeights(attention + "seg_embed", {2, config.num_heads, config.head_dim});
  AddLayerNorm(attention, dim);
  AddLayerNorm(prefix + "ff.", dim);
  AddWeights(prefix + "ff.layer_1.weight", {ffn, dim});
  AddBias(prefix + "ff.layer_1.bias", ffn);
  AddWeights(prefix + "ff.layer_2.weight", {dim, ffn});
  AddBias(prefix + "ff.layer_2.bias", dim);
}

// "r_w_bias" and its like are biases by name only: the released optimizer decays them.
void ParameterLayout::AddRelativeBiases(const ModelConfig& config, const std::string& prefix) {
  const Shape heads{config.num_heads, config.head_dim};
  if (config.relative_positions()) {
    AddWeights(prefix + "r_w_bias", heads);
    AddWeights(prefix + "r_r_bias", heads);
  }
  if (config.relative_segments()) AddWeights(prefix + "r_s_bias", heads);
}

void ParameterLayout::AddLayerNorm(const std::string& prefix, int64_t dim) {
  Add(prefix + "layer_norm.weight", {dim}, ParameterInit::kGains, false);
  AddBias(prefix + "layer_norm.bias", dim);
}

void ParameterLayout::AddWeights(std::string name, Shape shape) {
  Add(std::move(name), shape, ParameterInit::kWeights, true);
}

void ParameterLayout::AddBias(std::string name, int64_t size) {
  Add(std::move(name), {size}, ParameterInit::kZeros, false);
}

void ParameterLayout::Add(std::string name, Shape shape, ParameterInit init, bool decays) {
  parameters_.push_back({std::move(name), shape, num_elements_, init, decays});
  num_elements_ += shape.num_elements();
}

bool ParameterLayout::Contains(absl::string_view name) const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [name](const ParameterInfo& info) { return info.name == name; });
}

const ParameterInfo& ParameterLayout::Find(absl::string_view name) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [name](const ParameterInfo& info) { return info.name == name; });
  ANYORDER_CHECK(found != parameters_.end()) << "no parameter is named " << std::string(name);
  return *found;
}

void InitializeParameters(const ParameterLayout& layout, const ModelConfig& config, uint64_t seed,
                          int64_t begin, int64_t end, float* out) {
  ANYORDER_CHECK(begin >= 0 && begin <= end && end <= layout.num_elements())
      << "range [" << begin << ", " << end << ") of " << layout.num_elements();
  for (size_t index = 0; index < layout.parameters().size(); ++index) {
    const ParameterInfo& info = layout.parameters()[index];
    const int64_t first = std::max(begin, info.offset) - info.offset;
    const int64_t last = std::min(end, info.end()) - info.offset;
    if (first >= last) continue;
    float* const place = out + (info.offset + first - begin);
    const ElementGenerator generator(seed, static_cast<uint32_t>(index));
    switch (info.init) {
      case ParameterInit::kZeros: std::fill(place, place + (last - first), 0.0f); break;
      case ParameterInit::kGains:
        if (config.layer_norm_gain_range == 0) {
          std::fill(place, place + (last - first), 1.0f);
          break;
        }
        FillRandom(generator, {Initializer::kNormal, 1.0, config.layer_norm_gain_range}, first,
                   last, place);
        break;
      case ParameterInit::kWeights:
        FillRandom(generator, {config.initializer, 0.0, config.init_range}, first, last, place);
        break;
      case ParameterInit::kProjections:
        FillRandom(generator, {Initializer::kNormal, 0.0, config.projection_init_range}, first,
                   last, place);
        break;
      case ParameterInit::kGlorotUniform:
        FillRandom(generator,
                   {Initializer::kUniform, 0.0,
                    std::sqrt(6.0 / (1.0 + static_cast<double>(config.model_dim)))},
                   first, last, place);
        break;
    }
  }
}

bool IsHeadParameter(absl::string_view name) {
  return absl::StartsWith(name, "task_head.") || absl::StartsWith(name, "sequence_summary.") ||
         absl::StartsWith(name, "logits_proj.");
}

}  // namespace anyorder
