#include "core/model/parameters.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/philox.h"

namespace anyorder {
namespace {

// Two independent numbers of [0, 1), 53 bits each, that belong to elements 2 * pair and 2 * pair + 1.
struct UniformPair {
  double first = 0;
  double second = 0;
};

class ElementGenerator {
 public:
  ElementGenerator(uint64_t seed, uint32_t parameter) : parameter_(parameter) {
    const PhiloxBlock key =
        Philox4x32<10>({static_cast<uint32_t>(RandomPurpose::kInit), parameter, 0, 0},
                       static_cast<uint32_t>(seed),
                       static_cast<uint32_t>(seed >> 32));
    key0_ = key[0];
    key1_ = key[1];
  }

  UniformPair Draw(int64_t pair) const {
    const PhiloxBlock block = Philox4x32<10>(
        {static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32), parameter_, 0},
        key0_,
        key1_);
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

// Elements [begin, end) of one parameter, counted from its own start.
void FillRandom(const ElementGenerator& generator,
                bool normal,
                double range,
                int64_t begin,
                int64_t end,
                float* out) {
  for (int64_t element = begin; element < end;) {
    const UniformPair draw = generator.Draw(element / 2);
    const UniformPair value = normal ? ToNormal(draw) : ToSymmetric(draw);
    if (element % 2 == 0) {
      *out++ = static_cast<float>(range * value.first);
      if (++element == end) break;
    }
    *out++ = static_cast<float>(range * value.second);
    ++element;
  }
}

}  // namespace

ParameterLayout::ParameterLayout(const ModelConfig& config, int64_t vocab_size) {
  const int64_t dim = config.model_dim;
  const int64_t heads = config.num_heads;
  const int64_t head_dim = config.head_dim;
  const int64_t ffn = config.ffn_dim;
  const auto add = [this](std::string name, Shape shape, ParameterInit init, bool decays) {
    parameters_.push_back({std::move(name), shape, num_elements_, init, decays});
    num_elements_ += shape.num_elements();
  };
  const auto add_weights = [&add](std::string name, Shape shape) {
    add(std::move(name), shape, ParameterInit::kWeights, true);
  };
  // "r_w_bias" and its like are biases by name only: the released optimizer decays them.
  const auto add_relative_biases = [&](const std::string& prefix) {
    add_weights(prefix + "r_w_bias", {heads, head_dim});
    add_weights(prefix + "r_r_bias", {heads, head_dim});
    if (config.segment_term) add_weights(prefix + "r_s_bias", {heads, head_dim});
  };
  const auto add_layer_norm = [&](const std::string& prefix) {
    add(prefix + "layer_norm.weight", {dim}, ParameterInit::kOnes, false);
    add(prefix + "layer_norm.bias", {dim}, ParameterInit::kZeros, false);
  };

  add("transformer.mask_emb", {1, 1, dim}, ParameterInit::kGlorotUniform, true);
  add_weights("transformer.word_embedding.weight", {vocab_size, dim});
  if (!config.untie_r) add_relative_biases("transformer.");
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = absl::StrCat("transformer.layer.", layer, ".");
    const std::string attention = prefix + "rel_attn.";
    for (const char* name : {"q", "k", "v", "o", "r"})
      add_weights(attention + name, {dim, heads, head_dim});
    if (config.untie_r) add_relative_biases(attention);
    if (config.segment_term) add_weights(attention + "seg_embed", {2, heads, head_dim});
    add_layer_norm(attention);
    add_layer_norm(prefix + "ff.");
    add_weights(prefix + "ff.layer_1.weight", {ffn, dim});
    add(prefix + "ff.layer_1.bias", {ffn}, ParameterInit::kZeros, false);
    add_weights(prefix + "ff.layer_2.weight", {dim, ffn});
    add(prefix + "ff.layer_2.bias", {dim}, ParameterInit::kZeros, false);
  }
  add("lm_loss.bias", {vocab_size}, ParameterInit::kZeros, false);
  if (!config.next_sentence_head) return;
  add_weights("sequence_summary.summary.weight", {dim, dim});
  add("sequence_summary.summary.bias", {dim}, ParameterInit::kZeros, false);
  add_weights("logits_proj.weight", {2, dim});
  add("logits_proj.bias", {2}, ParameterInit::kZeros, false);
}

bool ParameterLayout::Contains(absl::string_view name) const {
  return std::any_of(parameters_.begin(), parameters_.end(), [name](const ParameterInfo& info) {
    return info.name == name;
  });
}

const ParameterInfo& ParameterLayout::Find(absl::string_view name) const {
  const auto found = std::find_if(parameters_.begin(),
                                  parameters_.end(),
                                  [name](const ParameterInfo& info) { return info.name == name; });
  ANYORDER_CHECK(found != parameters_.end()) << "no parameter is named " << std::string(name);
  return *found;
}

void InitializeParameters(const ParameterLayout& layout,
                          const ModelConfig& config,
                          uint64_t seed,
                          int64_t begin,
                          int64_t end,
                          float* out) {
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
      case ParameterInit::kZeros:
        std::fill(place, place + (last - first), 0.0f);
        break;
      case ParameterInit::kOnes:
        std::fill(place, place + (last - first), 1.0f);
        break;
      case ParameterInit::kWeights:
        FillRandom(generator,
                   config.initializer == Initializer::kNormal,
                   config.init_range,
                   first,
                   last,
                   place);
        break;
      case ParameterInit::kGlorotUniform:
        FillRandom(generator,
                   /*normal=*/false,
                   std::sqrt(6.0 / (1.0 + static_cast<double>(config.model_dim))),
                   first,
                   last,
                   place);
        break;
    }
  }
}

}  // namespace anyorder
