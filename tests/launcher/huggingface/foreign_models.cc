#include "tests/launcher/huggingface/foreign_models.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"

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
  const std::string type = shape.model_type;
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
  return {{"architectures", {"LLaDAModelLM"}},
          {"auto_map", {{"AutoModel", "modeling_llada.LLaDAModelLM"}}},
          {"model_type", "llada"},
          {"vocab_size", shape.vocab - 2},
          {"embedding_size", shape.vocab},
          {"d_model", shape.dim},
          {"n_layers", shape.layers},
          {"n_heads", shape.heads},
          {"n_kv_heads", shape.key_heads},
          {"mlp_hidden_size", shape.ffn},
          {"mlp_ratio", 4},
          {"max_sequence_length", 64},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"rope", true},
          {"alibi", false},
          {"block_type", "llama"},
          {"block_group_size", 1},
          {"activation_type", "silu"},
          {"layer_norm_type", "rms"},
          {"layer_norm_with_affine", true},
          {"attention_layer_norm", false},
          {"include_bias", false},
          {"include_qkv_bias", shape.attention_bias},
          {"bias_for_layer_norm", false},
          {"input_emb_norm", false},
          {"scale_logits", false},
          {"multi_query_attention", nullptr},
          {"weight_tying", shape.storing != Storing::kUntied},
          {"residual_dropout", 0.0},
          {"mask_token_id", 27}};
}

Json DitConfig(const ForeignShape& shape) {
  const bool is_bd3lm = std::string(shape.model_type) == "bd3lm";
  Json config = {{"architectures", {is_bd3lm ? "BD3LM" : "MDLM"}},
                 {"model_type", shape.model_type},
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

struct TensorList {
  void Add(const std::string& name, std::initializer_list<int64_t> sizes) {
    entries.push_back({name, dtype, Shape(sizes)});
  }

  DType dtype;
  std::vector<ckpt::SafetensorsEntry> entries = {};
};

void AddLlama(const ForeignShape& shape, TensorList& list) {
  const auto& [d, f] = std::pair(shape.dim, shape.ffn);
  const int64_t queries = shape.heads * shape.head_dim;
  const int64_t keys = shape.key_heads * shape.head_dim;
  const std::string type = shape.model_type;
  const bool is_qwen2 = type == "qwen2" || type == "Dream";
  list.Add("model.embed_tokens.weight", {shape.vocab, d});
  if (shape.is_two_stream) list.Add("model.query_embed", {1, 1, d});
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string at = absl::StrCat("model.layers.", layer, ".");
    list.Add(at + "input_layernorm.weight", {d});
    list.Add(at + "self_attn.q_proj.weight", {queries, d});
    list.Add(at + "self_attn.k_proj.weight", {keys, d});
    list.Add(at + "self_attn.v_proj.weight", {keys, d});
    list.Add(at + "self_attn.o_proj.weight", {d, queries});
    if (is_qwen2 || shape.attention_bias) {
      list.Add(at + "self_attn.q_proj.bias", {queries});
      list.Add(at + "self_attn.k_proj.bias", {keys});
      list.Add(at + "self_attn.v_proj.bias", {keys});
    }
    if (!is_qwen2 && shape.attention_bias) list.Add(at + "self_attn.o_proj.bias", {d});
    if (type == "qwen3") {
      list.Add(at + "self_attn.q_norm.weight", {shape.head_dim});
      list.Add(at + "self_attn.k_norm.weight", {shape.head_dim});
    }
    if (shape.has_buffers) list.Add(at + "self_attn.rotary_emb.inv_freq", {shape.head_dim / 2});
    list.Add(at + "post_attention_layernorm.weight", {d});
    for (const char* part : {"gate", "up"})
      list.Add(absl::StrCat(at, "mlp.", part, "_proj.weight"), {f, d});
    list.Add(at + "mlp.down_proj.weight", {d, f});
    if (!shape.mlp_bias) continue;
    for (const char* part : {"gate", "up"})
      list.Add(absl::StrCat(at, "mlp.", part, "_proj.bias"), {f});
    list.Add(at + "mlp.down_proj.bias", {d});
  }
  list.Add("model.norm.weight", {d});
  if (shape.storing != Storing::kTied) list.Add("lm_head.weight", {shape.vocab, d});
}

void AddLlada(const ForeignShape& shape, TensorList& list) {
  const auto& [d, f] = std::pair(shape.dim, shape.ffn);
  const int64_t keys = shape.key_heads * shape.head_dim;
  list.Add("model.transformer.wte.weight", {shape.vocab, d});
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string at = absl::StrCat("model.transformer.blocks.", layer, ".");
    list.Add(at + "attn_norm.weight", {d});
    list.Add(at + "ff_norm.weight", {d});
    list.Add(at + "q_proj.weight", {d, d});
    list.Add(at + "k_proj.weight", {keys, d});
    list.Add(at + "v_proj.weight", {keys, d});
    if (shape.attention_bias) {
      list.Add(at + "q_proj.bias", {d});
      list.Add(at + "k_proj.bias", {keys});
      list.Add(at + "v_proj.bias", {keys});
    }
    list.Add(at + "attn_out.weight", {d, d});
    list.Add(at + "ff_proj.weight", {f, d});
    list.Add(at + "up_proj.weight", {f, d});
    list.Add(at + "ff_out.weight", {d, f});
  }
  list.Add("model.transformer.ln_f.weight", {d});
  if (shape.storing != Storing::kTied)
    list.Add("model.transformer.ff_out.weight", {shape.vocab, d});
}

void AddDit(const ForeignShape& shape, TensorList& list) {
  const int64_t d = shape.dim, c = shape.condition;
  list.Add("backbone.vocab_embed.embedding", {shape.vocab, d});
  if (shape.is_modulated) {
    list.Add("backbone.sigma_map.mlp.0.weight", {c, 256});
    list.Add("backbone.sigma_map.mlp.0.bias", {c});
    list.Add("backbone.sigma_map.mlp.2.weight", {c, c});
    list.Add("backbone.sigma_map.mlp.2.bias", {c});
  }
  list.Add("backbone.rotary_emb.inv_freq", {d / shape.heads / 2});
  const auto modulation = [&](const std::string& at, int64_t parts) {
    if (!shape.is_modulated) return;
    list.Add(at + "adaLN_modulation.weight", {parts * d, c});
    list.Add(at + "adaLN_modulation.bias", {parts * d});
  };
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string at = absl::StrCat("backbone.blocks.", layer, ".");
    list.Add(at + "norm1.weight", {d});
    list.Add(at + "attn_qkv.weight", {3 * d, d});
    list.Add(at + "attn_out.weight", {d, d});
    list.Add(at + "norm2.weight", {d});
    list.Add(at + "mlp.0.weight", {4 * d, d});
    list.Add(at + "mlp.0.bias", {4 * d});
    list.Add(at + "mlp.2.weight", {d, 4 * d});
    list.Add(at + "mlp.2.bias", {d});
    modulation(at, 6);
  }
  list.Add("backbone.output_layer.norm_final.weight", {d});
  list.Add("backbone.output_layer.linear.weight", {shape.vocab, d});
  list.Add("backbone.output_layer.linear.bias", {shape.vocab});
  modulation("backbone.output_layer.", 2);
  if (std::string(shape.model_type) != "bd3lm") return;
  list.Add("sampling_eps_min", {});
  list.Add("sampling_eps_max", {});
}

bool IsDit(const std::string& type) { return type == "mdlm" || type == "bd3lm"; }

}  // namespace

std::vector<ckpt::SafetensorsEntry> ForeignTensors(const ForeignShape& shape) {
  const std::string type = shape.model_type;
  TensorList list{shape.dtype};
  (type == "llada" ? AddLlada : IsDit(type) ? AddDit : AddLlama)(shape, list);
  return list.entries;
}

ForeignModel::ForeignModel(const ForeignShape& shape, unsigned seed)
    : shape_(shape), state_(seed * 1000) {
  const std::string type = shape.model_type;
  config = (type == "llada" ? LladaConfig : IsDit(type) ? DitConfig : LlamaConfig)(shape);
  for (const ckpt::SafetensorsEntry& entry : ForeignTensors(shape)) Add(entry.name, entry.shape);
  if (shape.storing == Storing::kTiedStoredTwice)
    Tensor("lm_head.weight").bytes = Tensor("model.embed_tokens.weight").bytes;
}

void ForeignModel::Add(const std::string& name, const Shape& shape) {
  std::mt19937 random(++state_);
  tensors.push_back(
      {{name, shape_.dtype, shape}, RandomBytes(shape.num_elements(), shape_.dtype, random)});
}

HfTensor& ForeignModel::Tensor(const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const HfTensor& tensor) {
    return tensor.entry.name == name;
  });
  ANYORDER_CHECK(found != tensors.end()) << name;
  return *found;
}

void ForeignModel::Remove(const std::string& name) {
  tensors.erase(tensors.begin() + (&Tensor(name) - tensors.data()));
}

void ForeignModel::Write(const std::string& directory, int num_files) const {
  std::filesystem::create_directories(directory);
  WriteFile(directory + "/config.json", config.dump(1));
  for (const std::string& name : ForeignFiles())
    WriteFile(absl::StrCat(directory, "/", name), absl::StrCat("{\"file\": \"", name, "\"}\n"));
  if (num_files == 1) return WriteSafetensors(directory + "/model.safetensors", tensors);
  Json map;
  for (int part = 0; part < num_files; ++part) {
    const std::string name =
        absl::StrCat("model-0000", part + 1, "-of-0000", num_files, ".safetensors");
    std::vector<HfTensor> held;
    for (size_t i = part; i < tensors.size(); i += num_files) {
      held.push_back(tensors[i]);
      map[held.back().entry.name] = name;
    }
    WriteSafetensors(absl::StrCat(directory, "/", name), held);
  }
  WriteFile(directory + "/model.safetensors.index.json", Json({{"weight_map", map}}).dump());
}

std::vector<std::string> ForeignFiles() {
  return {
      "tokenizer.json",      "tokenizer_config.json",  "special_tokens_map.json", "vocab.json",
      "merges.txt",          "generation_config.json", "chat_template.jinja",     "modeling_own.py",
      "configuration_own.py"};
}

}  // namespace anyorder::launcher
