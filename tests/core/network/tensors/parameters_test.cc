#include "core/network/tensors/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/network/transformer.h"
#include "tests/core/network/model_testing.h"

namespace anyorder {
namespace {

using testing::InitialParameters;

constexpr int64_t kVocab = 32000;

ModelConfig Small() {
  return {.num_layers = 2, .model_dim = 64, .num_heads = 4, .head_dim = 16, .ffn_dim = 128};
}

TEST(ParameterLayoutTest, TotalsAreThoseOfTheReleasedModels) {
  const ModelConfig large = {.num_layers = 24, .model_dim = 1024, .num_heads = 16, .ffn_dim = 4096};
  EXPECT_EQ(ParameterLayout(ModelConfig(), kVocab).num_elements(), 116750336);
  EXPECT_EQ(ParameterLayout(large, kVocab).num_elements(), 360300800);
}

TEST(ParameterLayoutTest, ParametersFollowOneAnotherWithoutGapsUnderUniqueNames) {
  for (const bool untie_r : {true, false}) {
    ModelConfig config = Small();
    config.untie_r = untie_r;
    const ParameterLayout layout(config, 50);
    std::set<std::string> names;
    int64_t end = 0;
    for (const ParameterInfo& info : layout.parameters()) {
      EXPECT_EQ(info.offset, end) << info.name;
      EXPECT_TRUE(names.insert(info.name).second) << info.name;
      end = info.end();
    }
    EXPECT_EQ(layout.num_elements(), end);
  }
}

// Plans look for parameters of every layer: with a search through all of them, four times the
// layers compared sixteen times the names.
TEST(ParameterLayoutTest, LookingInFourTimesTheLayersComparesLittleMoreThanFourTimesTheNames) {
  const auto compared = [](int64_t layers) {
    ModelConfig config = Small();
    config.model_dim = config.num_heads = config.head_dim = config.ffn_dim = 2;
    config.num_layers = layers;
    config.mem_len = 0;
    const int64_t before = ParameterLayout::NumComparedNames();
    const BatchShape shape{.batch_size = 1, .content_rows = 2, .advance = 2, .num_distances = 4};
    const auto backend = kernels::MakeReferenceBackend();
    const auto network = Transformer::Create(config, 5, shape, *backend);
    EXPECT_TRUE(network.ok()) << network.status();
    for (const ParameterInfo& info : (*network)->layout().parameters())
      if (info.name.ends_with("rel_attn.q")) (*network)->layout().Find(info.name);
    return ParameterLayout::NumComparedNames() - before;
  };
  const int64_t few = compared(100);
  EXPECT_GE(few, 100);
  EXPECT_LT(compared(400), 6 * few);
}

TEST(ParameterLayoutTest, ShapesAreHuggingFaces) {
  const ParameterLayout layout({}, kVocab);
  const auto shape = [&layout](const char* name) { return layout.Find(name).shape.ToString(); };
  EXPECT_EQ(shape("transformer.mask_emb"), "[1, 1, 768]");
  EXPECT_EQ(shape("transformer.word_embedding.weight"), "[32000, 768]");
  EXPECT_EQ(shape("transformer.layer.11.rel_attn.o"), "[768, 12, 64]");
  EXPECT_EQ(shape("transformer.layer.0.rel_attn.r_w_bias"), "[12, 64]");
  EXPECT_EQ(shape("transformer.layer.0.rel_attn.seg_embed"), "[2, 12, 64]");
  EXPECT_EQ(shape("transformer.layer.0.ff.layer_1.weight"), "[3072, 768]");
  EXPECT_EQ(shape("transformer.layer.0.ff.layer_2.weight"), "[768, 3072]");
  EXPECT_EQ(shape("lm_loss.bias"), "[32000]");
  EXPECT_FALSE(layout.Contains("lm_loss.weight")) << "the softmax weight is tied";
}

TEST(ParameterLayoutTest, SharedBiasesAreOneForAllLayers) {
  ModelConfig config = Small();
  config.untie_r = false;
  const ParameterLayout layout(config, 50);
  for (const char* const name : {"r_w_bias", "r_r_bias", "r_s_bias"}) {
    EXPECT_TRUE(layout.Contains(std::string("transformer.") + name));
    EXPECT_FALSE(layout.Contains(std::string("transformer.layer.0.rel_attn.") + name));
  }
}

TEST(ParameterLayoutTest, WithoutSegmentTermItsParametersAreAbsent) {
  ModelConfig config = Small();
  config.segments = Segments::kNone;
  const ParameterLayout layout(config, 50);
  EXPECT_FALSE(layout.Contains("transformer.layer.0.rel_attn.seg_embed"));
  EXPECT_FALSE(layout.Contains("transformer.layer.0.rel_attn.r_s_bias"));
}

TEST(ParameterLayoutTest, NextSentenceHeadComesAfterAllThatIsThereWithoutIt) {
  ModelConfig config = {.num_layers = 2, .ffn_dim = 16};
  const ParameterLayout without(config, 100);
  config.next_sentence_head = true;
  const ParameterLayout layout(config, 100);
  const size_t common = without.parameters().size();
  ASSERT_EQ(layout.parameters().size(), common + 4);
  for (size_t i = 0; i < common; ++i) {
    EXPECT_EQ(layout.parameters()[i].name, without.parameters()[i].name);
    EXPECT_EQ(layout.parameters()[i].offset, without.parameters()[i].offset);
  }
  EXPECT_EQ(layout.num_elements(), without.num_elements() + 768 * 768 + 768 + 2 * 768 + 2);
  EXPECT_EQ(layout.Find("sequence_summary.summary.weight").shape, (Shape{768, 768}));
  EXPECT_EQ(layout.Find("logits_proj.weight").shape, (Shape{2, 768}));
  for (const char* const name : {"sequence_summary.summary", "logits_proj"}) {
    EXPECT_TRUE(layout.Find(std::string(name) + ".weight").decays);
    EXPECT_FALSE(layout.Find(std::string(name) + ".bias").decays);
    EXPECT_EQ(layout.Find(std::string(name) + ".bias").init, ParameterInit::kZeros);
  }
  // The weights that both have begin alike.
  const std::vector<float> initial = InitialParameters(config, 100, 5);
  config.next_sentence_head = false;
  const std::vector<float> initial_without = InitialParameters(config, 100, 5);
  EXPECT_TRUE(std::equal(initial_without.begin(), initial_without.end(), initial.begin()));
}

// A mean of n draws with deviation s lies within 5 s / sqrt(n) but for one seed in 1.7 million; a
// variance of normals within 5 s^2 sqrt(2 / n).
TEST(InitializeParametersTest, WeightsAreNormalBiasesZeroAndGainsOne) {
  const ModelConfig config = Small();
  const ParameterLayout layout(config, 500);
  const std::vector<float> values = InitialParameters(config, 500, 3);
  for (const ParameterInfo& info : layout.parameters()) {
    const auto begin = values.begin() + info.offset;
    const auto end = values.begin() + info.end();
    const auto count = static_cast<double>(info.shape.num_elements());
    const double mean = std::accumulate(begin, end, 0.0) / count;
    const double variance = std::inner_product(begin, end, begin, 0.0) / count - mean * mean;
    switch (info.init) {
      case ParameterInit::kZeros:
        EXPECT_EQ(std::count(begin, end, 0.0f), end - begin) << info.name;
        break;
      case ParameterInit::kGains:
        EXPECT_EQ(std::count(begin, end, 1.0f), end - begin) << info.name;
        break;
      case ParameterInit::kWeights:
        EXPECT_NEAR(mean, 0, 5 * 0.02 / std::sqrt(count)) << info.name;
        EXPECT_NEAR(variance, 0.02 * 0.02,
                    5 * 0.02 * 0.02 * std::sqrt(2 / count) + 0.02 * 0.02 / count)
            << info.name;
        break;
      case ParameterInit::kProjections:
      case ParameterInit::kAdapterA:
      case ParameterInit::kAdapterB:
        ADD_FAILURE() << info.name
                      << ": only an adaptive softmax has projections, and LoRA adapters";
        break;
      case ParameterInit::kGlorotUniform: {
        const double limit = std::sqrt(6.0 / (1.0 + 64.0));
        EXPECT_LE(*std::max_element(begin, end), limit) << info.name;
        EXPECT_GE(*std::min_element(begin, end), -limit) << info.name;
        EXPECT_NEAR(mean, 0, 5 * limit / std::sqrt(3 * count)) << info.name;
        break;
      }
    }
  }
  const ParameterInfo& words = layout.Find("transformer.word_embedding.weight");
  const auto far = std::count_if(values.begin() + words.offset, values.begin() + words.end(),
                                 [](float x) { return std::abs(x) > 2 * 0.02; });
  // Not truncated: 4.55 % of normals lie beyond two deviations.
  EXPECT_NEAR(static_cast<double>(far) / 32000, 0.0455, 5 * std::sqrt(0.0455 / 32000));
}

TEST(InitializeParametersTest, AnyRangeCanBeProducedAlone) {
  ModelConfig config = Small();
  for (const Initializer initializer : {Initializer::kNormal, Initializer::kTruncatedNormal}) {
    config.initializer = initializer;
    const std::vector<float> whole = InitialParameters(config, 50, 4);
    const ParameterLayout layout(config, 50);
    const int64_t size = layout.num_elements();
    for (const int64_t begin :
         {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{64}, int64_t{4097}, size - 7}) {
      for (const int64_t length : {0, 1, 2, 7, 5000}) {
        const int64_t end = std::min(size, begin + length);
        std::vector<float> part(static_cast<size_t>(end - begin));
        InitializeParameters(layout, config, 4, begin, end, part.data());
        EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin))
            << "[" << begin << ", " << end << ")";
      }
    }
  }
}

// As peft draws them: A uniform within 1 / sqrt(in), B zero.
TEST(InitializeParametersTest, AdaptersBeginWithoutEffect) {
  ModelConfig config = Small();
  config.lora.rank = 8;
  const ParameterLayout layout(config, 500);
  const std::vector<float> values = InitialParameters(config, 500, 3);
  int64_t adapters = 0;
  for (const ParameterInfo& info : layout.parameters()) {
    const bool is_a = info.name.ends_with(kAdapterA);
    EXPECT_TRUE(is_a || info.name.ends_with(kAdapterB)) << info.name;
    const double limit = is_a ? 1 / std::sqrt(static_cast<double>(info.shape[1])) : 0;
    const auto [least, most] =
        std::minmax_element(values.begin() + info.offset, values.begin() + info.end());
    EXPECT_TRUE(*most <= limit && *least >= -limit) << info.name;
    EXPECT_TRUE(*most >= 0.9 * limit && *least <= -0.9 * limit) << info.name;
    EXPECT_TRUE(info.decays) << info.name;
    ++adapters;
  }
  EXPECT_EQ(adapters, 2 * 7 * config.num_layers);
}

TEST(InitializeParametersTest, SeedsAndParametersDrawIndependently) {
  const ModelConfig config = Small();
  EXPECT_NE(InitialParameters(config, 50, 4), InitialParameters(config, 50, 5));
  const ParameterLayout layout(config, 50);
  const std::vector<float> values = InitialParameters(config, 50, 4);
  EXPECT_NE(values[layout.Find("transformer.layer.0.rel_attn.q").offset],
            values[layout.Find("transformer.layer.1.rel_attn.q").offset]);
}

}  // namespace
}  // namespace anyorder
