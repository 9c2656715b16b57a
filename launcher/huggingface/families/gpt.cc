// GPT (modeling_openai.py) and GPT-2 (modeling_gpt2.py), which has LayerNorm before each sublayer
// and one more at the end.

#include <utility>

#include "absl/strings/str_cat.h"

#include "launcher/huggingface/families/hf_family.h"
#include "launcher/huggingface/families/task_heads.h"
#include "launcher/huggingface/families/tensor_list.h"

namespace anyorder::launcher {
namespace {

constexpr char kGptEmbedding[] = "transformer.word_embedding.weight";

constexpr HfKeyName kGptKeys[] = {
    {"num_layers", "n_layer"}, {"model_dim", "n_embd"},
    {"num_heads", "n_head"},   {"max_positions", "n_positions"},
    {"activation", "afn"},     {"layer_norm_epsilon", "layer_norm_epsilon"}};
constexpr HfKeyName kGpt2Keys[] = {{"num_layers", "n_layer"},
                                   {"model_dim", "n_embd"},
                                   {"num_heads", "n_head"},
                                   {"ffn_dim", "n_inner"},
                                   {"max_positions", "n_positions"},
                                   {"activation", "activation_function"},
                                   {"layer_norm_epsilon", "layer_norm_epsilon"}};

constexpr const char* kGptPretraining[] = {"gpt"};
constexpr const char* kGptFinetuning[] = {"gpt_finetuning"};

// Of other classes than the run's: multiple choice, sequence and token classification.
constexpr const char* kGptOtherHeads[] = {"multiple_choice_head.", "score.", "classifier."};

void ReadGptSizes(HfConfigReader& reader, HfConfig& config) {
  ModelConfig& model = config.model;
  reader.RequiredSize("n_layer", HfConfigReader::kMaxLayers, model.num_layers);
  reader.RequiredSize("n_embd", HfConfigReader::kMaxSize, model.model_dim);
  reader.RequiredSize("n_head", HfConfigReader::kMaxSize, model.num_heads);
  reader.RequiredSize("n_positions", HfConfigReader::kMaxSize, model.max_positions);
  reader.RequiredSize("vocab_size", HfConfigReader::kMaxSize, config.vocab_size);
  if (!reader.faults().empty()) return;
  reader.faults().Require(model.model_dim % model.num_heads == 0,
                          absl::StrCat("'n_embd' is ", model.model_dim,
                                       " but must be a multiple of 'n_head' = ", model.num_heads));
  model.head_dim = model.model_dim / model.num_heads;
  model.ffn_dim = 4 * model.model_dim;
}

// What config.json says the same of both.
void ReadGptSettings(HfConfigReader& reader, ModelConfig& model) {
  model.positions = Positions::kLearned;
  model.segments = Segments::kNone;
  model.attention_biases = true;
  model.softmax_bias = false;
  model.readout_dropout = false;
  model.mem_len = 0;
  model.layer_norm_epsilon = 1e-5;
  reader.Number("layer_norm_epsilon", 1e-30, 1.0, model.layer_norm_epsilon);
  reader.Number("initializer_range", 0.0, 1e3, model.init_range);
  reader.Number("resid_pdrop", 0.0, 0.999, model.dropout);
  reader.Number("attn_pdrop", 0.0, 0.999, model.attention_dropout);
  reader.Expect("tie_word_embeddings", true, ": an output of its own is not supported");
}

// The head of choices is one dense layer only with these values, which are the defaults.
void ReadGptSummary(HfConfigReader& reader, HfConfig& config) {
  FaultList faults;
  bool use_proj = true, proj_to_labels = true;
  reader.Bool("summary_use_proj", use_proj);
  reader.Bool("summary_proj_to_labels", proj_to_labels);
  faults.Require(use_proj, "'summary_use_proj' is false, not true");
  faults.Require(proj_to_labels, "'summary_proj_to_labels' is false, not true");
  faults.Require(reader.Find("summary_activation") == nullptr, "'summary_activation' is not null");
  config.other_summary = faults.Joined();
}

// Of a name of ours, in both.
void CheckGpt(const RunConfig& config, HfObstacles& obstacles) {
  const ModelConfig& model = config.model;
  obstacles.Require(
      model.num_heads * model.head_dim == model.model_dim,
      absl::StrCat("model.num_heads * model.head_dim is ", model.num_heads * model.head_dim,
                   ", not model.model_dim = ", model.model_dim));
  obstacles.Require(model.positions == Positions::kLearned, "model.positions is not learned");
  obstacles.Require(model.segments == Segments::kNone, "model.segments is not none");
  obstacles.Require(model.attention_biases, "model.attention_biases is false");
  obstacles.Require(!model.scale_embedding, "model.scale_embedding is true");
  obstacles.Require(!model.has_distance_bias(), "model.position_bias is on");
  obstacles.Require(!model.embedding_layer_norm, "model.embedding_layer_norm is true");
  obstacles.Require(!model.softmax_bias, "model.softmax_bias is true");
  obstacles.Require(!model.mlm_head, "model.mlm_head is true");
  obstacles.Require(!model.adaptive(), "model.softmax is adaptive");
  obstacles.Require(!model.global_projections, "model.global_projections is true");
  obstacles.Require(model.attention_windows.empty(), "model.attention_windows is set");
  obstacles.Require(model.mem_len == 0, "model.mem_len is not 0");
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
            .takes_bare = true};
  }
  std::span<const HfKeyName> keys() const override {
    if (is_gpt2_) return kGpt2Keys;
    return kGptKeys;
  }
  std::span<const HfHead> heads() const override;
  std::span<const char* const> finetuning() const override { return kGptFinetuning; }
  std::span<const char* const> other_heads() const override { return kGptOtherHeads; }

  void ReadConfig(HfConfigReader& reader, HfConfig& config) const override;
  void SetDefaults(const HfConfig& /*model*/, RunConfig& config) const override {
    config.objective.name = "gpt";
    config.sampling.bidirectional = false;
    config.sampling.seq_len = config.model.max_positions;
  }
  void Check(const RunConfig& config, HfObstacles& obstacles) const override;
  Json NewConfig(const RunConfig& config, int64_t vocab_size, const VocabIds& ids) const override;
  void UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                    Json& json) const override;
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;

 private:
  const bool is_gpt2_;
};

std::span<const HfHead> GptFamily::heads() const {
  constexpr const char* kScore = "score.weight";
  constexpr const char* kChoices = "multiple_choice_head.summary.";
  static const std::string weight = absl::StrCat(kChoices, "weight");
  static const std::string bias = absl::StrCat(kChoices, "bias");
  static const HfHead gpt[] = {
      ClassesHead("OpenAIGPTForSequenceClassification", nullptr, nullptr, kScore, nullptr),
      ChoicesHead("OpenAIGPTDoubleHeadsModel", nullptr, nullptr, weight.c_str(), bias.c_str())};
  static const HfHead gpt2[] = {
      ClassesHead("GPT2ForSequenceClassification", nullptr, nullptr, kScore, nullptr),
      ChoicesHead("GPT2DoubleHeadsModel", nullptr, nullptr, weight.c_str(), bias.c_str())};
  return is_gpt2_ ? std::span<const HfHead>(gpt2) : std::span<const HfHead>(gpt);
}

void GptFamily::ReadConfig(HfConfigReader& reader, HfConfig& config) const {
  ModelConfig& model = config.model;
  ReadGptSizes(reader, config);
  ReadGptSettings(reader, model);
  ReadGptSummary(reader, config);
  if (is_gpt2_) {
    model.layer_norm = LayerNormPlace::kPre;
    reader.Size("n_inner", 1, HfConfigReader::kMaxSize, model.ffn_dim);
    reader.Activation("activation_function", "gelu_new", model.activation);
    reader.Expect("scale_attn_weights", true);
    reader.Expect("scale_attn_by_inverse_layer_idx", false);
    reader.Expect("add_cross_attention", false);
    return;
  }
  // There, "gelu" names the tanh approximation.
  std::string activation = "gelu";
  reader.String("afn", activation);
  model.activation =
      activation == "relu" ? kernels::Activation::kRelu : kernels::Activation::kGeluTanh;
  reader.unsupported().Require(
      activation == "gelu" || activation == "relu",
      absl::StrCat("'afn' is \"", activation, "\" but must be \"gelu\" or \"relu\""));
}

void GptFamily::Check(const RunConfig& config, HfObstacles& obstacles) const {
  const ModelConfig& model = config.model;
  CheckObjective(config, kGptPretraining, obstacles);
  CheckGpt(config, obstacles);
  CheckPlainLayers(model, /*is_tied=*/true, obstacles);
  obstacles.Require(model.pre_norm() == is_gpt2_,
                    is_gpt2_ ? "model.layer_norm is post" : "model.layer_norm is pre");
  if (is_gpt2_) return;
  obstacles.Require(model.activation != kernels::Activation::kGeluErf,
                    "model.activation is gelu_erf");
  obstacles.Require(model.ffn_dim == 4 * model.model_dim,
                    absl::StrCat("model.ffn_dim is ", model.ffn_dim,
                                 ", not 4 * model.model_dim = ", 4 * model.model_dim));
}

HfFamily::Json GptFamily::NewConfig(const RunConfig& config, int64_t vocab_size,
                                    const VocabIds& ids) const {
  const ModelConfig& model = config.model;
  Json json = {{"model_type", names().model_type},
               {"vocab_size", vocab_size},
               {"n_positions", model.max_positions},
               {"n_embd", model.model_dim},
               {"n_layer", model.num_layers},
               {"n_head", model.num_heads},
               {"layer_norm_epsilon", model.layer_norm_epsilon},
               {"tie_word_embeddings", true},
               {"bos_token_id", ids.bos},
               {"eos_token_id", ids.eos},
               {"pad_token_id", ids.pad}};
  if (is_gpt2_) {
    json["n_inner"] = model.ffn_dim;
    json["scale_attn_weights"] = true;
  }
  return json;
}

void GptFamily::UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                             Json& json) const {
  const ModelConfig& model = config.model;
  json["vocab_size"] = vocab_size;
  if (!trained) return;
  for (const char* key : {"embd_pdrop", "resid_pdrop"}) json[key] = model.dropout;
  json["attn_pdrop"] = model.attention_dropout;
  json["initializer_range"] = model.init_range;
  if (is_gpt2_) {
    json["activation_function"] = HfActivation(model.activation);
  } else {
    json["afn"] = model.activation == kernels::Activation::kRelu ? "relu" : "gelu";
  }
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
  list.Plain(kGptEmbedding, prefix + (is_gpt2_ ? "wte.weight" : "tokens_embed.weight"));
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
  list.Alias(kGptEmbedding, "lm_head.weight",
             "it must be the token embedding, an output of its own is not supported; save the "
             "model with tied embeddings");
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
