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

constexpr HfKeyName kLlamaKeys[] = {{"num_layers", "num_hidden_layers"},
                                    {"model_dim", "hidden_size"},
                                    {"num_heads", "num_attention_heads"},
                                    {"num_kv_heads", "num_key_value_heads"},
                                    {"head_dim", "head_dim"},
                                    {"ffn_dim", "intermediate_size"},
                                    {"activation", "hidden_act"},
                                    {"layer_norm_epsilon", "rms_norm_eps"},
                                    {"rope_base", "rope_theta"},
                                    {"rope_scaling", "rope_scaling"},
                                    {"attention_biases", "attention_bias"},
                                    {"ffn_biases", "mlp_bias"},
                                    {"tie_embeddings", "tie_word_embeddings"}};

// Objectives whose network is the content stream alone: such a class has no query stream.
constexpr const char* kLlamaObjectives[] = {"gpt", "causal_lm", "masked_diffusion",
                                            "block_diffusion", "eso_lm"};

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

void ReadLlamaSizes(HfConfigReader& reader, HfConfig& config) {
  ModelConfig& model = config.model;
  reader.RequiredSize("num_hidden_layers", HfConfigReader::kMaxLayers, model.num_layers);
  reader.RequiredSize("hidden_size", HfConfigReader::kMaxSize, model.model_dim);
  reader.RequiredSize("num_attention_heads", HfConfigReader::kMaxSize, model.num_heads);
  reader.RequiredSize("intermediate_size", HfConfigReader::kMaxSize, model.ffn_dim);
  reader.RequiredSize("vocab_size", HfConfigReader::kMaxSize, config.vocab_size);
  reader.Size("max_position_embeddings", 1, HfConfigReader::kMaxSize, config.max_length);
  if (!reader.faults().empty()) return;
  ReadKeyHeads(reader, "num_key_value_heads", model);
  if (reader.Size("head_dim", 1, HfConfigReader::kMaxSize, model.head_dim)) return;
  model.head_dim = model.model_dim / model.num_heads;
  reader.faults().Require(model.num_heads * model.head_dim == model.model_dim,
                          absl::StrCat("'num_attention_heads' is ", model.num_heads,
                                       " but must divide 'hidden_size' = ", model.model_dim,
                                       ", or 'head_dim' be there"));
}

// Whether some layers see the newest keys alone.
bool HasSlidingWindow(HfConfigReader& reader, const ModelConfig& model) {
  if (const HfConfigReader::Json* const types = reader.Find("layer_types")) {
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
void ReadFfnResidual(HfConfigReader& reader, HfConfig& config) {
  std::string form = "normed";
  reader.String(kFfnResidual, form);
  reader.faults().Require(
      form == "normed" || form == "input",
      absl::StrCat("'", kFfnResidual, "' is \"", form, "\" but must be \"normed\" or \"input\""));
  config.model.ffn_residual = form == "input" ? FfnResidual::kInput : FfnResidual::kNormed;
  config.ffn_residual_is_open = reader.Find(kFfnResidual) == nullptr;
}

class LlamaFamilyOf : public HfFamily {
 public:
  LlamaFamilyOf(Kind kind, const Names& names) : kind_(kind), names_(names) {}

  Names names() const override { return names_; }
  std::span<const HfKeyName> keys() const override { return kLlamaKeys; }

  void ReadConfig(HfConfigReader& reader, HfConfig& config) const override;
  void SetDefaults(const HfConfig& model, RunConfig& config) const override;
  void Check(const RunConfig& config, HfObstacles& obstacles) const override;
  Json NewConfig(const RunConfig& config, int64_t vocab_size, const VocabIds& ids) const override;
  void UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                    Json& json) const override;
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;

 private:
  bool is_qwen2() const { return kind_ == Kind::kQwen2 || kind_ == Kind::kDream; }
  bool is_llama() const { return kind_ == Kind::kLlama || kind_ == Kind::kA3; }

  const Kind kind_;
  const Names names_;
};

void LlamaFamilyOf::ReadConfig(HfConfigReader& reader, HfConfig& config) const {
  ModelConfig& model = config.model;
  SetLlamaLayers(model);
  ReadLlamaSizes(reader, config);
  model.layer_norm_epsilon = 1e-6;
  reader.Number("rms_norm_eps", 1e-30, 1.0, model.layer_norm_epsilon);
  reader.Number("initializer_range", 0.0, 1e3, model.init_range);
  reader.Number("attention_dropout", 0.0, 0.999, model.attention_dropout);
  ReadRope(reader, model);
  model.tie_embeddings = false;
  reader.Bool("tie_word_embeddings", model.tie_embeddings);
  reader.Expect("hidden_act", "silu");
  model.qk_norm = kind_ == Kind::kQwen3;
  if (is_qwen2()) {
    model.attention_biases = true;
    model.attention_output_bias = false;
  } else {
    reader.Bool("attention_bias", model.attention_biases);
  }
  // A3 begins with Llama's weights, whichever form its layers have.
  config.ffn_residual_is_open = kind_ == Kind::kLlama;
  if (kind_ == Kind::kA3) ReadFfnResidual(reader, config);
  if (is_llama()) return reader.Bool("mlp_bias", model.ffn_biases);
  reader.Expect("use_mrope", false);
  reader.unsupported().Require(!HasSlidingWindow(reader, model),
                               "a sliding window is in effect ('use_sliding_window', "
                               "'max_window_layers', 'layer_types'), which no key of ours says");
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

void LlamaFamilyOf::Check(const RunConfig& config, HfObstacles& obstacles) const {
  const ModelConfig& model = config.model;
  if (kind_ == Kind::kA3) {
    CheckObjective(config, kA3Objectives, obstacles);
    obstacles.Require(
        model.num_heads * model.head_dim == model.model_dim,
        absl::StrCat("model.num_heads * model.head_dim is ", model.num_heads * model.head_dim,
                     ", not model.model_dim = ", model.model_dim));
  } else {
    CheckObjective(config, kLlamaObjectives, obstacles);
    obstacles.Require(model.ffn_residual == FfnResidual::kInput, "model.ffn_residual is normed");
  }
  CheckLlamaLayers(model, obstacles);
  obstacles.Require(model.qk_norm == (kind_ == Kind::kQwen3),
                    absl::StrCat("model.qk_norm is ", model.qk_norm ? "true" : "false"));
  if (is_qwen2()) {
    obstacles.Require(model.attention_biases, "model.attention_biases is false");
    obstacles.Require(!model.attention_biases || !model.attention_output_bias,
                      "model.attention_output_bias is true");
  } else {
    obstacles.Require(model.attention_output_bias, "model.attention_output_bias is false");
  }
  if (!is_llama()) obstacles.Require(!model.ffn_biases, "model.ffn_biases is true");
}

HfFamily::Json LlamaFamilyOf::NewConfig(const RunConfig& config, int64_t vocab_size,
                                        const VocabIds& ids) const {
  const ModelConfig& model = config.model;
  Json json = {{"model_type", names_.model_type},
               {"vocab_size", vocab_size},
               {"hidden_size", model.model_dim},
               {"num_hidden_layers", model.num_layers},
               {"num_attention_heads", model.num_heads},
               {"num_key_value_heads", model.kv_heads()},
               {"head_dim", model.head_dim},
               {"intermediate_size", model.ffn_dim},
               {"hidden_act", "silu"},
               {"rms_norm_eps", model.layer_norm_epsilon},
               {"max_position_embeddings", config.sampling.seq_len},
               {"tie_word_embeddings", model.tie_embeddings},
               {"bos_token_id", ids.bos},
               {"eos_token_id", ids.eos},
               {"pad_token_id", ids.pad}};
  WriteRope(model, json);
  if (!is_qwen2()) json["attention_bias"] = model.attention_biases;
  if (is_llama()) json["mlp_bias"] = model.ffn_biases;
  if (kind_ == Kind::kDream) json["mask_token_id"] = ids.mask;
  return json;
}

void LlamaFamilyOf::UpdateConfig(const RunConfig& config, int64_t /*vocab_size*/, bool trained,
                                 Json& json) const {
  const bool is_input = config.model.ffn_residual == FfnResidual::kInput;
  if (kind_ == Kind::kA3 && (is_input || json.contains(kFfnResidual)))
    json[kFfnResidual] = is_input ? "input" : "normed";
  if (!trained) return;
  json["attention_dropout"] = config.model.attention_dropout;
  json["initializer_range"] = config.model.init_range;
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
  static const LlamaFamilyOf family(Kind::kLlama, {.model_type = "llama",
                                                   .architecture = "LlamaForCausalLM",
                                                   .bare_architecture = "LlamaModel",
                                                   .prefix = "model.",
                                                   .keeps_storage = true});
  return family;
}

const HfFamily& A3Family() {
  static const LlamaFamilyOf family(Kind::kA3, {.model_type = "llama",
                                                .architecture = "LlamaTwoStreamForCausalLM",
                                                .bare_architecture = "LlamaTwoStreamModel",
                                                .prefix = "model.",
                                                .keeps_storage = true,
                                                .class_file = "A3's llama_xlnet.py"});
  return family;
}

const HfFamily& Qwen2Family() {
  static const LlamaFamilyOf family(Kind::kQwen2, {.model_type = "qwen2",
                                                   .architecture = "Qwen2ForCausalLM",
                                                   .bare_architecture = "Qwen2Model",
                                                   .prefix = "model.",
                                                   .keeps_storage = true});
  return family;
}

const HfFamily& Qwen3Family() {
  static const LlamaFamilyOf family(Kind::kQwen3, {.model_type = "qwen3",
                                                   .architecture = "Qwen3ForCausalLM",
                                                   .bare_architecture = "Qwen3Model",
                                                   .prefix = "model.",
                                                   .keeps_storage = true});
  return family;
}

const HfFamily& DreamFamily() {
  static const LlamaFamilyOf family(Kind::kDream, {.model_type = "Dream",
                                                   .architecture = "DreamModel",
                                                   .bare_architecture = "DreamBaseModel",
                                                   .prefix = "model.",
                                                   .keeps_storage = true,
                                                   .is_in_transformers = false});
  return family;
}

}  // namespace anyorder::launcher
