// What of Llama's kind and of diffusion transformers cannot be imported is refused by name; both
// spellings of config.json; and which of our runs such a model can be.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "core/base/status.h"
#include "core/objective/objective.h"
#include "launcher/huggingface/hf_model.h"
#include "tests/launcher/huggingface/exchange_directory.h"
#include "tests/launcher/huggingface/foreign_models.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

// `type`: of config.json, or "A3".
ForeignShape ShapeOf(const char* type, int64_t key_heads = 4) {
  const bool is_a3 = type == std::string("A3");
  return {.type = is_a3 ? "llama" : type, .key_heads = key_heads, .is_two_stream = is_a3};
}

Json ConfigOf(const char* type) { return ForeignModel(ShapeOf(type, 2)).config; }

Json Llama3Scaling(const char* type_key) {
  return {{type_key, "llama3"},
          {"factor", 32.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}};
}

TEST(ForeignConfigTest, OtherFunctionsAreRefusedByName) {
  const auto config_of = [](const char* type) { return ForeignModel(ShapeOf(type)).config; };
  ExpectPatchesRefused(
      config_of("llama"),
      {{R"({"hidden_act": "gelu"})", "'hidden_act' is \"gelu\", not \"silu\""},
       {R"({"hidden_size": null})", "'hidden_size' is missing"},
       {R"({"num_key_value_heads": 3})", "'num_key_value_heads' is 3 but must divide the 4 heads"},
       {R"({"num_attention_heads": 5})", "but must divide"},
       {R"({"rope_scaling": 3})", "'rope_scaling' is 3 but must be an object"},
       {R"({"rope_scaling": {"type": "linear", "factor": 2.0}})",
        "'rope_scaling' has the type \"linear\""},
       {R"({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})",
        "'rope_scaling' has the type \"dynamic\" but must have \"default\" or \"llama3\""},
       {R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}})",
        "'rope_parameters' has the type \"yarn\""},
       {R"({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}})",
        "in 'rope_parameters': 'partial_rotary_factor' is 0.5, not 1"},
       {R"({"rope_scaling": {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0}})",
        "in 'rope_scaling': 'high_freq_factor' is missing"}});
  ExpectPatchesRefused(
      config_of("A3"),
      {{R"({"ffn_residual": "both"})", "'ffn_residual' is \"both\" but must be \"normed\" or"},
       {R"({"hidden_act": "gelu"})", "'hidden_act' is \"gelu\", not \"silu\""}});
  ExpectPatchesRefused(
      config_of("qwen2"),
      {{R"({"rope_scaling": {"type": "yarn", "factor": 4.0}})", "the type \"yarn\""},
       {R"({"use_mrope": true})", "'use_mrope' is true, not false"}});
  ExpectPatchesRefused(config_of("qwen3"),
                       {{R"({"layer_types": ["full_attention", "sliding_attention"]})",
                         "a sliding window is in effect"}});
  ExpectPatchesRefused(config_of("Dream"),
                       {{R"({"hidden_act": "relu"})", "'hidden_act' is \"relu\""}});
  ExpectPatchesRefused(
      config_of("llada"),
      {{R"({"block_type": "sequential"})", "'block_type' is \"sequential\", not \"llama\""},
       {R"({"block_type": null})", "'block_type' is missing, which does not mean \"llama\""},
       {R"({"activation_type": "swiglu"})", "'activation_type' is \"swiglu\", not \"silu\""},
       {R"({"layer_norm_type": "gemma_rms"})", "'layer_norm_type' is \"gemma_rms\""},
       {R"({"rope": false})", "'rope' is false, not true"},
       {R"({"alibi": true})", "'alibi' is true, not false"},
       {R"({"include_bias": true})", "'include_bias' is true, not false"},
       {R"({"bias_for_layer_norm": true})", "'bias_for_layer_norm' is true"},
       {R"({"layer_norm_with_affine": false})", "'layer_norm_with_affine' is false"},
       {R"({"attention_layer_norm": true})", "'attention_layer_norm' is true, not false: it norm"},
       {R"({"input_emb_norm": true})", "'input_emb_norm' is true"},
       {R"({"scale_logits": true})", "'scale_logits' is true"},
       {R"({"block_group_size": 2})", "'block_group_size' is 2, not 1"},
       {R"({"n_heads": 3})", "'n_heads' is 3 but must divide 'd_model' = 16"}});
  ExpectPatchesRefused(
      config_of("mdlm"),
      {{R"({"time_conditioning": true})", "'time_conditioning' is true, not false: it computes"},
       {R"({"cond_dim": null})", "'cond_dim' is missing"},
       {R"({"n_heads": 3})", "'n_heads' is 3 but must divide 'hidden_dim' = 16"}});
  ExpectPatchesRefused(config_of("bd3lm"),
                       {{R"({"causal": true})", "'causal' is true, not false"},
                        {R"({"adaln": 1})", "'adaln' is 1 but must be true or false"}});
}

// Defaults of transformers' LlamaConfig and of LLaDA's own configuration.
TEST(ForeignConfigTest, AnAbsentSwitchIsTheirDefault) {
  const std::tuple<const char*, const char*, bool ModelConfig::*, bool> cases[] = {
      {"llama", "tie_word_embeddings", &ModelConfig::tie_embeddings, false},
      {"llama", "attention_bias", &ModelConfig::attention_biases, false},
      {"llama", "mlp_bias", &ModelConfig::ffn_biases, false},
      {"llada", "include_qkv_bias", &ModelConfig::attention_biases, false},
      {"llada", "weight_tying", &ModelConfig::tie_embeddings, true},
  };
  for (const auto& [type, key, member, expected] : cases) {
    Json config = ConfigOf(type);
    config.erase(key);
    EXPECT_EQ(Parsed(config).model.*member, expected) << key;
  }
}

TEST(ForeignConfigTest, SpellingsOfTransformers4And5MeanTheSame) {
  Json four = ConfigOf("llama");
  four["rope_scaling"] = Llama3Scaling("rope_type");
  Json old = four;
  old["rope_scaling"] = Llama3Scaling("type");
  Json five = ConfigOf("llama");
  five.erase("rope_theta");
  five.erase("rope_scaling");
  five["rope_parameters"] = Llama3Scaling("rope_type");
  five["rope_parameters"]["rope_theta"] = four["rope_theta"];
  five["dtype"] = five["torch_dtype"];
  five.erase("torch_dtype");
  RunConfig expected;
  expected.model = Parsed(four).model;
  EXPECT_EQ(expected.model.rope_scaling, RopeScaling::kLlama3);
  EXPECT_EQ(expected.model.rope_factor, 32.0);
  EXPECT_EQ(expected.model.rope_original_positions, 8192);
  EXPECT_EQ(expected.model.rope_base, 5e5);
  EXPECT_EQ(expected.model.num_kv_heads, 2);
  for (const Json& config : {old, five}) {
    RunConfig read;
    read.model = Parsed(config).model;
    EXPECT_EQ(read.ToText(), expected.ToText());
  }
}

// A window that no layer has is none.
TEST(ForeignConfigTest, SlidingWindowsMatterWhereTheyAreInEffect) {
  Json config = ConfigOf("qwen2");
  config["sliding_window"] = 4;
  config["max_window_layers"] = 2;
  config["use_sliding_window"] = false;
  Parsed(config);
  config["use_sliding_window"] = true;
  Parsed(config);
  config["max_window_layers"] = 1;
  EXPECT_THAT(ParseHfConfig(config.dump(), "config.json").status(),
              Says("a sliding window is in effect"));
  config["layer_types"] = {"full_attention", "full_attention"};
  Parsed(config);
}

class ForeignFaultTest : public ::testing::Test, protected ExchangeDirectory {};

TEST_F(ForeignFaultTest, TensorsThatDoNotMapAreNamed) {
  const ForeignShape llama = {.type = "llama", .key_heads = 2};
  ForeignModel model(llama);
  model.Add("model.layers.0.self_attn.lora_A.weight", {3, 16});
  model.Add("score.weight", {2, 16});
  ExpectModelRefused(model, {"'model.layers.0.self_attn.lora_A.weight' [3, 16] is unknown",
                             "so are 'score.weight'"});
  model = ForeignModel(llama);
  model.Remove("model.layers.1.mlp.up_proj.weight");
  ExpectModelRefused(model, {"no tensor 'model.layers.1.mlp.up_proj.weight' [24, 16]",
                             "save an LlamaForCausalLM"});
  model = ForeignModel(ShapeOf("A3"));
  model.Remove("model.query_embed");
  ExpectModelRefused(
      model, {"no tensor 'model.query_embed' [1, 1, 16]", "save an LlamaTwoStreamForCausalLM"});
  // Its weights under Llama's config.json would be another function.
  model = ForeignModel(ShapeOf("A3"));
  model.config["architectures"] = {"LlamaForCausalLM"};
  ExpectModelRefused(model, {"'model.query_embed' [1, 1, 16] is unknown"});
  model = ForeignModel(llama);
  model.Remove("lm_head.weight");
  ExpectModelRefused(model, {"no tensor 'lm_head.weight' [30, 16]"});
  model = ForeignModel(llama);
  model.config["num_key_value_heads"] = 4;
  ExpectModelRefused(model,
                     {"self_attn.k_proj.weight' is [8, 16] but config.json makes it [16, 16]"});
  for (const char* name :
       {"backbone.sigma_map.mlp.0.bias", "backbone.blocks.1.adaLN_modulation.bias",
        "backbone.blocks.0.adaLN_modulation.weight"}) {
    ForeignModel dit({.type = "mdlm"});
    dit.Remove(name);
    ExpectModelRefused(dit, {"no tensor '" + std::string(name) + "'", "save an MDLM"});
  }
}

TEST_F(ForeignFaultTest, ATiedOutputThatIsAnotherMatrixIsNotTaken) {
  ForeignModel model({.type = "qwen2", .storing = Storing::kTiedStoredTwice});
  model.Tensor("lm_head.weight").bytes[4 * 20 + 2] ^= 1;
  ExpectModelRefused(
      model, {"'lm_head.weight' has", "as element 20", "'tie_word_embeddings'", "set it to false"});
  model.config["tie_word_embeddings"] = false;
  model.Write(At("hf"));
  EXPECT_EQ(ImportAs("run"), absl::OkStatus());
}

RunConfig RunOfForeign(const char* type) { return RunOfModel(ConfigOf(type)); }

// An imported model goes on with the objective that it was trained with.
TEST(ForeignFamilyTest, RunsHaveTheConventionsOfTheirModels) {
  const auto any_order = [](const char* type) { return RunOfForeign(type).sampling.any_order; };
  EXPECT_EQ(RunOfForeign("llama").objective.name, "gpt");
  EXPECT_FALSE(any_order("llada").stratified_rates);
  EXPECT_EQ(any_order("llada").loss_weight, LossWeight::kRate);
  EXPECT_TRUE(any_order("Dream").shifted_readout);
  EXPECT_TRUE(any_order("Dream").keep_first_token);
  EXPECT_EQ(any_order("Dream").loss_weight, LossWeight::kCart);
  EXPECT_EQ(RunOfForeign("A3").objective.name, "a3");
  EXPECT_EQ(RunOfForeign("A3").model.ffn_residual, FfnResidual::kNormed);
  EXPECT_EQ(any_order("A3").group_order, GroupOrder::kRandom);
  EXPECT_EQ(any_order("A3").group_len_min, 8);
  EXPECT_EQ(any_order("A3").group_len_max, 8);
  EXPECT_EQ(any_order("mdlm").loss_weight, LossWeight::kTime);
  EXPECT_EQ(any_order("mdlm").rate_strata, RateStrata::kOwn);
  EXPECT_TRUE(any_order("bd3lm").keep_first_token);
  for (const char* type : {"llama", "A3", "llada", "Dream", "mdlm", "bd3lm"}) {
    const RunConfig run = RunOfForeign(type);
    const auto objective = MakeObjective(run.objective.name, run.model, run.sampling);
    EXPECT_TRUE(objective.ok()) << type << objective.status();
  }
}

TEST(ForeignFamilyTest, OtherObjectivesAreNamed) {
  RunConfig run = RunOfForeign("llama");
  run.objective.name = "a3";
  EXPECT_THAT(CheckFamily(LlamaFamily(), run),
              Says("objective.name is a3, not gpt, gpt_sft, causal_lm, "));
  // Every key that another family cannot say: SaidKeysTest.
  EXPECT_THAT(CheckFamily(Gpt2Family(), run),
              Says("model.norm is \"rms_norm\", not \"layer_norm\"; ",
                   "model.gated_ffn is true, not false; "));
}

TEST(ForeignFamilyTest, OfTheTwoThatAreCalledLlamaTheRunDecides) {
  RunConfig causal = RunOfForeign("A3");
  causal.objective.name = "gpt";
  EXPECT_EQ(&VariantOfRun(A3Family(), causal), &A3Family());
  EXPECT_EQ(&VariantOfRun(LlamaFamily(), causal), &LlamaFamily());
  causal.model.ffn_residual = FfnResidual::kInput;
  EXPECT_EQ(&VariantOfRun(A3Family(), causal), &LlamaFamily());
  EXPECT_EQ(&VariantOfRun(LlamaFamily(), RunOfForeign("A3")), &A3Family());
}

}  // namespace
}  // namespace anyorder::launcher
