#include "tests/launcher/huggingface/foreign_models.h"

#include <bit>
#include <random>

#include "absl/strings/str_cat.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

// Random values in [-0.5, 0.5], as the bytes of a file: of two bytes the top of a float is bf16,
// and random bits with a small exponent are fp16.
std::string RandomBytes(int64_t count, DType dtype, std::mt19937& random) {
  std::uniform_real_distribution<float> draw(-0.5f, 0.5f);
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(draw(random));
    if (dtype == DType::kFloat32) bytes += BytesOf(std::vector<uint32_t>{bits});
    if (dtype == DType::kBFloat16)
      bytes += BytesOf(std::vector<uint16_t>{static_cast<uint16_t>(bits >> 16)});
    if (dtype == DType::kFloat16) {
      const auto half = static_cast<uint16_t>(random());
      // Exponents up to 14 of 31: below one half, subnormal ones among them.
      bytes += BytesOf(std::vector<uint16_t>{
          static_cast<uint16_t>((half & 0x83ffu) | (half >> 10 & 0x1fu) % 14 << 10)});
    }
  }
  return bytes;
}

Json LlamaConfig(const ForeignShape& shape) {
  const std::string type = shape.type;
  Json config = {{"model_type", type},
                 {"vocab_size", shape.vocab},
                 {"hidden_size", shape.dim},
                 {"num_hidden_layers", shape.layers},
                 {"num_attention_heads", shape.heads},
                 {"num_key_value_heads", shape.key_heads},
                 {"intermediate_size", shape.ffn},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", 64},
                 {"rms_norm_eps", 1e-5},
                 {"rope_theta", 5e5},
                 {"rope_scaling", nullptr},
                 {"tie_word_embeddings", shape.storing != Storing::kUntied},
                 {"torch_dtype", shape.dtype == DType::kBFloat16 ? "bfloat16" : "float32"},
                 {"mine", {{"key", 3}}}};
  const char* const architecture = shape.is_two_stream ? "LlamaTwoStreamForCausalLM"
                                   : type == "llama"   ? "LlamaForCausalLM"
                                   : type == "qwen2"   ? "Qwen2ForCausalLM"
                                   : type == "qwen3"   ? "Qwen3ForCausalLM"
                                                       : "DreamModel";
  config["architectures"] = {architecture};
  if (shape.heads * shape.head_dim != shape.dim) config["head_dim"] = shape.head_dim;
  if (type == "llama") config["mlp_bias"] = shape.mlp_bias;
  if (type == "llama" || type == "qwen3") config["attention_bias"] = shape.attention_bias;
  if (type == "Dream") config["mask_token_id"] = 29;
  return config;
}

Json LladaConfig(const ForeignShape& shape) {
  Json config = Json::parse(R"({"architectures": ["LLaDAModelLM"],
    "auto_map": {"AutoModel": "modeling_llada.LLaDAModelLM"}, "model_type": "llada",
    "mlp_ratio": 4, "max_sequence_length": 64, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "rope": true, "alibi": false, "block_type": "llama", "block_group_size": 1,
    "activation_type": "silu", "layer_norm_type": "rms", "layer_norm_with_affine": true,
    "attention_layer_norm": false, "include_bias": false, "bias_for_layer_norm": false,
    "input_emb_norm": false, "scale_logits": false, "multi_query_attention": null,
    "residual_dropout": 0.0, "mask_token_id": 27})");
  config.update({{"vocab_size", shape.vocab - 2},
                 {"embedding_size", shape.vocab},
                 {"d_model", shape.dim},
                 {"n_layers", shape.layers},
                 {"n_heads", shape.heads},
                 {"n_kv_heads", shape.key_heads},
                 {"mlp_hidden_size", shape.ffn},
                 {"include_qkv_bias", shape.attention_bias},
                 {"weight_tying", shape.storing != Storing::kUntied}});
  return config;
}

Json DitConfig(const ForeignShape& shape) {
  const bool is_bd3lm = std::string(shape.type) == "bd3lm";
  Json config = {{"architectures", {is_bd3lm ? "BD3LM" : "MDLM"}},
                 {"model_type", shape.type},
                 {"vocab_size", shape.vocab},
                 {"model_length", 64},
                 {"hidden_dim", shape.dim},
                 {"cond_dim", shape.condition},
                 {"n_blocks", shape.layers},
                 {"n_heads", shape.heads},
                 {"dropout", 0.1},
                 {"time_conditioning", false},
                 {"torch_dtype", "float32"}};
  if (!is_bd3lm) return config;
  config["adaln"] = shape.is_modulated;
  config["block_size"] = 8;
  config["causal"] = false;
  return config;
}

void AddLlama(const ForeignShape& shape, ForeignTensors& list) {
  const auto& [d, f] = std::pair(shape.dim, shape.ffn);
  const int64_t queries = shape.heads * shape.head_dim;
  const int64_t keys = shape.key_heads * shape.head_dim;
  const std::string type = shape.type;
  const bool is_qwen2 = type == "qwen2" || type == "Dream";
  const bool has_bias = is_qwen2 || shape.attention_bias;
  list.Add("model.embed_tokens.weight", {shape.vocab, d});
  if (shape.is_two_stream) list.Add("model.query_embed", {1, 1, d});
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string at = absl::StrCat("model.layers.", layer, ".");
    list.Add(at + "input_layernorm.weight", {d});
    list.AddLinear(at + "self_attn.q_proj", queries, d, has_bias);
    list.AddLinear(at + "self_attn.k_proj", keys, d, has_bias);
    list.AddLinear(at + "self_attn.v_proj", keys, d, has_bias);
    list.AddLinear(at + "self_attn.o_proj", d, queries, has_bias && !is_qwen2);
    if (type == "qwen3") {
      list.Add(at + "self_attn.q_norm.weight", {shape.head_dim});
      list.Add(at + "self_attn.k_norm.weight", {shape.head_dim});
    }
    if (shape.has_buffers) list.Add(at + "self_attn.rotary_emb.inv_freq", {shape.head_dim / 2});
    list.Add(at + "post_attention_layernorm.weight", {d});
    list.AddLinear(at + "mlp.gate_proj", f, d, shape.mlp_bias);
    list.AddLinear(at + "mlp.up_proj", f, d, shape.mlp_bias);
    list.AddLinear(at + "mlp.down_proj", d, f, shape.mlp_bias);
  }
  list.Add("model.norm.weight", {d});
  if (shape.storing != Storing::kTied) list.Add("lm_head.weight", {shape.vocab, d});
}

void AddLlada(const ForeignShape& shape, ForeignTensors& list) {
  const auto& [d, f] = std::pair(shape.dim, shape.ffn);
  const int64_t keys = shape.key_heads * shape.head_dim;
  list.Add("model.transformer.wte.weight", {shape.vocab, d});
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string at = absl::StrCat("model.transformer.blocks.", layer, ".");
    list.Add(at + "attn_norm.weight", {d});
    list.Add(at + "ff_norm.weight", {d});
    list.AddLinear(at + "q_proj", d, d, shape.attention_bias);
    list.AddLinear(at + "k_proj", keys, d, shape.attention_bias);
    list.AddLinear(at + "v_proj", keys, d, shape.attention_bias);
    list.Add(at + "attn_out.weight", {d, d});
    list.Add(at + "ff_proj.weight", {f, d});
    list.Add(at + "up_proj.weight", {f, d});
    list.Add(at + "ff_out.weight", {d, f});
  }
  list.Add("model.transformer.ln_f.weight", {d});
  if (shape.storing != Storing::kTied)
    list.Add("model.transformer.ff_out.weight", {shape.vocab, d});
}

void AddDit(const ForeignShape& shape, ForeignTensors& list) {
  const int64_t d = shape.dim, c = shape.condition;
  list.Add("backbone.vocab_embed.embedding", {shape.vocab, d});
  if (shape.is_modulated) {
    list.AddLinear("backbone.sigma_map.mlp.0", c, 256);
    list.AddLinear("backbone.sigma_map.mlp.2", c, c);
  }
  list.Add("backbone.rotary_emb.inv_freq", {d / shape.heads / 2});
  const auto modulation = [&](const std::string& at, int64_t parts) {
    if (shape.is_modulated) list.AddLinear(at + "adaLN_modulation", parts * d, c);
  };
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string at = absl::StrCat("backbone.blocks.", layer, ".");
    list.Add(at + "norm1.weight", {d});
    list.Add(at + "attn_qkv.weight", {3 * d, d});
    list.Add(at + "attn_out.weight", {d, d});
    list.Add(at + "norm2.weight", {d});
    list.AddLinear(at + "mlp.0", 4 * d, d);
    list.AddLinear(at + "mlp.2", d, 4 * d);
    modulation(at, 6);
  }
  list.Add("backbone.output_layer.norm_final.weight", {d});
  list.AddLinear("backbone.output_layer.linear", shape.vocab, d);
  modulation("backbone.output_layer.", 2);
  if (std::string(shape.type) != "bd3lm") return;
  list.Add("sampling_eps_min", {});
  list.Add("sampling_eps_max", {});
}

bool IsDit(const std::string& type) { return type == "mdlm" || type == "bd3lm"; }

}  // namespace

void AddForeignTensors(const ForeignShape& shape, ForeignTensors& list) {
  const std::string type = shape.type;
  (type == "llada" ? AddLlada : IsDit(type) ? AddDit : AddLlama)(shape, list);
}

ForeignModel::ForeignModel(const ForeignShape& shape) : dtype(shape.dtype) {
  const std::string type = shape.type;
  config = (type == "llada" ? LladaConfig : IsDit(type) ? DitConfig : LlamaConfig)(shape);
  ForeignTensors list;
  AddForeignTensors(shape, list);
  for (const ckpt::SafetensorsEntry& entry : list.entries) Add(entry.name, entry.shape);
  if (shape.storing == Storing::kTiedStoredTwice)
    Tensor("lm_head.weight").bytes = Tensor("model.embed_tokens.weight").bytes;
}

void ForeignModel::Add(const std::string& name, const Shape& shape) {
  std::mt19937 random(1001 + tensors.size());
  tensors.push_back({{name, dtype, shape}, RandomBytes(shape.num_elements(), dtype, random)});
}

void ForeignModel::Write(const std::string& directory, int num_files) const {
  WriteModel(directory, num_files);
  for (const std::string& name : ForeignFiles())
    WriteFile(absl::StrCat(directory, "/", name), absl::StrCat("{\"file\": \"", name, "\"}\n"));
}

std::vector<std::string> ForeignFiles() {
  return {
      "tokenizer.json",      "tokenizer_config.json",  "special_tokens_map.json", "vocab.json",
      "merges.txt",          "generation_config.json", "chat_template.jinja",     "modeling_own.py",
      "configuration_own.py"};
}

}  // namespace anyorder::launcher
