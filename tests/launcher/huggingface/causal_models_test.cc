// GPT, GPT-2 and Transformer-XL of Hugging Face: which config.json is refused and why, which runs
// can be exported, and that values come to their places. tests/parity/causal_parity.py has the
// models themselves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <string>
#include <vector>

#include "launcher/huggingface/hf_model.h"
#include "tests/launcher/huggingface/exchange_directory.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

Json GptConfig() {
  return Json::parse(R"({"model_type": "openai-gpt", "n_layer": 1, "n_embd": 4, "n_head": 2,
      "n_positions": 6, "vocab_size": 10, "afn": "gelu"})");
}

Json Gpt2Config() {
  Json config = GptConfig();
  config.erase("afn");
  config["model_type"] = "gpt2";
  return config;
}

Json XlConfig() {
  return Json::parse(R"({"model_type": "transfo-xl", "n_layer": 1, "d_model": 4, "d_embed": 4,
      "n_head": 2, "d_head": 2, "d_inner": 6, "vocab_size": 10, "cutoffs": [4, 7], "div_val": 2,
      "mem_len": 5, "tie_projs": [false, true, true]})");
}

TEST(CausalModelsTest, OtherFunctionsAreRefused) {
  ExpectPatchesRefused(
      GptConfig(), {{R"({"afn": "silu"})", "'afn' is \"silu\" but must be \"gelu\" or \"relu\""},
                    {R"({"n_head": 3})", "'n_head' is 3 but must divide 'n_embd' = 4"},
                    {R"({"n_positions": null})", "'n_positions' is missing"},
                    {R"({"tie_word_embeddings": false})", "an output of its own"}});
  ExpectPatchesRefused(
      Gpt2Config(),
      {{R"({"activation_function": "silu"})", "'activation_function' is \"silu\""},
       {R"({"n_inner": 0})", "'n_inner' is 0"},
       {R"({"scale_attn_weights": false})", "'scale_attn_weights' is false, not true"},
       {R"({"scale_attn_by_inverse_layer_idx": true})", "inverse_layer_idx' is true"},
       {R"({"add_cross_attention": true})", "'add_cross_attention' is true, not false"}});
  ExpectPatchesRefused(XlConfig(),
                       {{R"({"d_embed": 2})", "'d_embed' is 2, not 4, as 'd_model'"},
                        {R"({"pre_lnorm": true})", "'pre_lnorm' is true, not false"},
                        {R"({"attn_type": 1})", "'attn_type' is 1, not 0"},
                        {R"({"cutoffs": 4})", "'cutoffs' is 4 but must be a list"},
                        {R"({"cutoffs": [4, 10]})", "has only 10 entries"},
                        {R"({"cutoffs": []})", "which has no clusters"},
                        {R"({"div_val": 3})", "less than one dimension"},
                        {R"({"mem_len": 0})", "'same_length' is true but 'mem_len' is 0"},
                        {R"({"tie_projs": [true, true, true]})", "must be [false,true,true] or"}});
}

TEST(CausalModelsTest, ConfigIsReadWithTheDefaultsOfTransformers) {
  const ModelConfig gpt2 = Parsed(Gpt2Config()).model;
  EXPECT_TRUE(gpt2.pre_norm());
  EXPECT_EQ(gpt2.ffn_dim, 16);
  EXPECT_EQ(gpt2.activation, kernels::Activation::kGeluTanh);
  Json config = XlConfig();
  config.erase("tie_projs");
  config["proj_share_all_but_first"] = false;
  const ModelConfig xl = Parsed(config).model;
  EXPECT_EQ(xl.cutoffs, "4, 7");
  EXPECT_FALSE(xl.tie_projections);
  EXPECT_EQ(xl.same_length, SameLength::kTorch);
  EXPECT_EQ(xl.clamp_len, 1000);
  EXPECT_EQ(xl.initial_memory, InitialMemory::kZeros);
}

TEST(CausalModelsTest, RunsAreOfTheFamilyThatTheyAreClosestTo) {
  struct Case {
    RunConfig run;
    const HfFamily& family;
  };
  for (const Case& one : {Case{RunOfModel(GptConfig()), OpenAiGptFamily()},
                          Case{RunOfModel(Gpt2Config()), Gpt2Family()},
                          Case{RunOfModel(XlConfig()), TransformerXlFamily()}}) {
    EXPECT_EQ(&FamilyOfRun(one.run), &one.family);
    EXPECT_TRUE(CheckFamily(one.family, one.run).ok()) << CheckFamily(one.family, one.run);
  }
}

// Where element [row, column] comes from, of the key's part of three: [in, 3 out] there.
class CausalExchangeTest : public ::testing::Test, protected ExchangeDirectory {};

TEST_F(CausalExchangeTest, ValuesComeToTheirPlacesFromFilesWithoutAnOutput) {
  const HfConfig config = Parsed(Gpt2Config());
  const ParameterLayout layout(config.model, config.vocab_size);
  std::vector<HfTensor> tensors;
  float value = 0;
  for (const FileTensor& tensor : config.family->Tensors(config.model, layout)) {
    const bool is_mask = tensor.name == "transformer.h.0.attn.bias";
    if (tensor.is_alias && !is_mask) continue;
    std::vector<float> values(tensor.shape.num_elements());
    for (float& element : values) element = value++;
    const std::string bare = tensor.name.substr(strlen("transformer."));
    tensors.push_back({{bare, DType::kFloat32, tensor.shape}, BytesOf(values)});
    if (!is_mask) continue;
    tensors.back().entry.dtype = DType::kUint8;
    tensors.back().bytes.resize(values.size());
  }
  std::filesystem::create_directories(At("hf"));
  WriteFile(At("hf/config.json"), Gpt2Config().dump());
  WriteSafetensors(At("hf/model.safetensors"), tensors);
  ASSERT_EQ(ImportAs("run"), absl::OkStatus());
  ASSERT_EQ(ExportOurs("ours"), absl::OkStatus());
  ASSERT_EQ(Export("again"), absl::OkStatus());

  const std::vector<float> all = ValuesIn("hf", "h.0.attn.c_attn.weight");
  const std::vector<float> keys = ValuesIn("ours", "transformer.layer.0.rel_attn.k");
  const std::vector<float> in = ValuesIn("hf", "h.0.mlp.c_fc.weight");
  const std::vector<float> ours_in = ValuesIn("ours", "transformer.layer.0.ff.layer_1.weight");
  for (int row = 0; row < 4; ++row) {
    for (int column = 0; column < 4; ++column)
      EXPECT_EQ(keys[row * 4 + column], all[row * 12 + 4 + column]);
    for (int column = 0; column < 16; ++column)
      EXPECT_EQ(ours_in[column * 4 + row], in[row * 16 + column]);
  }
  EXPECT_EQ(ValuesIn("again", "transformer.h.0.attn.c_attn.weight"), all);
}

}  // namespace
}  // namespace anyorder::launcher
