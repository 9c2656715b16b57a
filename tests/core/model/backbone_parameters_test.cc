// Parameters of other systems' backbones: published totals, order and initial values.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/model/parameters.h"

namespace anyorder {
namespace {

// Every model has XLNet's mask_emb.
constexpr int64_t kMaskEmbedding = 768;

ModelConfig Learned(int64_t max_positions) {
  ModelConfig config;
  config.positions = Positions::kLearned;
  config.max_positions = max_positions;
  config.segments = Segments::kNone;
  config.attention_biases = true;
  return config;
}

// OpenAIGPTLMHeadModel of "openai-gpt".
TEST(BackboneParametersTest, GptHasThePublishedTotal) {
  ModelConfig config = Learned(512);
  config.softmax_bias = false;
  EXPECT_EQ(ParameterLayout(config, 40478).num_elements(), 116534784 + kMaskEmbedding);
}

ModelConfig Bert() {
  ModelConfig config = Learned(512);
  config.segments = Segments::kLearned;
  config.num_segments = 2;
  config.embedding_layer_norm = true;
  config.mlm_head = true;
  config.next_sentence_head = true;
  return config;
}

// BertForPreTraining of "bert-base-uncased".
TEST(BackboneParametersTest, BertHasThePublishedTotal) {
  EXPECT_EQ(ParameterLayout(Bert(), 30522).num_elements(), 110106428 + kMaskEmbedding);
}

// LongformerForMaskedLM of "allenai/longformer-base-4096": two position rows are reserved, one segment.
TEST(BackboneParametersTest, LongformerHasThePublishedTotal) {
  ModelConfig config = Bert();
  config.max_positions = 4098;
  config.num_segments = 1;
  config.next_sentence_head = false;
  config.global_projections = true;
  EXPECT_EQ(ParameterLayout(config, 50265).num_elements(), 148711257 + kMaskEmbedding);
}

// MPNetForMaskedLM of transformers' MPNetConfig(): no segments, 32 buckets for 12 heads.
TEST(BackboneParametersTest, MpNetHasThePublishedTotal) {
  ModelConfig config = Bert();
  config.segments = Segments::kNone;
  config.next_sentence_head = false;
  config.position_bias = PositionBias::kT5;
  EXPECT_EQ(ParameterLayout(config, 30527).num_elements(), 109516991 + kMaskEmbedding);
}

TEST(BackboneParametersTest, OrderIsThatOfTheHeader) {
  ModelConfig config = Bert();
  config.num_layers = 1;
  config.layer_norm = LayerNormPlace::kPre;
  config.global_projections = true;
  config.position_bias = PositionBias::kT5;  // not valid together, but each has its place
  const ParameterLayout layout(config, 100);
  std::vector<std::string> names;
  for (const ParameterInfo& info : layout.parameters())
    names.push_back(info.name);
  const std::string attention = "transformer.layer.0.rel_attn.";
  const std::string ffn = "transformer.layer.0.ff.";
  const std::vector<std::string> expected = {"transformer.mask_emb",
                                             "transformer.word_embedding.weight",
                                             "transformer.position_embedding.weight",
                                             "transformer.segment_embedding.weight",
                                             "transformer.embedding_layer_norm.weight",
                                             "transformer.embedding_layer_norm.bias",
                                             "transformer.relative_attention_bias.weight",
                                             attention + "q",
                                             attention + "k",
                                             attention + "v",
                                             attention + "o",
                                             attention + "q_bias",
                                             attention + "k_bias",
                                             attention + "v_bias",
                                             attention + "o_bias",
                                             attention + "global_q",
                                             attention + "global_k",
                                             attention + "global_v",
                                             attention + "global_q_bias",
                                             attention + "global_k_bias",
                                             attention + "global_v_bias",
                                             attention + "layer_norm.weight",
                                             attention + "layer_norm.bias",
                                             ffn + "layer_norm.weight",
                                             ffn + "layer_norm.bias",
                                             ffn + "layer_1.weight",
                                             ffn + "layer_1.bias",
                                             ffn + "layer_2.weight",
                                             ffn + "layer_2.bias",
                                             "transformer.layer_norm.weight",
                                             "transformer.layer_norm.bias",
                                             "lm_head.dense.weight",
                                             "lm_head.dense.bias",
                                             "lm_head.layer_norm.weight",
                                             "lm_head.layer_norm.bias",
                                             "lm_loss.bias",
                                             "sequence_summary.summary.weight",
                                             "sequence_summary.summary.bias",
                                             "logits_proj.weight",
                                             "logits_proj.bias"};
  EXPECT_EQ(names, expected);
}

TEST(BackboneParametersTest, OnlyMatricesDecay) {
  const ParameterLayout layout(Bert(), 100);
  for (const ParameterInfo& info : layout.parameters()) {
    const bool is_matrix = info.shape.rank() > 1;
    EXPECT_EQ(info.decays, is_matrix) << info.name;
  }
}

TEST(BackboneParametersTest, OtherPositionsHaveNoRelativeParameters) {
  for (const Positions positions : {Positions::kLearned, Positions::kRope, Positions::kNone}) {
    ModelConfig config;
    config.positions = positions;
    config.segments = Segments::kNone;
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

// Of normals cut at two deviations the variance is 0.7737 of the whole one's.
TEST(BackboneParametersTest, TruncatedNormalsKeepTheirRangeAndMoments) {
  ModelConfig config;
  config.num_layers = 1;
  config.initializer = Initializer::kTruncatedNormal;
  const ParameterLayout layout(config, 500);
  const ParameterInfo& words = layout.Find("transformer.word_embedding.weight");
  const auto count = static_cast<size_t>(words.shape.num_elements());
  std::vector<float> values(count);
  InitializeParameters(layout, config, 3, words.offset, words.end(), values.data());
  const auto n = static_cast<double>(count);
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  const double squares = std::inner_product(values.begin(), values.end(), values.begin(), 0.0) / n;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*least, -2 * 0.02f);
  EXPECT_LE(*most, 2 * 0.02f);
  EXPECT_NEAR(mean, 0, 5 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(squares, 0.7737 * 0.0004, 5 * 0.0004 * std::sqrt(2 / n) + 0.0001 * 0.0004);
  // Any range alone has the bits of the whole.
  std::vector<float> part(101);
  InitializeParameters(layout, config, 3, words.offset + 77, words.offset + 178, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), values.begin() + 77));
}

TEST(BackboneParametersTest, GainsMayScatterAroundOne) {
  ModelConfig config;
  config.layer_norm_gain_range = 0.02;
  const ParameterLayout layout(config, 10);
  double squares = 0;
  int64_t count = 0;
  for (const ParameterInfo& info : layout.parameters()) {
    if (info.init != ParameterInit::kGains) continue;
    std::vector<float> values(static_cast<size_t>(info.shape.num_elements()));
    InitializeParameters(layout, config, 3, info.offset, info.end(), values.data());
    for (const float value : values)
      squares += (value - 1.0) * (value - 1.0);
    count += info.shape.num_elements();
  }
  const auto n = static_cast<double>(count);
  EXPECT_NEAR(squares / n, 0.0004, 5 * 0.0004 * std::sqrt(2 / n));
}

TEST(BackboneConfigTest, ValidateNamesWhatDoesNotGoTogether) {
  ModelConfig config;
  config.global_projections = true;
  config.rope_base = 1.0;
  config.max_positions = 0;
  config.num_segments = 0;
  config.attention_windows = "3";
  const std::string message(config.Validate().message());
  for (const char* const fault : {"model.global_projections is true but",
                                  "model.rope_base is 1",
                                  "model.max_positions is 0",
                                  "model.num_segments is 0",
                                  "model.attention_windows has '3'"})
    EXPECT_NE(message.find(fault), std::string::npos) << message;
  config = ModelConfig();
  config.positions = Positions::kRope;
  config.head_dim = 7;
  config.clamp_len = 5;
  const std::string second(config.Validate().message());
  for (const char* const fault : {"model.head_dim is 7",
                                  "model.clamp_len is 5",
                                  "model.segments is relative but model.positions is rope"})
    EXPECT_NE(second.find(fault), std::string::npos) << second;
}

TEST(BackboneConfigTest, BiasByDistanceGoesWithLearnedPositionsOrNoneAlone) {
  ModelConfig config;
  config.segments = Segments::kNone;
  config.position_bias = PositionBias::kT5;
  for (const Positions positions : {Positions::kRelative, Positions::kRope}) {
    config.positions = positions;
    EXPECT_NE(config.Validate().message().find("model.position_bias is on but model.positions"),
              std::string::npos);
  }
  for (const Positions positions : {Positions::kLearned, Positions::kNone}) {
    config.positions = positions;
    EXPECT_TRUE(config.Validate().ok()) << config.Validate();
  }
  config.global_projections = true;
  config.position_buckets = 7;
  config.position_bias_max_distance = 1;
  const std::string message(config.Validate().message());
  for (const char* const fault : {"model.global_projections is true",
                                  "model.position_buckets is 7",
                                  "model.position_bias_max_distance is 1 but must be above 1"})
    EXPECT_NE(message.find(fault), std::string::npos) << message;
}

}  // namespace
}  // namespace anyorder
