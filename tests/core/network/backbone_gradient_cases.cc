// Gradients of what other systems than XLNet have on the same layers.

#include "tests/core/network/gradient_fixture.h"

namespace anyorder::testing {
namespace {

ModelConfig Learned(int64_t num_segments = 3) {
  ModelConfig model = SmallLearnedModel(16, num_segments);
  model.attention_biases = true;
  return model;
}

ModelConfig Gpt() {
  ModelConfig model = WithDropout(Learned(0));
  model.softmax_bias = false;
  model.readout_dropout = false;
  return model;
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
  ModelConfig model = SmallModel();
  model.positions = Positions::kRope;
  model.rope_base = 50.0;
  model.segments = Segments::kNone;
  return model;
}

ModelConfig PreNorm(ModelConfig model) {
  model.layer_norm = LayerNormPlace::kPre;
  return model;
}

// Transformer-XL over three clusters of words; of div_val = 2 with 8, 4 and 2 dimensions.
ModelConfig Adaptive(int64_t div_val) {
  ModelConfig model = WithDropout(SmallModel());
  model.segments = Segments::kNone;
  model.scale_embedding = true;
  model.softmax = Softmax::kAdaptive;
  model.cutoffs = "7, 10";
  model.div_val = div_val;
  model.projection_init_range = 0.4;
  return model;
}

// Two global slots in the first lane, one in the second, whose other entry is over.
Batch WithGlobalSlots(const Batch& plain) {
  Batch batch = plain;
  const int64_t content = plain.shape.content_rows;
  batch.shape.global_rows = 2;
  batch.global_slots = {0, 5, static_cast<int32_t>(content + 9), static_cast<int32_t>(content + 3)};
  const auto flag = [&batch](int64_t lane, int64_t slot) {
    batch.row_glob[lane * batch.shape.content_rows + slot] = 1;
    batch.key_glob[lane * batch.shape.num_keys() + batch.shape.memory_rows + slot] = 1;
  };
  flag(0, 0);
  flag(0, 5);
  flag(1, 9);
  return batch;
}

ModelConfig WithGlobals(ModelConfig model) {
  model.global_projections = true;
  if (model.segments == Segments::kRelative) model.segments = Segments::kNone;
  model.attention_windows = "2:1";
  return model;
}

std::vector<GradientCase> EmbeddingCases() {
  std::vector<GradientCase> cases;
  cases.push_back({"causal_as_gpt", "causal_lm", Gpt()});
  cases.push_back({"masked_as_bert", "dae", Bert()});
  cases.push_back({"two_streams_over_learned_positions"});
  cases.back().model = Learned();
  cases.back().model.mem_len = 12;
  cases.back().model.scale_embedding = true;
  cases.back().model.mlm_head = true;
  cases.push_back({"two_streams_with_normalised_embeddings"});
  cases.back().model = WithDropout(SmallModel());
  cases.back().model.embedding_layer_norm = true;
  cases.push_back({"no_positions"});
  cases.back().model.positions = Positions::kNone;
  cases.push_back({"no_positions_shared_segment_bias"});
  cases.back().model.positions = Positions::kNone;
  cases.back().model.untie_r = false;
  return cases;
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
  cases.push_back({"rope"});
  cases.back().model = WithDropout(Rope());
  cases.push_back({"rope_with_groups_and_biases"});
  cases.back().model = PreNorm(Rope());
  cases.back().model.attention_biases = true;
  cases.back().change = WithGroupedQueries;
  cases.push_back({"pre_norm"});
  cases.back().model = PreNorm(WithDropout(SmallModel()));
  cases.push_back({"pre_norm_without_memory"});
  cases.back().model = PreNorm(SmallModel());
  cases.back().model.mem_len = 0;
  cases.back().model.mlm_head = true;
  cases.push_back({"pre_norm_one_layer_shared_biases"});
  cases.back().model = PreNorm(SmallModel());
  cases.back().model.num_layers = 1;
  cases.back().model.untie_r = false;
  cases.push_back({"causal_pre_norm_as_longformer", "causal_lm", PreNorm(SmallModel())});
  cases.back().model.segments = Segments::kNone;
  cases.back().model.mem_len = 0;
  cases.back().model.attention_windows = "3:0; 6:0 / 5:0:2";
  cases.back().model.activation = kernels::Activation::kGeluErf;
  return cases;
}

// Some cases untie the output.
ModelConfig Llama(void (*make)(ModelConfig&) = MakeLlama) {
  ModelConfig model = SmallModel();
  make(model);
  model.rope_base = 50.0;
  model.layer_norm_epsilon = 1e-3;
  model.tie_embeddings = true;
  return model;
}

ModelConfig Qwen3() {
  ModelConfig model = Llama(MakeQwen3);
  model.head_dim = 6;
  return model;
}

std::vector<GradientCase> LlamaCases() {
  std::vector<GradientCase> cases;
  cases.push_back({"llama", "causal_lm", Llama()});
  cases.back().model.mem_len = 0;
  cases.back().model.tie_embeddings = false;
  cases.back().model.rope_scaling = RopeScaling::kLlama3;
  cases.back().model.rope_original_positions = 24;
  cases.push_back({"llama_two_streams_with_memory", "permutation_lm", WithDropout(Llama())});
  cases.back().model.tie_embeddings = false;
  cases.push_back({"qwen2_masked", "dae", WithDropout(Llama())});
  cases.back().model.attention_biases = true;
  cases.back().model.attention_output_bias = false;
  cases.push_back({"qwen3", "causal_lm", WithDropout(Qwen3())});
  cases.back().model.mem_len = 0;
  cases.push_back({"qwen3_two_streams_with_memory_and_groups", "permutation_lm", Qwen3()});
  cases.back().change = WithGroupedQueries;
  cases.push_back(OneWayCase("a3_as_released", "a3", Llama()));
  cases.back().model.ffn_residual = FfnResidual::kNormed;
  cases.push_back({"post_rms_norm_with_a_head", "dae", WithDropout(SmallModel())});
  cases.back().model.norm = Norm::kRmsNorm;
  cases.back().model.embedding_layer_norm = true;
  cases.back().model.mlm_head = true;
  cases.back().model.gated_ffn = true;
  cases.back().model.tie_embeddings = false;
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
  cases.push_back({"distance_bias_beside_learned_positions"});
  cases.back().model = WithBias(WithDropout(Learned()), PositionBias::kT5);
  cases.back().model.embedding_layer_norm = true;
  cases.back().model.mlm_head = true;
  cases.back().change = WithGroupedQueries;
  cases.push_back({"distance_bias_with_memory_both_directions"});
  cases.back().model = WithBias(SmallModel(), PositionBias::kT5);
  cases.back().model.positions = Positions::kNone;
  cases.push_back({"causal_distance_bias_pre_norm", "causal_lm"});
  cases.back().model = WithBias(PreNorm(SmallModel()), PositionBias::kT5Causal);
  cases.back().model.positions = Positions::kNone;
  cases.back().model.segments = Segments::kNone;
  cases.back().model.untie_r = false;
  return cases;
}

std::vector<GradientCase> WindowCases() {
  std::vector<GradientCase> cases;
  cases.push_back({"windows"});
  cases.back().model = WithDropout(SmallModel());
  cases.back().model.attention_windows = "3:2 / *:1:2; 2x 4:*";
  cases.push_back({"same_length", "causal_lm"});
  cases.back().model.segments = Segments::kNone;
  cases.back().model.same_length = SameLength::kTensorFlow;
  cases.push_back({"global_slots", "dae", WithGlobals(WithDropout(Learned()))});
  cases.back().model.mem_len = 12;
  cases.back().change = WithGlobalSlots;
  cases.push_back({"global_slots_rope_pre_norm", "dae", WithGlobals(PreNorm(Rope()))});
  cases.back().model.attention_biases = true;
  cases.back().change = WithGlobalSlots;
  cases.push_back({"global_slots_below_a_query_only_layer"});
  cases.back().model = WithGlobals(Rope());
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
  std::vector<GradientCase> cases;
  cases.push_back({"adaptive", "causal_lm", Adaptive(1)});
  cases.push_back({"adaptive_with_projections", "causal_lm", Adaptive(2)});
  cases.push_back({"adaptive_without_bias_or_tied_projections", "causal_lm", Adaptive(2)});
  cases.back().model.softmax_bias = false;
  cases.back().model.tie_projections = false;
  cases.push_back({"adaptive_two_streams_and_a_head"});
  cases.back().model = Adaptive(2);
  cases.back().model.segments = Segments::kRelative;
  cases.back().model.mlm_head = true;
  cases.push_back({"adaptive_masked_over_a_sum_of_embeddings", "dae", Adaptive(2)});
  cases.back().model.embedding_layer_norm = true;
  cases.push_back({"adaptive_masked_over_one_table", "dae", Adaptive(1)});
  cases.back().model.embedding_layer_norm = true;
  return cases;
}

// Its masked language model with global CLS slots, and its character language model.
std::vector<GradientCase> LongformerCases() {
  ModelConfig model = WithGlobals(Bert());
  model.next_sentence_head = false;
  model.segments = Segments::kNone;
  model.max_positions = 17;
  model.activation = kernels::Activation::kGeluErf;
  std::vector<GradientCase> cases = {OneWayCase("longformer", "longformer", model)};
  // Some targets are global, too: CLS alone, which nobody reads out, leaves the last layer's own
  // projections untrained.
  cases.back().sampling.global_stride = 2;
  model = SmallModel();
  model.segments = Segments::kNone;
  model.attention_windows = "2:2; 3:3 / 1:1:2";
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
