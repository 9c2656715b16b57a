// The released models, as Hugging Face has them: their config.json and the names and shapes of
// their tensors, written down here, are what import expects. The files are as large as the released
// ones, but take no room: nothing reads a value.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "core/network/tensors/parameters.h"
#include "launcher/huggingface/hf_model.h"
#include "tests/launcher/huggingface/foreign_models.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

struct Released {
  std::string name;
  std::string config;
  int64_t parameters;  // of the model's function: tied weights once, no buffers
  ForeignTensors tensors = {};
};

// Heads are 64 wide and the vocabulary has 32,000 pieces in both.
Released Xlnet(const char* name, int64_t layers, int64_t d, int64_t heads, int64_t ffn,
               int64_t parameters) {
  Released model = {
      name,
      absl::StrCat(
          R"({"architectures": ["XLNetLMHeadModel"], "attn_type": "bi", "bi_data": false,
  "bos_token_id": 1, "clamp_len": -1, "d_head": 64, "d_inner": )",
          ffn, R"(, "d_model": )", d,
          R"(, "dropout": 0.1, "end_n_top": 5, "eos_token_id": 2, "ff_activation": "gelu",
  "initializer_range": 0.02, "layer_norm_eps": 1e-12, "mem_len": null, "model_type": "xlnet",
  "n_head": )",
          heads, R"(, "n_layer": )", layers,
          R"(, "pad_token_id": 5, "reuse_len": null, "same_length": false, "start_n_top": 5,
  "summary_activation": "tanh", "summary_last_dropout": 0.1, "summary_type": "last",
  "summary_use_proj": true,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 250}},
  "untie_r": true, "vocab_size": 32000})"),
      parameters};
  model.tensors.Add("transformer.mask_emb", {1, 1, d});
  model.tensors.Add("transformer.word_embedding.weight", {32000, d});
  model.tensors.AddLinear("lm_loss", 32000, d);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string prefix = absl::StrCat("transformer.layer.", layer, ".");
    for (const char* tensor : {"q", "k", "v", "o", "r"})
      model.tensors.Add(absl::StrCat(prefix, "rel_attn.", tensor), {d, heads, 64});
    for (const char* tensor : {"r_r_bias", "r_s_bias", "r_w_bias"})
      model.tensors.Add(absl::StrCat(prefix, "rel_attn.", tensor), {heads, 64});
    model.tensors.Add(prefix + "rel_attn.seg_embed", {2, heads, 64});
    model.tensors.AddNorm(prefix + "rel_attn.layer_norm", d);
    model.tensors.AddNorm(prefix + "ff.layer_norm", d);
    model.tensors.AddLinear(prefix + "ff.layer_1", ffn, d);
    model.tensors.AddLinear(prefix + "ff.layer_2", d, ffn);
  }
  return model;
}

// 12 layers of 768 in both, whose files have the names of the class without an output, and masks.
Released Gpt(bool is_second) {
  const int64_t d = 768, vocabulary = is_second ? 50257 : 40478;
  const int64_t positions = is_second ? 1024 : 512;
  Released model = {
      is_second ? "gpt2" : "openai-gpt",
      absl::StrCat(
          is_second ? R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
  "bos_token_id": 50256, "eos_token_id": 50256, "model_type": "gpt2", )"
                    : R"({"afn": "gelu", "architectures": ["OpenAIGPTLMHeadModel"], "n_special": 0,
  "predict_special_tokens": true, "model_type": "openai-gpt", )",
          R"("attn_pdrop": 0.1, "embd_pdrop": 0.1, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "n_ctx": )",
          positions, R"(, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": )", positions,
          R"(, "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
  "vocab_size": )",
          vocabulary, "}"),
      is_second ? 124'439'808 : 116'534'784};
  model.tensors.Add(is_second ? "wte.weight" : "tokens_embed.weight", {vocabulary, d});
  model.tensors.Add(is_second ? "wpe.weight" : "positions_embed.weight", {positions, d});
  const auto add = [&model](const std::string& name, int64_t inputs, int64_t outputs) {
    model.tensors.Add(name + ".weight", {inputs, outputs});
    model.tensors.Add(name + ".bias", {outputs});
  };
  for (int64_t layer = 0; layer < 12; ++layer) {
    const std::string prefix = absl::StrCat("h.", layer, ".");
    model.tensors.Add(prefix + "attn.bias", {1, 1, positions, positions});
    add(prefix + "attn.c_attn", d, 3 * d);
    add(prefix + "attn.c_proj", d, d);
    model.tensors.AddNorm(prefix + "ln_1", d);
    add(prefix + "mlp.c_fc", d, 4 * d);
    add(prefix + "mlp.c_proj", 4 * d, d);
    model.tensors.AddNorm(prefix + "ln_2", d);
  }
  if (is_second) model.tensors.AddNorm("ln_f", d);
  return model;
}

Released TransformerXl() {
  const int64_t d = 1024, ends[] = {0, 20000, 40000, 200000, 267735};
  Released model = {"transfo-xl-wt103",
                    R"({"adaptive": true, "architectures": ["TransfoXLLMHeadModel"], "attn_type": 0,
  "clamp_len": 1000, "cutoffs": [20000, 40000, 200000], "d_embed": 1024, "d_head": 64,
  "d_inner": 4096, "d_model": 1024, "div_val": 4, "dropatt": 0.0, "dropout": 0.1,
  "eos_token_id": 0, "ext_len": 0, "init": "normal", "init_range": 0.01, "init_std": 0.02,
  "layer_norm_epsilon": 1e-05, "mem_len": 1600, "model_type": "transfo-xl", "n_head": 16,
  "n_layer": 18, "pre_lnorm": false, "proj_init_std": 0.01, "same_length": true,
  "sample_softmax": -1, "tgt_len": 128, "tie_projs": [false, true, true, true],
  "tie_weight": true, "untie_r": true, "vocab_size": 267735})",
                    285'205'322};
  for (int64_t i = 0, width = d; i < 4; ++i, width /= 4) {
    const int64_t words = ends[i + 1] - ends[i];
    model.tensors.Add(absl::StrCat("transformer.word_emb.emb_layers.", i, ".weight"),
                      {words, width});
    model.tensors.Add(absl::StrCat("transformer.word_emb.emb_projs.", i), {d, width});
    model.tensors.AddLinear(absl::StrCat("crit.out_layers.", i), words, width);
    model.tensors.Add(absl::StrCat("crit.out_projs.", i), {d, width});
  }
  model.tensors.Add("crit.cluster_weight", {3, d});
  model.tensors.Add("crit.cluster_bias", {3});
  model.tensors.Add("transformer.pos_emb.inv_freq", {d / 2});
  for (int64_t layer = 0; layer < 18; ++layer) {
    const std::string prefix = absl::StrCat("transformer.layers.", layer, ".");
    model.tensors.Add(prefix + "dec_attn.qkv_net.weight", {3 * d, d});
    model.tensors.Add(prefix + "dec_attn.o_net.weight", {d, d});
    model.tensors.Add(prefix + "dec_attn.r_net.weight", {d, d});
    for (const char* bias : {"r_w_bias", "r_r_bias"})
      model.tensors.Add(absl::StrCat(prefix, "dec_attn.", bias), {16, 64});
    model.tensors.AddNorm(prefix + "dec_attn.layer_norm", d);
    model.tensors.AddLinear(prefix + "pos_ff.CoreNet.0", 4 * d, d);
    model.tensors.AddLinear(prefix + "pos_ff.CoreNet.3", d, 4 * d);
    model.tensors.AddNorm(prefix + "pos_ff.layer_norm", d);
  }
  return model;
}

// Llama, A3, Qwen2, Qwen3 and Dream. `rest`: the rest of config.json.
Released LlamaLike(ForeignShape s, bool is_tied, const std::string& rest, int64_t parameters) {
  if (is_tied) s.storing = Storing::kTied;
  s.is_two_stream = absl::StrContains(rest, "TwoStream");
  Released model = {
      s.type,
      absl::StrCat(R"({"model_type": ")", s.type, R"(", "hidden_size": )", s.dim,
                   R"(, "num_hidden_layers": )", s.layers, R"(, "num_attention_heads": )", s.heads,
                   R"(, "num_key_value_heads": )", s.key_heads, R"(, "intermediate_size": )", s.ffn,
                   R"(, "vocab_size": )", s.vocab, R"(, "hidden_act": "silu",
  "tie_word_embeddings": )",
                   is_tied ? "true" : "false", ", ", rest, "}"),
      parameters};
  AddForeignTensors(s, model.tensors);
  return model;
}

std::vector<Released> Llamas() {
  const auto llama3 = [](int factor) {
    return absl::StrCat(R"("rms_norm_eps": 1e-05, "rope_theta": 500000.0, "attention_bias": false,
  "mlp_bias": false, "max_position_embeddings": 131072, "rope_scaling": {"factor": )",
                        factor, R"(.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
  "original_max_position_embeddings": 8192, "rope_type": "llama3"})");
  };
  const std::string qwen =
      R"("rms_norm_eps": 1e-06, "rope_theta": 1000000, "sliding_window": 131072,
  "max_window_layers": 28, "use_sliding_window": false, "max_position_embeddings": 131072)";
  return {
      LlamaLike({"llama", 32, 4096, 32, 8, 128, 14336, 128256}, false, llama3(8), 8'030'261'248),
      // A3 begins with Llama 3.1.
      LlamaLike({"llama", 32, 4096, 32, 8, 128, 14336, 128256}, false,
                R"("architectures": ["LlamaTwoStreamForCausalLM"], )" + llama3(8), 8'030'265'344),
      LlamaLike({"llama", 16, 2048, 32, 8, 64, 8192, 128256}, true, llama3(32), 1'235'814'400),
      LlamaLike({"qwen2", 28, 3584, 28, 4, 128, 18944, 152064}, false, qwen, 7'615'616'512),
      LlamaLike({"Dream", 28, 3584, 28, 4, 128, 18944, 152064}, false,
                qwen + R"(, "mask_token_id": 151666)", 7'615'616'512),
      LlamaLike({"qwen3", 28, 1024, 16, 8, 128, 3072, 151936}, true,
                qwen + R"(, "head_dim": 128, "attention_bias": false)", 596'049'920),
      LlamaLike({"qwen3", 36, 4096, 32, 8, 128, 12288, 151936}, false,
                qwen + R"(, "head_dim": 128, "attention_bias": false)", 8'190'735'360)};
}

Released Llada() {
  Released model = {
      "LLaDA-8B",
      R"({"activation_type": "silu", "alibi": false, "architectures": ["LLaDAModelLM"],
  "attention_dropout": 0.0, "attention_layer_norm": false, "block_group_size": 1,
  "block_type": "llama", "d_model": 4096, "embedding_dropout": 0.0, "embedding_size": 126464,
  "include_bias": false, "include_qkv_bias": false, "input_emb_norm": false,
  "layer_norm_type": "rms", "layer_norm_with_affine": true, "mask_token_id": 126336,
  "max_sequence_length": 4096, "mlp_hidden_size": 12288, "mlp_ratio": 4, "model_type": "llada",
  "multi_query_attention": null, "n_heads": 32, "n_kv_heads": 32, "n_layers": 32,
  "residual_dropout": 0.0, "rms_norm_eps": 1e-05, "rope": true, "rope_full_precision": true,
  "rope_theta": 500000.0, "scale_logits": false, "vocab_size": 126464, "weight_tying": false})",
      8'015'581'184};
  AddForeignTensors({"llada", 32, 4096, 32, 32, 128, 12288, 126464}, model.tensors);
  return model;
}

// Of the function: what modulates the LayerNorms is two vectors for each of 25.
Released Mdlm() {
  const int64_t d = 768, vocabulary = 50258, block = 12 * d * d + 5 * d + 4 * d;
  Released model = {"mdlm-owt",
                    R"({"architectures": ["MDLM"], "cond_dim": 128, "dropout": 0.1,
  "hidden_dim": 768, "model_length": 1024, "model_type": "mdlm", "n_blocks": 12, "n_heads": 12,
  "time_conditioning": false, "torch_dtype": "float32", "vocab_size": 50258})",
                    2 * vocabulary * d + vocabulary + 12 * block + 2 * d};
  AddForeignTensors(
      {.type = "mdlm", .layers = 12, .dim = d, .heads = 12, .vocab = vocabulary, .condition = 128},
      model.tensors);
  return model;
}

void WriteWithoutValues(const std::string& path,
                        const std::vector<ckpt::SafetensorsEntry>& tensors) {
  Json header;
  int64_t end = 0;
  for (const auto& [name, dtype, shape] : tensors) {
    Json sizes = Json::array();
    for (int dim = 0; dim < shape.rank(); ++dim) sizes.push_back(shape[dim]);
    const int64_t begin = end;
    end += shape.num_elements() * SizeOf(dtype);
    header[name] = {
        {"dtype", std::string(Name(dtype))}, {"shape", sizes}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto size = static_cast<uint64_t>(text.size());
  WriteFile(path, std::string(reinterpret_cast<const char*>(&size), sizeof size) + text);
  std::filesystem::resize_file(path, sizeof size + text.size() + static_cast<uint64_t>(end));
}

TEST(ReleasedModelsTest, NamesAndShapesAreWhatImportExpects) {
  std::vector<Released> all = {Xlnet("xlnet-base-cased", 12, 768, 12, 3072, 116'750'336),
                               Xlnet("xlnet-large-cased", 24, 1024, 16, 4096, 360'300'800),
                               Gpt(false),
                               Gpt(true),
                               TransformerXl(),
                               Llada(),
                               Mdlm()};
  for (Released& llama : Llamas()) all.push_back(std::move(llama));
  for (Released& released : all) {
    SCOPED_TRACE(released.name);
    const TemporaryDirectory directory;
    const HfConfig config = ParseHfConfig(released.config, "config.json").value();
    const ParameterLayout layout(config.model, config.vocab_size);
    // Every network has a mask embedding, which only functions of two streams use.
    const bool is_used = config.family == &XlnetFamily() || config.family == &A3Family();
    const int64_t unused = is_used ? 0 : layout.Find("transformer.mask_emb").shape.num_elements();
    EXPECT_EQ(layout.num_elements() - unused, released.parameters);

    const std::string path = directory.path() + "/model.safetensors";
    const auto check = [&] {
      WriteWithoutValues(path, released.tensors.entries);
      const absl::StatusOr<HfWeights> weights = HfWeights::Open(directory.path());
      if (!weights.ok()) return weights.status();
      TensorTable expected = config.family->Tensors(config.model, layout);
      config.family->FitTensors(config, expected);
      // As import does it.
      for (FileTensor& tensor : expected)
        if (weights->IsBare(*config.family))
          tensor.name = std::string(absl::StripPrefix(tensor.name, config.family->names().prefix));
      const absl::StatusOr<HfWeights::Findings> found = weights->Check(*config.family, expected);
      EXPECT_TRUE(!found.ok() || found->left_out.empty());
      return found.status();
    };
    EXPECT_TRUE(check().ok()) << check();
    released.tensors.entries.back().shape = Shape{config.model.model_dim + 1};
    EXPECT_FALSE(check().ok()) << "a shape is not compared";
    released.tensors.entries.pop_back();
    EXPECT_FALSE(check().ok()) << "a tensor may be missing";
  }
}

}  // namespace
}  // namespace anyorder::launcher
