#include "core/network/tensors/parameters.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "absl/strings/match.h"

#include "core/base/check.h"
#include "core/base/philox.h"

namespace anyorder {
namespace {

thread_local int64_t num_compared_names = 0;

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

// Draw number `attempt` of both elements of a pair.
UniformPair DrawPair(const ElementGenerator& generator, Initializer distribution, int64_t pair,
                     uint32_t attempt) {
  const UniformPair uniform = generator.Draw(pair, attempt);
  if (distribution != Initializer::kUniform) return ToNormal(uniform);
  return {2.0 * uniform.first - 1.0, 2.0 * uniform.second - 1.0};
}

// Beyond this many deviations a truncated normal is drawn again.
constexpr double kTruncation = 2.0;

// How one parameter's elements are drawn: centre + range * draw, or all alike.
struct InitialValues {
  Initializer distribution = Initializer::kNormal;
  double centre = 0.0;
  double range = 0.0;
};

InitialValues ValuesOf(const ParameterInfo& info, const ModelConfig& config) {
  switch (info.init) {
    case ParameterInit::kZeros:
    case ParameterInit::kAdapterB: return {};
    case ParameterInit::kGains: return {Initializer::kNormal, 1.0, config.layer_norm_gain_range};
    case ParameterInit::kWeights: return {config.initializer, 0.0, config.init_range};
    case ParameterInit::kProjections:
      return {Initializer::kNormal, 0.0, config.projection_init_range};
    case ParameterInit::kGlorotUniform:
      return {Initializer::kUniform, 0.0,
              std::sqrt(6.0 / (1.0 + static_cast<double>(config.model_dim)))};
    case ParameterInit::kAdapterA:
      return {Initializer::kUniform, 0.0, 1.0 / std::sqrt(static_cast<double>(info.shape[1]))};
  }
  return {};
}

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

// Set-up asks for parameters of every layer, of which there may be thousands.
const ParameterInfo* ParameterLayout::Search(absl::string_view name) const {
  const auto place = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [this](size_t index, absl::string_view wanted) {
                                        ++num_compared_names;
                                        return parameters_[index].name < wanted;
                                      });
  if (place == by_name_.end() || parameters_[*place].name != name) return nullptr;
  return &parameters_[*place];
}

int64_t ParameterLayout::NumComparedNames() { return num_compared_names; }

const ParameterInfo& ParameterLayout::Find(absl::string_view name) const {
  const ParameterInfo* const found = Search(name);
  ANYORDER_CHECK(found != nullptr) << "no parameter is named " << std::string(name);
  return *found;
}

void InitializeParameters(const ParameterLayout& layout, const ModelConfig& config, uint64_t seed,
                          int64_t begin, int64_t end, float* out) {
  ANYORDER_CHECK(begin >= 0 && begin <= end && end <= layout.num_elements())
      << "range [" << begin << ", " << end << ") of " << layout.num_elements();
  const std::vector<ParameterInfo>& all = layout.parameters();
  const auto begins_behind = std::upper_bound(
      all.begin(), all.end(), begin,
      [](int64_t element, const ParameterInfo& info) { return element < info.offset; });
  for (auto one = std::prev(begins_behind); one != all.end() && one->offset < end; ++one) {
    const ParameterInfo& info = *one;
    const auto index = static_cast<size_t>(one - all.begin());
    const int64_t first = std::max(begin, info.offset) - info.offset;
    const int64_t last = std::min(end, info.end()) - info.offset;
    if (first >= last) continue;
    float* const place = out + (info.offset + first - begin);
    const InitialValues values = ValuesOf(info, config);
    if (values.range == 0) {
      std::fill(place, place + (last - first), static_cast<float>(values.centre));
    } else {
      FillRandom(ElementGenerator(seed, static_cast<uint32_t>(index)), values, first, last, place);
    }
  }
}

bool IsHeadParameter(absl::string_view name) {
  constexpr absl::string_view kHeads[] = {"task_head.",    "sequence_summary.", "logits_proj.",
                                          "start_logits.", "end_logits.",       "answer_class.",
                                          "qa_outputs."};
  return std::any_of(std::begin(kHeads), std::end(kHeads),
                     [&](absl::string_view head) { return absl::StartsWith(name, head); });
}

}  // namespace anyorder
