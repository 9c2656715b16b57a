// Llama (modeling_llama.py), Qwen2 (modeling_qwen2.py), Qwen3 (modeling_qwen3.py), Dream, a Qwen2
// that reads both ways (modeling_dream.py beside its weights), and A3, a Llama with a second stream
// of queries (llama_xlnet.py of PKU-ML/Any-order-Any-subset-AR). They differ in biases, in the
// normalisation of queries and keys, and in what an import goes on to train.

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "launcher/huggingface/families/hf_family.h"
#include "launcher/huggingface/families/llama_layers.h"

namespace anyorder::launcher {
namespace {

// Objectives whose network is the content stream alone: such a class has no query stream.
constexpr const char* kLlamaObjectives[] = {
    "gpt", "gpt_sft", "causal_lm", "masked_diffusion", "block_diffusion", "eso_lm"};

// Those that read queries out, which begin as `query_embed` and are nobody's keys.
constexpr const char* kA3Objectives[] = {"a3", "as_arm"};

// A key of A3's config.json that only we read and write: released layers have one form.
constexpr char kFfnResidual[] = "ffn_residual";

constexpr LlamaLayerNames kLlamaNames = {
    "input_layernorm",  "self_attn.q_proj", "self_attn.k_proj",
    "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};

// Longer texts than this take more memory than small steps from good weights are worth.
constexpr int64_t kDefaultLength = 2048;

enum class Kind { kLlama, kQwen2, kQwen3, kDream, kA3 };

// Whether some layers of Qwen see the newest keys alone.
bool HasSlidingWindow(HfConfigReader& reader, const ModelConfig& model) {
  if (const Json* const types = reader.Find("layer_types")) {
    return types->is_array() && std::any_of(types->begin(), types->end(), [](const auto& type) {
             return type != "full_attention";
           });
  }
  bool is_used = false;
  reader.Bool("use_sliding_window", is_used);
  int64_t first = 28;  // layers before it attend to all keys
  reader.Size("max_window_layers", 0, HfConfigReader::kMaxSize, first);
  return is_used && reader.Find("sliding_window") != nullptr && first < model.num_layers;
}

// A layer of A3 as released is added to its normalised input; a layer of Llama's kind by this key.
void VisitFfnResidual(HfKeys& keys) {
  const bool is_input = keys.model.ffn_residual == FfnResidual::kInput;
  HfConfigReader* const reader = keys.reader();
  if (reader == nullptr) {
    const bool is_said = keys.updated() != nullptr && keys.updated()->contains(kFfnResidual);
    if (is_input || is_said)
      keys.Write(kFfnResidual, EnumName(keys.model.ffn_residual), HfKeys::In::kAll);
    return;
  }
  std::string form = "normed";
  reader->String(kFfnResidual, form);
  reader->faults().Require(
      ParseEnum(form, keys.model.ffn_residual),
      absl::StrCat("'", kFfnResidual, "' is \"", form, "\" but must be \"normed\" or \"input\""));
  keys.config.ffn_residual_is_open = reader->Find(kFfnResidual) == nullptr;
}

// A3's class has no heads of another width.
void VisitHeadWidth(bool is_free, HfKeys& keys) {
  ModelConfig& model = keys.model;
  if (!is_free) {
    keys.SplitWidth("num_attention_heads", "hidden_size");
    return keys.Fixed("head_dim", model.head_dim);
  }
  keys.Size("head_dim", model.head_dim, model.model_dim / model.num_heads);
  const bool is_said = keys.reader() != nullptr && keys.reader()->Find("head_dim") != nullptr;
  keys.Require(is_said || model.num_heads * model.head_dim == model.model_dim,
               absl::StrCat("'num_attention_heads' is ", model.num_heads,
                            " but must divide 'hidden_size' = ", model.model_dim,
                            ", or 'head_dim' be there"));
}

class LlamaFamilyOf : public HfFamily {
 public:
  LlamaFamilyOf(Kind kind, const char* type, const char* architecture, const char* bare)
      : kind_(kind),
        names_({.model_type = type,
                .architecture = architecture,
                .bare_architecture = bare,
                .prefix = "model.",
                .keeps_storage = true,
                .is_in_transformers = kind != Kind::kDream,
                .class_file = kind == Kind::kA3 ? "A3's llama_xlnet.py" : nullptr}) {
    names_.pretraining = kLlamaObjectives;
    if (kind == Kind::kA3) names_.pretraining = kA3Objectives;
  }

  Names names() const override { return names_; }
  void VisitKeys(HfKeys& keys) const override;
  void SetDefaults(const HfConfig& model, RunConfig& config) const override;
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;

 private:
  bool is_qwen2() const { return kind_ == Kind::kQwen2 || kind_ == Kind::kDream; }
  bool is_llama() const { return kind_ == Kind::kLlama || kind_ == Kind::kA3; }

  const Kind kind_;
  Names names_;
};

void LlamaFamilyOf::VisitKeys(HfKeys& keys) const {
  HfConfig& config = keys.config;
  ModelConfig& model = keys.model;
  SetLlamaLayers(keys);
  keys.Required("vocab_size", config.vocab_size);
  keys.Required("hidden_size", model.model_dim);
  keys.Required("num_hidden_layers", model.num_layers, HfKeys::kMaxLayers);
  keys.Required("num_attention_heads", model.num_heads);
  VisitKeyHeads(keys, "num_key_value_heads");
  VisitHeadWidth(/*is_free=*/kind_ != Kind::kA3, keys);
  keys.Required("intermediate_size", model.ffn_dim);
  keys.Fixed("hidden_act", "silu");
  keys.Set(model.activation, kernels::Activation::kSilu, "hidden_act");
  keys.Number("rms_norm_eps", model.layer_norm_epsilon, 1e-6);
  keys.Size("max_position_embeddings", config.max_length, 0);
  keys.Bool("tie_word_embeddings", model.tie_embeddings, false);
  keys.Id("bos_token_id", config.ids.bos);
  keys.Id("eos_token_id", config.ids.eos);
  keys.Id("pad_token_id", config.ids.pad);
  VisitRope(keys);
  keys.Set(model.qk_norm, kind_ == Kind::kQwen3);
  if (is_qwen2()) {
    keys.Set(model.attention_biases, true);
    keys.Set(model.attention_output_bias, false);
  } else {
    keys.Bool("attention_bias", model.attention_biases, false);
  }
  if (is_llama()) keys.Bool("mlp_bias", model.ffn_biases, false);
  if (HfConfigReader* const reader = keys.reader(); reader != nullptr && !is_llama()) {
    reader->Expect("use_mrope", false);
    reader->unsupported().Require(!HasSlidingWindow(*reader, model),
                                  "a sliding window is in effect ('use_sliding_window', "
                                  "'max_window_layers', 'layer_types'), which no key of ours says");
  }
  if (kind_ == Kind::kDream) keys.Id("mask_token_id", config.ids.mask);
  // A3 begins with Llama's weights, whichever form its layers have.
  config.ffn_residual_is_open = kind_ == Kind::kLlama;
  if (kind_ == Kind::kA3) VisitFfnResidual(keys);
  keys.Rate("attention_dropout", model.attention_dropout);
  keys.Range("initializer_range", model.init_range);
}

void LlamaFamilyOf::SetDefaults(const HfConfig& model, RunConfig& config) const {
  config.objective.name = kind_ == Kind::kDream ? "masked_diffusion"
                          : kind_ == Kind::kA3  ? "a3"
                                                : "gpt";
  config.sampling.bidirectional = false;
  config.sampling.seq_len =
      model.max_length > 0 ? std::min(model.max_length, kDefaultLength) : kDefaultLength;
  AnyOrderConfig& any_order = config.sampling.any_order;
  if (kind_ == Kind::kA3) {  // the last stage of its training
    any_order.group_len_min = any_order.group_len_max = 8;
    any_order.group_order = GroupOrder::kRandom;
  }
  if (kind_ != Kind::kDream) return;
  any_order.stratified_rates = false;  // as in its training
  any_order.keep_first_token = any_order.shifted_readout = true;
  any_order.loss_weight = LossWeight::kCart;
}

TensorTable LlamaFamilyOf::Tensors(const ModelConfig& model, const ParameterLayout& layout) const {
  TensorList list(layout);
  list.Plain("transformer.word_embedding.weight", "model.embed_tokens.weight");
  if (kind_ == Kind::kA3) list.Plain("transformer.mask_emb", "model.query_embed");
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string theirs = absl::StrCat("model.layers.", layer, ".");
    AddLlamaLayer(theirs, kLlamaNames, layer, list);
    const std::string ours = absl::StrCat("transformer.layer.", layer, ".rel_attn.");
    if (model.qk_norm) {
      list.Plain(ours + "q_norm.weight", theirs + "self_attn.q_norm.weight");
      list.Plain(ours + "k_norm.weight", theirs + "self_attn.k_norm.weight");
    }
    // Frequencies, which older versions of transformers store.
    list.Buffer(theirs + "self_attn.rotary_emb.inv_freq", {model.head_dim / 2});
  }
  list.Plain("transformer.layer_norm.weight", "model.norm.weight");
  AddLlamaOutput(model, "lm_head.weight",
                 "'tie_word_embeddings' of config.json makes both one matrix; set it to false if "
                 "the model has an output of its own, or remove this tensor",
                 list);
  return list.Take();
}

}  // namespace

const HfFamily& LlamaFamily() {
  static const LlamaFamilyOf family(Kind::kLlama, "llama", "LlamaForCausalLM", "LlamaModel");
  return family;
}

const HfFamily& A3Family() {
  static const LlamaFamilyOf family(Kind::kA3, "llama", "LlamaTwoStreamForCausalLM",
                                    "LlamaTwoStreamModel");
  return family;
}

const HfFamily& Qwen2Family() {
  static const LlamaFamilyOf family(Kind::kQwen2, "qwen2", "Qwen2ForCausalLM", "Qwen2Model");
  return family;
}

const HfFamily& Qwen3Family() {
  static const LlamaFamilyOf family(Kind::kQwen3, "qwen3", "Qwen3ForCausalLM", "Qwen3Model");
  return family;
}

const HfFamily& DreamFamily() {
  static const LlamaFamilyOf family(Kind::kDream, "Dream", "DreamModel", "DreamBaseModel");
  return family;
}

}  // namespace anyorder::launcher
