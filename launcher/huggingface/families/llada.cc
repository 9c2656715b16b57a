// LLaDA (Nie et al. 2025; modeling_llada.py beside its weights): Llama's layers under the names of
// OLMo's code, of which it uses one combination of settings.

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "launcher/huggingface/families/hf_family.h"
#include "launcher/huggingface/families/llama_layers.h"

namespace anyorder::launcher {
namespace {

constexpr HfKeyName kLladaKeys[] = {{"num_layers", "n_layers"},
                                    {"model_dim", "d_model"},
                                    {"num_heads", "n_heads"},
                                    {"num_kv_heads", "n_kv_heads"},
                                    {"ffn_dim", "mlp_hidden_size"},
                                    {"activation", "activation_type"},
                                    {"layer_norm_epsilon", "rms_norm_eps"},
                                    {"rope_base", "rope_theta"},
                                    {"attention_biases", "include_qkv_bias"},
                                    {"tie_embeddings", "weight_tying"}};

constexpr const char* kLladaObjectives[] = {"masked_diffusion", "block_diffusion", "eso_lm"};

// `ff_proj` is the gate, and `ff_out` of a block the way down.
constexpr LlamaLayerNames kLladaNames = {"attn_norm", "q_proj",  "k_proj",  "v_proj", "attn_out",
                                         "ff_norm",   "ff_proj", "up_proj", "ff_out"};

void ReadLladaSizes(HfConfigReader& reader, HfConfig& config) {
  ModelConfig& model = config.model;
  reader.RequiredSize("n_layers", HfConfigReader::kMaxLayers, model.num_layers);
  reader.RequiredSize("d_model", HfConfigReader::kMaxSize, model.model_dim);
  reader.RequiredSize("n_heads", HfConfigReader::kMaxSize, model.num_heads);
  reader.RequiredSize("vocab_size", HfConfigReader::kMaxSize, config.vocab_size);
  reader.Size("embedding_size", 1, HfConfigReader::kMaxSize, config.vocab_size);
  reader.Size("max_sequence_length", 1, HfConfigReader::kMaxSize, config.max_length);
  if (!reader.faults().empty()) return;
  bool one_key_head = false;
  reader.Bool("multi_query_attention", one_key_head);
  if (one_key_head) model.num_kv_heads = 1;
  if (!one_key_head) ReadKeyHeads(reader, "n_kv_heads", model);
  int64_t ratio = 4;
  reader.Size("mlp_ratio", 1, 1 << 10, ratio);
  model.ffn_dim = ratio * model.model_dim;
  reader.Size("mlp_hidden_size", 1, HfConfigReader::kMaxSize, model.ffn_dim);
  model.head_dim = model.model_dim / model.num_heads;
  reader.faults().Require(model.num_heads * model.head_dim == model.model_dim,
                          absl::StrCat("'n_heads' is ", model.num_heads,
                                       " but must divide 'd_model' = ", model.model_dim));
}

// What must be said, since another value holds where it is absent.
void RequireSetting(HfConfigReader& reader, const char* key, const HfFamily::Json& expected) {
  if (reader.Find(key) == nullptr) {
    reader.unsupported().Add(absl::StrCat("'", key, "' is missing, which does not mean ",
                                          HfConfigReader::Text(expected)));
  }
  reader.Expect(key, expected);
}

// What is the same in all models of LLaDA.
void CheckLladaSettings(HfConfigReader& reader) {
  RequireSetting(reader, "block_type", "llama");
  RequireSetting(reader, "activation_type", "silu");
  RequireSetting(reader, "layer_norm_type", "rms");
  RequireSetting(reader, "rope", true);
  reader.Expect("alibi", false);
  reader.Expect("include_bias", false);
  reader.Expect("bias_for_layer_norm", false);
  reader.Expect("layer_norm_with_affine", true);
  reader.Expect("attention_layer_norm", false,
                ": it normalises all heads together, and ours normalises each");
  reader.Expect("input_emb_norm", false);
  reader.Expect("scale_logits", false);
  reader.Expect("block_group_size", 1);
  reader.Expect("clip_qkv", nullptr);
}

class Llada : public HfFamily {
 public:
  Names names() const override {
    return {.model_type = "llada",
            .architecture = "LLaDAModelLM",
            .bare_architecture = "LLaDAModel",
            .prefix = "model.",
            .keeps_storage = true,
            .is_in_transformers = false};
  }
  std::span<const HfKeyName> keys() const override { return kLladaKeys; }

  void ReadConfig(HfConfigReader& reader, HfConfig& config) const override;
  void SetDefaults(const HfConfig& model, RunConfig& config) const override {
    config.objective.name = "masked_diffusion";
    config.sampling.bidirectional = false;
    config.sampling.any_order.stratified_rates = false;  // as in its training
    config.sampling.seq_len =
        model.max_length > 0 ? std::min<int64_t>(model.max_length, 4096) : 4096;
  }
  void Check(const RunConfig& config, HfObstacles& obstacles) const override;
  Json NewConfig(const RunConfig& config, int64_t vocab_size, const VocabIds& ids) const override;
  void UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                    Json& json) const override;
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;
};

void Llada::ReadConfig(HfConfigReader& reader, HfConfig& config) const {
  ModelConfig& model = config.model;
  SetLlamaLayers(model);
  ReadLladaSizes(reader, config);
  CheckLladaSettings(reader);
  model.layer_norm_epsilon = 1e-5;
  reader.Number("rms_norm_eps", 1e-30, 1.0, model.layer_norm_epsilon);
  reader.Number("rope_theta", 1.0, 1e30, model.rope_base);
  reader.Number("init_std", 0.0, 1e3, model.init_range);
  reader.Number("residual_dropout", 0.0, 0.999, model.dropout);
  reader.Number("attention_dropout", 0.0, 0.999, model.attention_dropout);
  reader.Bool("include_qkv_bias", model.attention_biases);
  if (model.attention_biases) model.attention_output_bias = false;
  reader.Bool("weight_tying", model.tie_embeddings);
}

void Llada::Check(const RunConfig& config, HfObstacles& obstacles) const {
  const ModelConfig& model = config.model;
  CheckObjective(config, kLladaObjectives, obstacles);
  CheckLlamaLayers(model, obstacles);
  obstacles.Require(
      model.num_heads * model.head_dim == model.model_dim,
      absl::StrCat("model.num_heads * model.head_dim is ", model.num_heads * model.head_dim,
                   ", not model.model_dim = ", model.model_dim));
  obstacles.Require(!model.qk_norm, "model.qk_norm is true");
  obstacles.Require(!model.ffn_biases, "model.ffn_biases is true");
  obstacles.Require(model.ffn_residual == FfnResidual::kInput, "model.ffn_residual is normed");
  obstacles.Require(!model.attention_biases || !model.attention_output_bias,
                    "model.attention_output_bias is true");
  obstacles.Require(model.rope_scaling == RopeScaling::kNone, "model.rope_scaling is on");
}

HfFamily::Json Llada::NewConfig(const RunConfig& config, int64_t vocab_size,
                                const VocabIds& ids) const {
  const ModelConfig& model = config.model;
  return {{"model_type", "llada"},
          {"vocab_size", vocab_size},
          {"embedding_size", vocab_size},
          {"d_model", model.model_dim},
          {"n_layers", model.num_layers},
          {"n_heads", model.num_heads},
          {"n_kv_heads", model.kv_heads()},
          {"mlp_hidden_size", model.ffn_dim},
          {"max_sequence_length", config.sampling.seq_len},
          {"rms_norm_eps", model.layer_norm_epsilon},
          {"rope_theta", model.rope_base},
          {"block_type", "llama"},
          {"activation_type", "silu"},
          {"layer_norm_type", "rms"},
          {"rope", true},
          {"rope_full_precision", true},
          {"alibi", false},
          {"attention_layer_norm", false},
          {"include_bias", false},
          {"include_qkv_bias", model.attention_biases},
          {"input_emb_norm", false},
          {"scale_logits", false},
          {"weight_tying", model.tie_embeddings},
          {"mask_token_id", ids.mask},
          {"eos_token_id", ids.eos},
          {"pad_token_id", ids.pad}};
}

void Llada::UpdateConfig(const RunConfig& config, int64_t /*vocab_size*/, bool trained,
                         Json& json) const {
  if (!trained) return;
  for (const char* key : {"residual_dropout", "embedding_dropout"})
    json[key] = config.model.dropout;
  json["attention_dropout"] = config.model.attention_dropout;
  json["init_std"] = config.model.init_range;
}

TensorTable Llada::Tensors(const ModelConfig& model, const ParameterLayout& layout) const {
  TensorList list(layout);
  const std::string prefix = "model.transformer.";
  list.Plain("transformer.word_embedding.weight", prefix + "wte.weight");
  for (int64_t layer = 0; layer < model.num_layers; ++layer)
    AddLlamaLayer(absl::StrCat(prefix, "blocks.", layer, "."), kLladaNames, layer, list);
  list.Plain("transformer.layer_norm.weight", prefix + "ln_f.weight");
  AddLlamaOutput(model, "model.transformer.ff_out.weight",
                 "'weight_tying' of config.json makes both one matrix; set it to false if the "
                 "model has an output of its own, or remove this tensor",
                 list);
  return list.Take();
}

}  // namespace

const HfFamily& LladaFamily() {
  static const Llada family;
  return family;
}

}  // namespace anyorder::launcher
