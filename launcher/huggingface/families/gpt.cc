// GPT (modeling_openai.py) and GPT-2 (modeling_gpt2.py), which has LayerNorm before each sublayer
// and one more at the end.

#include <utility>

#include "absl/strings/str_cat.h"

#include "launcher/huggingface/families/hf_family.h"
#include "launcher/huggingface/families/task_heads.h"

namespace anyorder::launcher {
namespace {

constexpr const char* kGptPretraining[] = {"gpt", "gpt_sft"};
constexpr const char* kGptFinetuning[] = {"gpt_finetuning"};

// Of other classes than the run's: multiple choice, sequence and token classification.
constexpr const char* kGptOtherHeads[] = {"multiple_choice_head.", "score.", "classifier."};

// The tanh approximation is "gelu" in GPT's config.json.
void VisitGptActivation(HfKeys& keys) {
  kernels::Activation& activation = keys.model.activation;
  keys.Names(activation, "afn");
  std::string name = activation == kernels::Activation::kRelu ? "relu" : "gelu";
  keys.Write("afn", name, HfKeys::In::kTrained);
  HfConfigReader* const reader = keys.reader();
  if (reader == nullptr) return;
  reader->String("afn", name);
  activation = name == "relu" ? kernels::Activation::kRelu : kernels::Activation::kGeluTanh;
  reader->unsupported().Require(
      name == "gelu" || name == "relu",
      absl::StrCat("'afn' is \"", name, "\" but must be \"gelu\" or \"relu\""));
}

std::vector<HfHead> GptHeads(const std::string& name) {
  return {ClassesHead(name + "ForSequenceClassification", "", "score", /*has_bias=*/false),
          ChoicesHead(name + "DoubleHeadsModel", "", "multiple_choice_head.summary")};
}

// Both: they differ in the names of some tensors and keys, and in where LayerNorm stands.
class GptFamily : public HfFamily {
 public:
  explicit GptFamily(bool is_gpt2) : is_gpt2_(is_gpt2) {}

  Names names() const override {
    return {.model_type = is_gpt2_ ? "gpt2" : "openai-gpt",
            .architecture = is_gpt2_ ? "GPT2LMHeadModel" : "OpenAIGPTLMHeadModel",
            .bare_architecture = is_gpt2_ ? "GPT2Model" : "OpenAIGPTModel",
            .prefix = "transformer.",
            .takes_bare = true,
            .pretraining = kGptPretraining,
            .finetuning = kGptFinetuning,
            .other_heads = kGptOtherHeads};
  }
  std::span<const HfHead> heads() const override;
  void VisitKeys(HfKeys& keys) const override;
  void SetDefaults(const HfConfig& /*model*/, RunConfig& config) const override {
    config.objective.name = "gpt";
    config.sampling.bidirectional = false;
    config.sampling.seq_len = config.model.max_positions;
  }
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;

 private:
  const bool is_gpt2_;
};

std::span<const HfHead> GptFamily::heads() const {
  static const std::vector<HfHead> gpt = GptHeads("OpenAIGPT"), gpt2 = GptHeads("GPT2");
  return is_gpt2_ ? gpt2 : gpt;
}

void GptFamily::VisitKeys(HfKeys& keys) const {
  HfConfig& config = keys.config;
  ModelConfig& model = keys.model;
  keys.Set(model.positions, Positions::kLearned);
  keys.Set(model.segments, Segments::kNone);
  keys.Set(model.attention_biases, true);
  keys.Set(model.softmax_bias, false);
  keys.Set(model.readout_dropout, false);
  keys.Set(model.mem_len, int64_t{0});
  if (is_gpt2_) keys.Set(model.layer_norm, LayerNormPlace::kPre);
  keys.Required("vocab_size", config.vocab_size);
  keys.Required("n_positions", model.max_positions);
  keys.Required("n_embd", model.model_dim);
  keys.Required("n_layer", model.num_layers, HfKeys::kMaxLayers);
  keys.Required("n_head", model.num_heads);
  keys.SplitWidth("n_head", "n_embd");
  keys.Number("layer_norm_epsilon", model.layer_norm_epsilon, 1e-5);
  keys.Fixed("tie_word_embeddings", true, ": an output of its own is not supported");
  keys.Id("bos_token_id", config.ids.bos);
  keys.Id("eos_token_id", config.ids.eos);
  keys.Id("pad_token_id", config.ids.pad);
  if (is_gpt2_) {
    keys.Size("n_inner", model.ffn_dim, 4 * model.model_dim);
    keys.Fixed("scale_attn_weights", true);
  } else {
    keys.Set(model.ffn_dim, 4 * model.model_dim);
  }
  if (keys.reader() != nullptr && is_gpt2_) {
    keys.reader()->Expect("scale_attn_by_inverse_layer_idx", false);
    keys.reader()->Expect("add_cross_attention", false);
  }
  // The head of choices is one dense layer only with these values, which are the defaults.
  keys.Summary("summary_use_proj", true);
  keys.Summary("summary_proj_to_labels", true);
  keys.Summary("summary_activation", nullptr);
  keys.Write("embd_pdrop", model.dropout, HfKeys::In::kTrained);
  keys.Rate("resid_pdrop", model.dropout);
  keys.Rate("attn_pdrop", model.attention_dropout);
  keys.Range("initializer_range", model.init_range);
  if (!is_gpt2_) return VisitGptActivation(keys);
  keys.Activation("activation_function", model.activation, "gelu_new", HfKeys::In::kTrained);
}

// Masks and position numbers, which older versions of transformers store.
void AddGptBuffers(const ModelConfig& model, TensorList& list) {
  const int64_t positions = model.max_positions;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string attention = absl::StrCat("transformer.h.", layer, ".attn.");
    list.Buffer(attention + "bias", {1, 1, positions, positions});
    list.Buffer(attention + "masked_bias", {});
  }
  list.Buffer("transformer.position_ids", {positions});
}

// Weights are [in, out] there; those of query, key and value stand side by side.
TensorTable GptFamily::Tensors(const ModelConfig& model, const ParameterLayout& layout) const {
  TensorList list(layout);
  const std::string prefix = "transformer.";
  list.Plain(prefix + "word_embedding.weight",
             prefix + (is_gpt2_ ? "wte.weight" : "tokens_embed.weight"));
  list.Plain(prefix + "position_embedding.weight",
             prefix + (is_gpt2_ ? "wpe.weight" : "positions_embed.weight"));
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string ours = absl::StrCat(prefix, "layer.", layer, ".");
    const std::string attention = ours + "rel_attn.";
    const std::string theirs = absl::StrCat(prefix, "h.", layer, ".");
    list.Pair(attention + "layer_norm", theirs + "ln_1");
    list.SideBySide({attention + "q", attention + "k", attention + "v"},
                    theirs + "attn.c_attn.weight");
    list.Below({attention + "q_bias", attention + "k_bias", attention + "v_bias"},
               theirs + "attn.c_attn.bias");
    list.Turned({attention + "o"}, theirs + "attn.c_proj.weight");
    list.Plain(attention + "o_bias", theirs + "attn.c_proj.bias");
    list.Pair(ours + "ff.layer_norm", theirs + "ln_2");
    for (const auto& [name, conv] :
         {std::pair("layer_1", "c_fc"), std::pair("layer_2", "c_proj")}) {
      list.Turned({absl::StrCat(ours, "ff.", name, ".weight")},
                  absl::StrCat(theirs, "mlp.", conv, ".weight"));
      list.Plain(absl::StrCat(ours, "ff.", name, ".bias"),
                 absl::StrCat(theirs, "mlp.", conv, ".bias"));
    }
  }
  if (is_gpt2_) list.Pair(prefix + "layer_norm", prefix + "ln_f");
  for (FileTensor& tensor : HeadTensors(model, layout)) list.Add(std::move(tensor));
  AddGptBuffers(model, list);
  list.TiedOutput("lm_head.weight");
  return list.Take();
}

}  // namespace

const HfFamily& OpenAiGptFamily() {
  static const GptFamily family(/*is_gpt2=*/false);
  return family;
}

const HfFamily& Gpt2Family() {
  static const GptFamily family(/*is_gpt2=*/true);
  return family;
}

}  // namespace anyorder::launcher
