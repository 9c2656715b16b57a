// Gradients of what other systems than XLNet have on the same layers.

#include "core/objective/lane_frame.h"
#include "tests/core/network/gradient_fixture.h"

namespace anyorder::testing {
namespace {

ModelConfig Learned(int64_t num_segments = 3) {
  return With(SmallLearnedModel(16, num_segments), "attention_biases = true");
}

ModelConfig Gpt() {
  return With(WithDropout(Learned(0)), "softmax_bias = false, readout_dropout = false");
}

ModelConfig Bert() {
  ModelConfig model = WithDropout(Learned());
  model.embedding_layer_norm = true;
  model.mlm_head = true;
  model.readout_dropout = false;
  model.next_sentence_head = true;
  return model;
}

ModelConfig Rope() {
  return With(SmallModel(), "positions = rope, rope_base = 50, segments = none");
}

ModelConfig PreNorm(const ModelConfig& model) { return With(model, "layer_norm = pre"); }

// Transformer-XL over three clusters of words; of div_val = 2 with 8, 4 and 2 dimensions.
ModelConfig Adaptive(int64_t div_val) {
  ModelConfig model = With(WithDropout(SmallModel()),
                           "segments = none, scale_embedding = true, softmax = adaptive, "
                           "projection_init_range = 0.4");
  model.cutoffs = "7, 10";
  model.div_val = div_val;
  return model;
}

// Two global slots in the first lane, one in the second, whose other entry is over.
Batch WithGlobalSlots(const Batch& plain) {
  Batch batch = plain;
  AddGlobalSlots({{0, 5}, {9, 3}}, batch);
  const BatchShape& shape = batch.shape;
  batch.row_glob[ContentRow(shape, 1) + 3] = batch.key_glob[ContentKey(shape, 1) + 3] = 0;
  return batch;
}

ModelConfig WithGlobals(ModelConfig model) {
  if (model.segments == Segments::kRelative) model.segments = Segments::kNone;
  return With(model, "global_projections = true, attention_windows = 2:1");
}

std::vector<GradientCase> EmbeddingCases() {
  return {{"causal_as_gpt", "causal_lm", Gpt()},
          {"masked_as_bert", "dae", Bert()},
          {"two_streams_over_learned_positions", "permutation_lm",
           With(Learned(), "mem_len = 12, scale_embedding = true, mlm_head = true")},
          {"two_streams_with_normalised_embeddings", "permutation_lm",
           With(WithDropout(SmallModel()), "embedding_layer_norm = true")},
          {"no_positions", "permutation_lm", With(SmallModel(), "positions = none")},
          {"no_positions_shared_segment_bias", "permutation_lm",
           With(SmallModel(), "positions = none, untie_r = false")}};
}

// Lanes 3 and 8 are, at step 1, in bidirectional and sequence-to-sequence mode, and at step 3 read
// left to right and right to left.
std::vector<GradientCase> ModeCases() {
  std::vector<GradientCase> cases;
  for (const int64_t step : {1, 3}) {
    GradientCase& last = cases.emplace_back(
        OneWayCase(step == 1 ? "unilm_in_pairs" : "unilm_in_one_segment", "unilm", Bert()));
    last.model.num_segments = 6;
    last.model.next_sentence_head = step == 1;
    last.step = step;
    last.sampling.spans = SpanKind::kNgram;
  }
  return cases;
}

std::vector<GradientCase> RotaryAndNormCases() {
  std::vector<GradientCase> cases;
  cases.push_back({"rope", "permutation_lm", WithDropout(Rope())});
  cases.push_back({"rope_with_groups_and_biases", "permutation_lm",
                   With(PreNorm(Rope()), "attention_biases = true")});
  cases.back().change = WithGroupedQueries;
  cases.push_back({"pre_norm", "permutation_lm", PreNorm(WithDropout(SmallModel()))});
  cases.push_back({"pre_norm_without_memory", "permutation_lm",
                   With(PreNorm(SmallModel()), "mem_len = 0, mlm_head = true")});
  cases.push_back({"pre_norm_one_layer_shared_biases", "permutation_lm",
                   With(PreNorm(SmallModel()), "num_layers = 1, untie_r = false")});
  cases.push_back({"causal_pre_norm_as_longformer", "causal_lm",
                   With(PreNorm(SmallModel()),
                        "segments = none, mem_len = 0, activation = gelu_erf, attention_windows = "
                        "3:0; 6:0 / 5:0:2")});
  return cases;
}

// Some cases untie the output.
ModelConfig Llama(void (*make)(ModelConfig&) = MakeLlama) {
  ModelConfig model = SmallModel();
  make(model);
  SetKeys("rope_base = 50, layer_norm_epsilon = 1e-3, tie_embeddings = true", model);
  return model;
}

ModelConfig Qwen3() { return With(Llama(MakeQwen3), "head_dim = 6"); }

std::vector<GradientCase> LlamaCases() {
  std::vector<GradientCase> cases;
  cases.push_back({"llama", "causal_lm",
                   With(Llama(),
                        "mem_len = 0, tie_embeddings = false, rope_scaling = llama3, "
                        "rope_original_positions = 24")});
  cases.push_back({"llama_two_streams_with_memory", "permutation_lm",
                   With(WithDropout(Llama()), "tie_embeddings = false")});
  cases.push_back(
      {"qwen2_masked", "dae",
       With(WithDropout(Llama()), "attention_biases = true, attention_output_bias = false")});
  cases.push_back({"qwen3", "causal_lm", With(WithDropout(Qwen3()), "mem_len = 0")});
  cases.push_back({"qwen3_two_streams_with_memory_and_groups", "permutation_lm", Qwen3()});
  cases.back().change = WithGroupedQueries;
  cases.push_back(OneWayCase("a3_as_released", "a3", Llama()));
  cases.back().model.ffn_residual = FfnResidual::kNormed;
  cases.push_back({"post_rms_norm_with_a_head", "dae",
                   With(WithDropout(SmallModel()),
                        "norm = rms_norm, embedding_layer_norm = true, mlm_head = true, gated_ffn "
                        "= true, tie_embeddings = false")});
  return cases;
}

ModelConfig WithBias(ModelConfig model, PositionBias bias) {
  model.position_bias = bias;
  model.position_buckets = 8;
  model.position_bias_max_distance = 6;
  return model;
}

std::vector<GradientCase> DistanceBiasCases() {
  std::vector<GradientCase> cases;
  // Queries that see their group, as in UniLMv2.
  cases.push_back({"distance_bias_beside_learned_positions", "permutation_lm",
                   With(WithBias(WithDropout(Learned()), PositionBias::kT5),
                        "embedding_layer_norm = true, mlm_head = true")});
  cases.back().change = WithGroupedQueries;
  cases.push_back({"distance_bias_with_memory_both_directions", "permutation_lm",
                   With(WithBias(SmallModel(), PositionBias::kT5), "positions = none")});
  cases.push_back({"causal_distance_bias_pre_norm", "causal_lm",
                   With(WithBias(PreNorm(SmallModel()), PositionBias::kT5Causal),
                        "positions = none, segments = none, untie_r = false")});
  return cases;
}

std::vector<GradientCase> WindowCases() {
  std::vector<GradientCase> cases;
  cases.push_back({"windows", "permutation_lm",
                   With(WithDropout(SmallModel()), "attention_windows = 3:2 / *:1:2; 2x 4:*")});
  cases.push_back({"same_length", "causal_lm",
                   With(SmallModel(), "segments = none, same_length = tensorflow")});
  cases.push_back(
      {"global_slots", "dae", With(WithGlobals(WithDropout(Learned())), "mem_len = 12")});
  cases.back().change = WithGlobalSlots;
  cases.push_back({"global_slots_rope_pre_norm", "dae",
                   With(WithGlobals(PreNorm(Rope())), "attention_biases = true")});
  cases.back().change = WithGlobalSlots;
  cases.push_back({"global_slots_below_a_query_only_layer", "permutation_lm", WithGlobals(Rope())});
  cases.back().change = WithGlobalSlots;
  cases.back().unused = [](const std::string& name) {
    return name.find("layer.1.rel_attn.global_") != std::string::npos;
  };
  cases.push_back({"no_global_slots_for_global_projections", "dae", WithGlobals(Rope())});
  cases.back().unused = [](const std::string& name) {
    return name.find("global_") != std::string::npos;
  };
  return cases;
}

std::vector<GradientCase> AdaptiveCases() {
  return {
      {"adaptive", "causal_lm", Adaptive(1)},
      {"adaptive_with_projections", "causal_lm", Adaptive(2)},
      {"adaptive_without_bias_or_tied_projections", "causal_lm",
       With(Adaptive(2), "softmax_bias = false, tie_projections = false")},
      {"adaptive_two_streams_and_a_head", "permutation_lm",
       With(Adaptive(2), "segments = relative, mlm_head = true")},
      {"adaptive_masked_over_a_sum_of_embeddings", "dae",
       With(Adaptive(2), "embedding_layer_norm = true")},

      {"adaptive_masked_over_one_table", "dae", With(Adaptive(1), "embedding_layer_norm = true")}};
}

// Its masked language model with global CLS slots, and its character language model.
std::vector<GradientCase> LongformerCases() {
  ModelConfig model =
      With(WithGlobals(Bert()), "segments = none, max_positions = 17, activation = gelu_erf");
  model.next_sentence_head = false;
  std::vector<GradientCase> cases = {OneWayCase("longformer", "longformer", model)};
  // Some targets are global, too: CLS alone, which nobody reads out, leaves the last layer's own
  // projections untrained.
  cases.back().sampling.global_stride = 2;
  model = With(SmallModel(), "segments = none, attention_windows = 2:2; 3:3 / 1:1:2");
  cases.push_back(OneWayCase("longformer_with_shared_projections", "longformer", model));
  cases.back().sampling.global_classifiers = 0;
  cases.back().sampling.global_stride = 6;
  for (GradientCase& one : cases) one.sampling.spans = SpanKind::kSingle;
  return cases;
}

}  // namespace

std::vector<GradientCase> BackboneCases() {
  std::vector<GradientCase> cases = EmbeddingCases();
  for (const std::vector<GradientCase>& more :
       {ModeCases(), RotaryAndNormCases(), LlamaCases(), DistanceBiasCases(), WindowCases(),
        AdaptiveCases(), LongformerCases()})
    cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

namespace {

INSTANTIATE_TEST_SUITE_P(Backbones, GradientTest, ::testing::ValuesIn(BackboneCases()), NameOf);

}  // namespace
}  // namespace anyorder::testing
