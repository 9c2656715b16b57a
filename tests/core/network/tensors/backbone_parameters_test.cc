// Parameters of other systems' backbones: published totals, order and initial values.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"

#include "core/network/tensors/parameters.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/with_keys.h"

namespace anyorder {
namespace {

using testing::SetKeys;
using testing::With;

ModelConfig Learned(int64_t max_positions) {
  return {.positions = Positions::kLearned,
          .max_positions = max_positions,
          .segments = Segments::kNone,
          .attention_biases = true};
}

ModelConfig Gpt() { return With(Learned(512), "softmax_bias = false"); }

ModelConfig Bert() {
  ModelConfig config =
      With(Learned(512),
           "segments = learned, num_segments = 2, embedding_layer_norm = true, mlm_head = true");
  config.next_sentence_head = true;
  return config;
}

ModelConfig Longformer() {
  ModelConfig config =
      With(Bert(), "max_positions = 4098, num_segments = 1, global_projections = true");
  config.next_sentence_head = false;
  return config;
}

ModelConfig MpNet() {
  ModelConfig config = With(Bert(), "segments = none, position_bias = t5");
  config.next_sentence_head = false;
  return config;
}

ModelConfig Llama(int64_t layers, int64_t dim, int64_t heads, int64_t kv_heads, int64_t head_dim,
                  int64_t ffn) {
  return {.num_layers = layers,
          .model_dim = dim,
          .num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_dim = head_dim,
          .ffn_dim = ffn,
          .activation = kernels::Activation::kSilu,
          .positions = Positions::kRope,
          .segments = Segments::kNone,
          .layer_norm = LayerNormPlace::kPre,
          .norm = Norm::kRmsNorm,
          .gated_ffn = true,
          .ffn_biases = false,
          .softmax_bias = false};
}

ModelConfig Untied(const ModelConfig& config) { return With(config, "tie_embeddings = false"); }

// With biases shared by all layers, unless said otherwise.
ModelConfig TransformerXl(int64_t layers, int64_t dim, int64_t heads, int64_t head_dim, int64_t ffn,
                          const std::string& cutoffs = "", int64_t div_val = 1) {
  return {.num_layers = layers,
          .model_dim = dim,
          .num_heads = heads,
          .head_dim = head_dim,
          .ffn_dim = ffn,
          .untie_r = false,
          .segments = Segments::kNone,
          .softmax = cutoffs.empty() ? Softmax::kFull : Softmax::kAdaptive,
          .cutoffs = cutoffs,
          .div_val = div_val};
}

constexpr int64_t kWikiText103 = 267735;

// Networks that have a file in configs/ have their totals in configs_test.cc.
TEST(BackboneParametersTest, TotalsAreThePublishedOnes) {
  const struct {
    const char* network;
    ModelConfig config;
    int64_t vocab_size;
    int64_t total;
  } kPublished[] = {
      // Two position rows are reserved, one segment.
      {"LongformerForMaskedLM of allenai/longformer-base-4096", Longformer(), 50265, 148711257},
      // No segments, 32 buckets for 12 heads.
      {"MPNetForMaskedLM of transformers' MPNetConfig()", MpNet(), 30527, 109516991},
      {"Llama-3.1-8B", Untied(Llama(32, 4096, 32, 8, 128, 14336)), 128256, 8030261248},
      {"Llama-3.2-1B", Llama(16, 2048, 32, 8, 64, 8192), 128256, 1235814400},
  };
  for (const auto& published : kPublished) {
    // Every model has XLNet's mask_emb.
    EXPECT_EQ(ParameterLayout(published.config, published.vocab_size).num_elements(),
              published.total + published.config.model_dim)
        << published.network;
  }
  // "277M"
  const int64_t large = ParameterLayout(TransformerXl(24, 1024, 8, 128, 3072), 204).num_elements();
  EXPECT_NEAR(static_cast<double>(large - 1024), 277e6, 0.5e6);
}

// transformers' "transfo-xl-wt103": clusters of 1024, 256, 64 and 16 dimensions, and biases of each
// layer's own.
TEST(BackboneParametersTest, TransformerXlOfProjectedWordsHasTheTotalOfItsParts) {
  ModelConfig config = TransformerXl(18, 1024, 16, 64, 4096, "20000, 40000, 200000", 4);
  config.untie_r = true;
  const int64_t layers = 18 * (5 * 1024 * 1024 + 2 * 1024 * 4096 + 4096 + 5 * 1024 + 2 * 1024);
  const int64_t tables = 20000 * 1024 + 20000 * 256 + 160000 * 64 + 67735 * 16;
  const int64_t projections = 1024 * (1024 + 1024 + 256 + 64 + 16);
  const int64_t total = 1024 + layers + tables + 3 * 1024 + projections + kWikiText103 + 3;
  EXPECT_EQ(ParameterLayout(config, kWikiText103).num_elements(), total);
  config.tie_projections = false;
  EXPECT_EQ(ParameterLayout(config, kWikiText103).num_elements(), total + 1024 * (256 + 64 + 16));
}

std::vector<std::string> Words(absl::string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
}

// All names in their order. Only matrices decay.
std::vector<std::string> NamesOf(const ParameterLayout& layout) {
  std::vector<std::string> names;
  for (const ParameterInfo& info : layout.parameters()) {
    names.push_back(info.name);
    EXPECT_EQ(info.decays, info.shape.rank() > 1) << info.name;
  }
  return names;
}

TEST(BackboneParametersTest, OrderOfAnAdaptiveSoftmaxIsThatOfTheHeader) {
  ModelConfig config = TransformerXl(1, 16, 2, 8, 32, "10, 15", 2);
  config.tie_projections = false;
  const std::vector<std::string> names = NamesOf(ParameterLayout(config, 21));
  const std::vector<std::string> first = Words(R"(
      transformer.mask_emb transformer.word_emb.emb_layers.0.weight crit.cluster_weight
      transformer.word_emb.emb_layers.1.weight transformer.word_emb.emb_layers.2.weight
      transformer.word_emb.emb_projs.0 transformer.word_emb.emb_projs.1
      transformer.word_emb.emb_projs.2 transformer.r_w_bias)");
  const std::vector<std::string> last = Words(R"(
      transformer.layer.0.ff.layer_2.bias crit.out_projs.0 crit.out_projs.1 crit.out_projs.2
      crit.out_layers.0.bias crit.cluster_bias crit.out_layers.1.bias crit.out_layers.2.bias)");
  ASSERT_GT(names.size(), first.size() + last.size());
  EXPECT_TRUE(std::equal(first.begin(), first.end(), names.begin()));
  EXPECT_TRUE(std::equal(last.rbegin(), last.rend(), names.rbegin()));
}

// Initial values of a parameter, and their first two moments about 0.
struct Drawn {
  Drawn(const ModelConfig& config, const ParameterLayout& layout, const ParameterInfo& info)
      : n(static_cast<double>(info.shape.num_elements())), values(static_cast<size_t>(n)) {
    InitializeParameters(layout, config, 3, info.offset, info.end(), values.data());
    mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
    squares = std::inner_product(values.begin(), values.end(), values.begin(), 0.0) / n;
  }
  double n;
  std::vector<float> values;
  double mean, squares;
};

// N(0, 0.01), and N(0, 0.02) for tables.
TEST(BackboneParametersTest, ProjectionsHaveARangeOfTheirOwn) {
  const ModelConfig config = TransformerXl(1, 64, 2, 32, 32, "50", 2);
  const ParameterLayout layout(config, 100);
  for (const auto& [name, deviation] : {std::pair<const char*, double>{"crit.out_projs.0", 0.01},
                                        {"transformer.word_emb.emb_projs.0", 0.01},
                                        {"transformer.word_emb.emb_layers.0.weight", 0.02}}) {
    const Drawn drawn(config, layout, layout.Find(name));
    EXPECT_NEAR(drawn.squares / (deviation * deviation), 1, 5 * std::sqrt(2 / drawn.n)) << name;
  }
}

TEST(BackboneParametersTest, OrderIsThatOfTheHeaderAndOnlyMatricesDecay) {
  ModelConfig config = Bert();
  SetKeys("num_layers = 1, layer_norm = pre, global_projections = true", config);
  config.position_bias = PositionBias::kT5;  // not valid together, but each has its place
  EXPECT_EQ(NamesOf(ParameterLayout(config, 100)), Words(R"(
      transformer.mask_emb transformer.word_embedding.weight transformer.position_embedding.weight
      transformer.segment_embedding.weight transformer.embedding_layer_norm.weight
      transformer.embedding_layer_norm.bias transformer.relative_attention_bias.weight
      transformer.layer.0.rel_attn.q transformer.layer.0.rel_attn.k transformer.layer.0.rel_attn.v
      transformer.layer.0.rel_attn.o transformer.layer.0.rel_attn.q_bias
      transformer.layer.0.rel_attn.k_bias transformer.layer.0.rel_attn.v_bias
      transformer.layer.0.rel_attn.o_bias transformer.layer.0.rel_attn.global_q
      transformer.layer.0.rel_attn.global_k transformer.layer.0.rel_attn.global_v
      transformer.layer.0.rel_attn.global_q_bias transformer.layer.0.rel_attn.global_k_bias
      transformer.layer.0.rel_attn.global_v_bias transformer.layer.0.rel_attn.layer_norm.weight
      transformer.layer.0.rel_attn.layer_norm.bias transformer.layer.0.ff.layer_norm.weight
      transformer.layer.0.ff.layer_norm.bias transformer.layer.0.ff.layer_1.weight
      transformer.layer.0.ff.layer_1.bias transformer.layer.0.ff.layer_2.weight
      transformer.layer.0.ff.layer_2.bias transformer.layer_norm.weight
      transformer.layer_norm.bias lm_head.dense.weight lm_head.dense.bias
      lm_head.layer_norm.weight lm_head.layer_norm.bias lm_loss.bias
      sequence_summary.summary.weight sequence_summary.summary.bias logits_proj.weight
      logits_proj.bias)"));
}

TEST(BackboneParametersTest, LlamaHasOneGainANormAndNoOtherBiasThanItAsksFor) {
  const ModelConfig config =
      With(Untied(Llama(1, 8, 4, 2, 2, 6)),
           "qk_norm = true, attention_biases = true, attention_output_bias = false");
  const ParameterLayout layout(config, 10);
  EXPECT_EQ(NamesOf(layout), Words(R"(
      transformer.mask_emb transformer.word_embedding.weight transformer.layer.0.rel_attn.q
      transformer.layer.0.rel_attn.k transformer.layer.0.rel_attn.v transformer.layer.0.rel_attn.o
      transformer.layer.0.rel_attn.q_bias transformer.layer.0.rel_attn.k_bias
      transformer.layer.0.rel_attn.v_bias transformer.layer.0.rel_attn.q_norm.weight
      transformer.layer.0.rel_attn.k_norm.weight transformer.layer.0.rel_attn.layer_norm.weight
      transformer.layer.0.ff.layer_norm.weight transformer.layer.0.ff.gate.weight
      transformer.layer.0.ff.layer_1.weight transformer.layer.0.ff.layer_2.weight
      transformer.layer_norm.weight lm_loss.weight)"));
  EXPECT_EQ(layout.Find("transformer.layer.0.rel_attn.k").shape, Shape({8, 2, 2}));
  EXPECT_EQ(layout.Find("transformer.layer.0.rel_attn.q").shape, Shape({8, 4, 2}));
  EXPECT_EQ(layout.Find("lm_loss.weight").layers_above, 0);
}

// sigma-GPT's table has half the width: the vectors of two positions fill a row of the input.
TEST(BackboneParametersTest, PositionsInPairsHaveHalfTheWidth) {
  ModelConfig config = Gpt();
  const ParameterLayout whole(config, 100);
  config.positions = Positions::kLearnedPairs;
  const ParameterLayout paired(config, 100);
  EXPECT_EQ(NamesOf(paired), NamesOf(whole));
  EXPECT_EQ(paired.Find("transformer.position_embedding.weight").shape,
            Shape({512, config.model_dim / 2}));
  EXPECT_EQ(whole.num_elements() - paired.num_elements(), 512 * config.model_dim / 2);
}

TEST(BackboneParametersTest, OtherPositionsHaveNoRelativeParameters) {
  for (const Positions positions :
       {Positions::kLearned, Positions::kLearnedPairs, Positions::kRope, Positions::kNone}) {
    ModelConfig config = {.positions = positions, .segments = Segments::kNone};
    for (const bool untie : {false, true}) {
      config.untie_r = untie;
      const ParameterLayout layout(config, 100);
      for (const ParameterInfo& info : layout.parameters()) {
        EXPECT_EQ(info.name.find(".r_"), std::string::npos) << info.name;
        EXPECT_NE(info.name, "transformer.layer.0.rel_attn.r");
      }
    }
  }
}

// Cut at two deviations, a normal distribution has 0.7737 of its variance; that of a uniform one is
// a third of its range's square. Squares of either scatter by less than the range's square.
TEST(BackboneParametersTest, InitializersKeepTheirRangeAndMoments) {
  const struct {
    Initializer initializer;
    double range, most, variance;  // of range 1
  } kCases[] = {{Initializer::kTruncatedNormal, 0.02, 2, 0.7737},
                {Initializer::kUniform, 0.1, 1, 1.0 / 3}};
  for (const auto& [initializer, range, most, variance] : kCases) {
    const ModelConfig config = {.num_layers = 1, .initializer = initializer, .init_range = range};
    const ParameterLayout layout(config, 500);
    const Drawn drawn(config, layout, layout.Find("transformer.word_embedding.weight"));
    const auto [lowest, highest] = std::minmax_element(drawn.values.begin(), drawn.values.end());
    EXPECT_GE(*lowest, static_cast<float>(-most * range));
    EXPECT_LE(*highest, static_cast<float>(most * range));
    const double square = range * range;
    EXPECT_NEAR(drawn.mean, 0, 5 * range / std::sqrt(drawn.n));
    EXPECT_NEAR(drawn.squares, variance * square,
                5 * square / std::sqrt(drawn.n) + 0.0001 * square);
  }
}

TEST(BackboneParametersTest, GainsMayScatterAroundOne) {
  ModelConfig config = {.layer_norm_gain_range = 0.02};
  const ParameterLayout layout(config, 10);
  double squares = 0;
  int64_t count = 0;
  for (const ParameterInfo& info : layout.parameters()) {
    if (info.init != ParameterInit::kGains) continue;
    std::vector<float> values(static_cast<size_t>(info.shape.num_elements()));
    InitializeParameters(layout, config, 3, info.offset, info.end(), values.data());
    for (const float value : values) squares += (value - 1.0) * (value - 1.0);
    count += info.shape.num_elements();
  }
  const auto n = static_cast<double>(count);
  EXPECT_NEAR(squares / n, 0.0004, 5 * 0.0004 * std::sqrt(2 / n));
}

template <typename... Faults>
void ExpectFaults(const ModelConfig& config, const Faults&... faults) {
  EXPECT_THAT(config.Validate().ToStatus(), Fails(absl::IsInvalidArgument, faults...));
}

TEST(BackboneConfigTest, ValidateNamesWhatDoesNotGoTogether) {
  ModelConfig config = {.max_positions = 0,
                        .rope_base = 1.0,
                        .num_segments = 0,
                        .global_projections = true,
                        .attention_windows = "3",
                        .dropout = 1.0};
  ExpectFaults(config, "model.dropout is 1", "model.global_projections is true but",
               "model.rope_base is 1", "model.max_positions is 0", "model.num_segments is 0",
               "model.attention_windows has '3'");
  config = ModelConfig();
  SetKeys("positions = rope, head_dim = 7, clamp_len = 5", config);
  ExpectFaults(config, "model.head_dim is 7", "model.clamp_len is 5",
               "model.segments is relative but model.positions is rope");
}

TEST(BackboneConfigTest, ValidateNamesWhatLlamasKeysDoNotGoWith) {
  ModelConfig config = {.num_kv_heads = 5,
                        .rope_scaling = RopeScaling::kLlama3,
                        .qk_norm = true,
                        .attention_output_bias = false,
                        .ffn_residual = FfnResidual::kNormed,
                        .tie_embeddings = false,
                        .softmax = Softmax::kAdaptive,
                        .cutoffs = "10"};
  ExpectFaults(config, "model.num_kv_heads is 5 but must divide model.num_heads = 12",
               "model.qk_norm is true but", "model.rope_scaling needs",
               "model.attention_output_bias is false but", "model.tie_embeddings is false but",
               "model.ffn_residual is normed but");
  config = Llama(2, 64, 4, 2, 16, 32);
  SetKeys("global_projections = true, rope_scaling = llama3, rope_low_freq_factor = 4", config);
  ExpectFaults(config, "model.num_kv_heads is below model.num_heads but",
               "model.rope_high_freq_factor = 4 above model.rope_low_freq_factor = 4");
  config = Llama(2, 64, 4, 2, 16, 32);
  config.rope_scaling = RopeScaling::kLlama3;
  EXPECT_TRUE(config.Validate().empty()) << config.Validate().Joined();
}

TEST(BackboneConfigTest, BiasByDistanceGoesWithLearnedPositionsOrNoneAlone) {
  ModelConfig config = {.position_bias = PositionBias::kT5, .segments = Segments::kNone};
  for (const Positions positions : {Positions::kRelative, Positions::kRope}) {
    config.positions = positions;
    ExpectFaults(config, "model.position_bias is on but model.positions");
  }
  for (const Positions positions : {Positions::kLearned, Positions::kNone}) {
    config.positions = positions;
    EXPECT_TRUE(config.Validate().empty()) << config.Validate().Joined();
  }
  SetKeys("global_projections = true, position_buckets = 7, position_bias_max_distance = 1",
          config);
  ExpectFaults(config, "model.global_projections is true", "model.position_buckets is 7",
               "model.position_bias_max_distance is 1 but must be above 1");
}

}  // namespace
}  // namespace anyorder
