// LLaDA (Nie et al. 2025; modeling_llada.py beside its weights): Llama's layers under the names of
// OLMo's code, of which it uses one combination of settings.

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "launcher/huggingface/families/hf_family.h"
#include "launcher/huggingface/families/llama_layers.h"

namespace anyorder::launcher {
namespace {

constexpr const char* kLladaObjectives[] = {"masked_diffusion", "block_diffusion", "eso_lm"};

// `ff_proj` is the gate, and `ff_out` of a block the way down.
constexpr LlamaLayerNames kLladaNames = {"attn_norm", "q_proj",  "k_proj",  "v_proj", "attn_out",
                                         "ff_norm",   "ff_proj", "up_proj", "ff_out"};

// A key that must be there, since another value holds where it is absent.
void FixedAndSaid(HfKeys& keys, const char* key, const Json& value) {
  if (keys.reader() != nullptr && keys.reader()->Find(key) == nullptr) {
    keys.reader()->unsupported().Add(
        absl::StrCat("'", key, "' is missing, which does not mean ", HfConfigReader::Text(value)));
  }
  keys.Fixed(key, value);
}

// What is absent from new files; older ones say it.
void ExpectLladaSettings(HfConfigReader& reader) {
  reader.Expect("bias_for_layer_norm", false);
  reader.Expect("layer_norm_with_affine", true);
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
            .is_in_transformers = false,
            .pretraining = kLladaObjectives};
  }
  void VisitKeys(HfKeys& keys) const override;
  void SetDefaults(const HfConfig& model, RunConfig& config) const override {
    config.objective.name = "masked_diffusion";
    config.sampling.bidirectional = false;
    config.sampling.any_order.stratified_rates = false;  // as in its training
    config.sampling.seq_len =
        model.max_length > 0 ? std::min<int64_t>(model.max_length, 4096) : 4096;
  }
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;
};

void Llada::VisitKeys(HfKeys& keys) const {
  HfConfig& config = keys.config;
  ModelConfig& model = keys.model;
  HfConfigReader* const reader = keys.reader();
  bool has_one_key_head = false;
  int64_t ratio = 4;
  if (reader != nullptr) {
    reader->Bool("multi_query_attention", has_one_key_head);
    reader->Size("mlp_ratio", 1, 1 << 10, ratio);
    ExpectLladaSettings(*reader);
  }
  SetLlamaLayers(keys);
  keys.Required("vocab_size", config.vocab_size);
  keys.Size("embedding_size", config.vocab_size, config.vocab_size);
  keys.Required("d_model", model.model_dim);
  keys.Required("n_layers", model.num_layers, HfKeys::kMaxLayers);
  keys.Required("n_heads", model.num_heads);
  keys.SplitWidth("n_heads", "d_model");
  if (has_one_key_head) model.num_kv_heads = 1;
  if (!has_one_key_head) VisitKeyHeads(keys, "n_kv_heads");
  keys.Size("mlp_hidden_size", model.ffn_dim, ratio * model.model_dim);
  keys.Size("max_sequence_length", config.max_length, 0);
  keys.Number("rms_norm_eps", model.layer_norm_epsilon, 1e-5);
  keys.Number("rope_theta", model.rope_base, 10000.0, 1.0, 1e30);
  FixedAndSaid(keys, "block_type", "llama");
  FixedAndSaid(keys, "activation_type", "silu");
  keys.Set(model.activation, kernels::Activation::kSilu, "activation_type");
  FixedAndSaid(keys, "layer_norm_type", "rms");
  FixedAndSaid(keys, "rope", true);
  keys.Write("rope_full_precision", true);
  keys.Fixed("alibi", false);
  keys.Fixed("attention_layer_norm", false,
             ": it normalises all heads together, and ours normalises each");
  keys.Fixed("include_bias", false);
  keys.Bool("include_qkv_bias", model.attention_biases, false);
  keys.Set(model.attention_output_bias, !model.attention_biases);
  keys.Fixed("input_emb_norm", false);
  keys.Fixed("scale_logits", false);
  keys.Bool("weight_tying", model.tie_embeddings, true);
  keys.Id("mask_token_id", config.ids.mask);
  keys.Id("eos_token_id", config.ids.eos);
  keys.Id("pad_token_id", config.ids.pad);
  keys.Rate("residual_dropout", model.dropout);
  keys.Write("embedding_dropout", model.dropout, HfKeys::In::kTrained);
  keys.Rate("attention_dropout", model.attention_dropout);
  keys.Range("init_std", model.init_range);
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
