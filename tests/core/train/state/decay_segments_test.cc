// What weight decay and layer-wise decay do to each parameter, by its name.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "core/train/state/training_state.h"
#include "tests/dist/training_run.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/with_keys.h"

namespace anyorder {
namespace {

using testing::With;

constexpr double kLayerDecay = 0.75;
constexpr int64_t kSmallLayers = 3;
constexpr int64_t kSmallVocab = 40;
constexpr double kRounding = 0x1p-24;

ModelConfig SmallXlnet() {
  return {
      .num_layers = kSmallLayers, .model_dim = 16, .num_heads = 2, .head_dim = 8, .ffn_dim = 24};
}

// Between them they have every kind of parameter: XLNet with a head of classes and one of spans,
// BERT's and MPNet's, simple spans and a pooler, Longformer's projections, GPT, and
// Transformer-XL's words in clusters.
std::vector<ModelConfig> SmallBackbones() {
  ModelConfig xlnet = SmallXlnet();
  xlnet.task.num_classes = 3;
  ModelConfig answers = SmallXlnet();
  answers.task = {.task = ExampleTask::kSpans, .answer_class = true};
  ModelConfig bert =
      With(SmallXlnet(),
           "positions = learned, segments = learned, position_bias = t5, attention_biases = true, "
           "embedding_layer_norm = true, mlm_head = true");
  bert.next_sentence_head = true;
  ModelConfig simple = bert;
  simple.task = {.task = ExampleTask::kSpans, .span_head = SpanHeadKind::kSimple};
  ModelConfig pooled = bert;
  pooled.task = {.task = ExampleTask::kEntailment, .num_classes = 3, .pooler = true};
  const ModelConfig longformer = With(bert, "position_bias = none, global_projections = true");
  const ModelConfig gpt =
      With(SmallXlnet(),
           "positions = learned, segments = none, layer_norm = pre, attention_biases = true, "
           "softmax_bias = false");
  ModelConfig words = With(
      SmallXlnet(),
      "segments = none, untie_r = false, softmax = adaptive, div_val = 2, tie_projections = false");
  words.cutoffs = "10, 20";
  return {xlnet, answers, bert, simple, pooled, longformer, gpt, words};
}

bool StartsWithAny(const std::string& name, const std::vector<std::string>& stems) {
  for (const std::string& stem : stems) {
    if (absl::StartsWith(name, stem)) return true;
  }
  return false;
}

// The table of the paper, by names: layer m of M, 1 the lowest, has alpha^(M - m), what lies below
// and what all layers share alpha^M, and what lies above 1.
double RateOf(const std::string& name, double alpha) {
  const std::string layer = "transformer.layer.";
  if (absl::StartsWith(name, layer)) {
    const std::vector<std::string> parts = absl::StrSplit(name, '.');
    int64_t from_zero = -1;
    EXPECT_TRUE(absl::SimpleAtoi(parts[2], &from_zero)) << name;
    return std::pow(alpha, kSmallLayers - (from_zero + 1));
  }
  const bool is_below = StartsWithAny(
      name, {"transformer.mask_emb", "transformer.word_emb", "crit.cluster_weight",
             "transformer.position_embedding", "transformer.segment_embedding",
             "transformer.embedding_layer_norm", "transformer.relative_attention_bias",
             "transformer.r_w_bias", "transformer.r_r_bias", "transformer.r_s_bias"});
  if (is_below) return std::pow(alpha, kSmallLayers);
  EXPECT_TRUE(StartsWithAny(name, {"transformer.layer_norm", "lm_head.", "lm_loss.", "crit.",
                                   "task_head.", "sequence_summary.", "logits_proj.",
                                   "start_logits.", "end_logits.", "answer_class.", "qa_outputs."}))
      << name << " is neither";
  return 1;
}

// The released optimizer's rule: biases and LayerNorms do not decay, r_w_bias and its like do. So
// does a bias by distance, which is a table.
bool Decays(const std::string& name) {
  if (StartsWithAny(name, {"transformer.r_", "transformer.relative_attention_bias"}) ||
      absl::StrContains(name, ".rel_attn.r_"))
    return true;
  return !absl::StrContains(name, "layer_norm") && !absl::StrContains(name, "LayerNorm") &&
         !absl::StrContains(name, "bias");
}

// The master weights after one step from these weights with this gradient, of all ranks.
std::vector<float> OneStep(const ParameterLayout& layout, const OptimizerConfig& config, int ranks,
                           double learning_rate) {
  std::vector<float> result;
  testing::RunThreadRanks(ranks, [&](dist::Communicator& comm) {
    const auto backend = kernels::MakeCpuBackend({}).value();
    const auto transport = dist::MakeCommunicatorTransport(comm, *backend).value();
    const auto optimizer =
        dist::ShardedOptimizer::Create(comm, *backend, *transport, layout.num_elements(),
                                       DecaySegmentsOf(layout, config), config)
            .value();
    const dist::Range owned = optimizer->owned();
    const std::vector<float> start = dist::RandomValues(layout.num_elements(), 1);
    const std::vector<float> gradient = dist::RandomValues(layout.num_elements(), 2);
    std::copy_n(start.begin() + owned.begin, owned.size(), optimizer->master().data<float>());
    optimizer->Step(ConstTensorView(gradient.data() + owned.begin, {owned.size()}),
                    {.learning_rate = learning_rate},
                    *dist::MakeWeights(comm, *backend, *transport, layout.num_elements()));
    EXPECT_FALSE(optimizer->AwaitOutcome().skipped);
    const std::vector<float> all =
        dist::GatherState(comm, optimizer->partition(),
                          absl::MakeConstSpan(optimizer->master().data<float>(), owned.size()));
    if (comm.rank() == 0) result = all;
  });
  return result;
}

// One step against AdamW in double, parameter by parameter: fp32 rounds the state, some constants
// and a dozen operations (sharded_optimizer_test.cc).
TEST(DecaySegmentsTest, EveryParameterHasItsDecayAndItsRateOnAnyNumberOfRanks) {
  constexpr double kRate = 0.01;
  OptimizerConfig config = {.weight_decay = 0.1, .max_grad_norm = 0};
  for (const ModelConfig& model : SmallBackbones()) {
    const ParameterLayout layout(model, kSmallVocab);
    const std::vector<float> start = dist::RandomValues(layout.num_elements(), 1);
    const std::vector<float> gradient = dist::RandomValues(layout.num_elements(), 2);
    for (const double alpha : {1.0, kLayerDecay}) {
      config.layer_decay = alpha;
      const std::vector<float> end = OneStep(layout, config, 1, kRate);
      for (const ParameterInfo& info : layout.parameters()) {
        const double rate = kRate * RateOf(info.name, alpha);
        const double decay = Decays(info.name) ? 0.1 : 0.0;
        for (int64_t i = info.offset; i < info.end(); ++i) {
          const double g = gradient[i];
          const double adam = 0.1 * g / (std::sqrt(0.001 * g * g) + config.adam_epsilon);
          const double step = adam + decay * start[i];
          const double magnitude = std::abs(adam) + decay * std::abs(start[i]);
          const double expected = start[i] - rate * step;
          ASSERT_NEAR(end[i], expected,
                      rate * 20 * kRounding * magnitude +
                          kRounding * (std::abs(start[i]) + std::abs(expected)))
              << info.name << ", alpha " << alpha;
        }
      }
      for (const int ranks : {2, 3}) EXPECT_TRUE(OneStep(layout, config, ranks, kRate) == end);
    }
  }
}

}  // namespace
}  // namespace anyorder
