// XLNet (modeling_xlnet.py). Our names and shapes are XLNet's.

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "launcher/huggingface/families/hf_family.h"
#include "launcher/huggingface/families/task_heads.h"

namespace anyorder::launcher {
namespace {

constexpr char kPrefix[] = "transformer.";
constexpr char kSharedBias[] = "transformer.r_";

constexpr HfKeyName kXlnetKeys[] = {{"num_layers", "n_layer"},
                                    {"model_dim", "d_model"},
                                    {"num_heads", "n_head"},
                                    {"head_dim", "d_head"},
                                    {"ffn_dim", "d_inner"},
                                    {"activation", "ff_activation"},
                                    {"layer_norm_epsilon", "layer_norm_eps"},
                                    {"untie_r", "untie_r"},
                                    {"clamp_len", "clamp_len"}};

constexpr const char* kXlnetPretraining[] = {"permutation_lm", "dae", "as_arm"};
constexpr const char* kXlnetFinetuning[] = {"xlnet_finetuning"};

// What models for other tasks than the run's have beside the network: sequence classification,
// multiple choice, token classification, questions.
constexpr const char* kXlnetOtherHeads[] = {"sequence_summary.", "logits_proj.",  "classifier.",
                                            "qa_outputs.",       "start_logits.", "end_logits.",
                                            "answer_class."};

void ReadXlnetSizes(HfConfigReader& reader, HfConfig& config) {
  ModelConfig& model = config.model;
  FaultList& faults = reader.faults();
  reader.RequiredSize("n_layer", HfConfigReader::kMaxLayers, model.num_layers);
  reader.RequiredSize("d_model", HfConfigReader::kMaxSize, model.model_dim);
  reader.RequiredSize("n_head", HfConfigReader::kMaxSize, model.num_heads);
  reader.RequiredSize("d_inner", HfConfigReader::kMaxSize, model.ffn_dim);
  int64_t n_token = 0;
  const bool has_size = reader.Size("vocab_size", 1, HfConfigReader::kMaxSize, config.vocab_size);
  const bool has_token = reader.Size("n_token", 1, HfConfigReader::kMaxSize, n_token);
  if (!has_size && has_token) config.vocab_size = n_token;
  if (!faults.empty()) return;
  faults.Require(has_size || has_token, "'vocab_size' is missing");
  faults.Require(
      !has_size || !has_token || n_token == config.vocab_size,
      absl::StrCat("'n_token' is ", n_token, " but 'vocab_size' is ", config.vocab_size));
  model.head_dim = model.model_dim / model.num_heads;
  reader.Size("d_head", 1, HfConfigReader::kMaxSize, model.head_dim);
  faults.Require(model.num_heads * model.head_dim == model.model_dim,
                 absl::StrCat("'n_head' * 'd_head' is ", model.num_heads, " * ", model.head_dim,
                              " but must be 'd_model' = ", model.model_dim));
}

void ReadXlnetSettings(HfConfigReader& reader, HfConfig& config) {
  ModelConfig& model = config.model;
  reader.Bool("untie_r", model.untie_r);
  reader.Size("clamp_len", -1, HfConfigReader::kMaxSize, model.clamp_len);
  if (model.clamp_len == 0) model.clamp_len = -1;  // either means no limit there
  reader.Number("layer_norm_eps", 1e-30, 1.0, model.layer_norm_epsilon);
  reader.Number("initializer_range", 0.0, 1e3, model.init_range);
  reader.Number("dropout", 0.0, 0.999, model.dropout);
  model.attention_dropout = model.dropout;  // they have one rate for everything
  reader.Size("mem_len", 0, HfConfigReader::kMaxSize, model.mem_len);
}

// What makes it another function than ours.
void ReadXlnetKind(HfConfigReader& reader, HfConfig& config) {
  std::string attention = "bi";
  bool same_length = false, ties_embeddings = true;
  reader.String("attn_type", attention);
  reader.Bool("same_length", same_length);
  reader.Bool("tie_word_embeddings", ties_embeddings);
  FaultList& faults = reader.unsupported();
  faults.Require(
      attention == "bi",
      absl::StrCat("'attn_type' is \"", attention,
                   "\", not \"bi\": it was trained to read one way only; set it to \"bi\" "
                   "if these weights are to learn the other way, too"));
  faults.Require(!same_length,
                 "'same_length' is true: set it to false if these weights may attend further");
  faults.Require(ties_embeddings,
                 "'tie_word_embeddings' is false: an output of its own is not supported");
  reader.Activation("ff_activation", "gelu", config.model.activation);
  if (config.model.activation != kernels::Activation::kGeluErf) return;
  config.gelu_is_open = true;
  config.model.activation = kernels::Activation::kGeluTanh;
}

// The summary of XLNetForSequenceClassification is the next-sentence head only with these values,
// which are its defaults.
void ReadXlnetSummary(const HfConfigReader::Json& json, HfConfig& config) {
  HfConfigReader reader(json);
  FaultList& faults = reader.faults();
  std::string type = "last", activation = "tanh";
  bool use_proj = true, proj_to_labels = false;
  reader.String("summary_type", type);
  reader.String("summary_activation", activation);
  reader.Bool("summary_use_proj", use_proj);
  reader.Bool("summary_proj_to_labels", proj_to_labels);
  // Here, null means none.
  if (json.contains("summary_activation") && json["summary_activation"].is_null())
    activation = "none";
  faults.Require(type == "last", absl::StrCat("'summary_type' is \"", type, "\", not \"last\""));
  faults.Require(activation == "tanh",
                 absl::StrCat("'summary_activation' is \"", activation, "\", not \"tanh\""));
  faults.Require(use_proj, "'summary_use_proj' is false, not true");
  faults.Require(!proj_to_labels, "'summary_proj_to_labels' is true, not false");
  config.other_summary = faults.Joined();
}

// The summary that the next-sentence head and the pooler are.
void SetXlnetSummary(HfFamily::Json& json) {
  for (const auto& [key, value] : {std::pair<const char*, HfFamily::Json>{"summary_type", "last"},
                                   {"summary_activation", "tanh"},
                                   {"summary_use_proj", true}}) {
    json[key] = value;
  }
}

class Xlnet : public HfFamily {
 public:
  Names names() const override {
    return {.model_type = "xlnet",
            .architecture = "XLNetLMHeadModel",
            .bare_architecture = "XLNetModel",
            .prefix = kPrefix,
            .has_xlnet_tokenizer = true};
  }
  std::span<const HfKeyName> keys() const override { return kXlnetKeys; }
  std::span<const HfHead> heads() const override;
  std::span<const char* const> other_heads() const override { return kXlnetOtherHeads; }
  std::span<const char* const> finetuning() const override { return kXlnetFinetuning; }

  void ReadConfig(HfConfigReader& reader, HfConfig& config) const override {
    ReadXlnetSizes(reader, config);
    ReadXlnetSettings(reader, config);
    ReadXlnetKind(reader, config);
    ReadXlnetSummary(reader.json(), config);
  }
  void Check(const RunConfig& config, HfObstacles& obstacles) const override;
  Json NewConfig(const RunConfig& config, int64_t vocab_size, const VocabIds& ids) const override;
  void UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                    Json& json) const override;
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;
};

std::span<const HfHead> Xlnet::heads() const {
  constexpr const char* kAsItIs[] = {
      "start_logits.dense.weight", "start_logits.dense.bias",     "end_logits.dense_0.weight",
      "end_logits.dense_0.bias",   "end_logits.LayerNorm.weight", "end_logits.LayerNorm.bias",
      "end_logits.dense_1.weight", "end_logits.dense_1.bias",     "answer_class.dense_0.weight",
      "answer_class.dense_0.bias", "answer_class.dense_1.weight"};
  static const std::vector<HfHead> heads = [&] {
    std::vector<HfHead> list = {
        {"language model's bias", "XLNetLMHeadModel", "", {{"lm_loss.bias", "lm_loss.bias"}}},
        {"next-sentence head",
         "XLNetForSequenceClassification",
         "; or leave out objective.next_sentence, which needs them for its two classes",
         {{"sequence_summary.summary.weight", "sequence_summary.summary.weight"},
          {"sequence_summary.summary.bias", "sequence_summary.summary.bias"},
          {"logits_proj.weight", "logits_proj.weight"},
          {"logits_proj.bias", "logits_proj.bias"}},
         HfHeadKind::kNextSentence},
        ClassesHead("XLNetForSequenceClassification", "sequence_summary.summary.weight",
                    "sequence_summary.summary.bias", "logits_proj.weight", "logits_proj.bias"),
        ChoicesHead("XLNetForMultipleChoice", "sequence_summary.summary.weight",
                    "sequence_summary.summary.bias", "logits_proj.weight", "logits_proj.bias"),
        {"conditional head of questions",
         "XLNetForQuestionAnswering",
         kOtherTask,
         {},
         HfHeadKind::kConditionalSpans},
        SimpleSpansHead("XLNetForQuestionAnsweringSimple"),
        TagsHead("XLNetForTokenClassification", /*has_dropout=*/false)};
    for (const char* const name : kAsItIs) list[4].names.emplace_back(name, name);
    return list;
  }();
  return heads;
}

void Xlnet::Check(const RunConfig& config, HfObstacles& obstacles) const {
  const ModelConfig& model = config.model;
  CheckObjective(config, kXlnetPretraining, obstacles);
  obstacles.Require(
      model.num_heads * model.head_dim == model.model_dim,
      absl::StrCat("model.num_heads * model.head_dim is ", model.num_heads * model.head_dim,
                   ", not model.model_dim = ", model.model_dim));
  CheckPlainLayers(model, /*is_tied=*/true, obstacles);
  obstacles.Require(!model.scale_embedding, "model.scale_embedding is true");
  obstacles.Require(model.relative_positions(), "model.positions is not relative");
  obstacles.Require(!model.has_distance_bias(), "model.position_bias is on");
  obstacles.Require(model.segments != Segments::kLearned, "model.segments is learned");
  obstacles.Require(!model.pre_norm(), "model.layer_norm is pre");
  obstacles.Require(!model.embedding_layer_norm, "model.embedding_layer_norm is true");
  obstacles.Require(!model.attention_biases, "model.attention_biases is true");
  obstacles.Require(model.softmax_bias, "model.softmax_bias is false");
  obstacles.Require(!model.mlm_head, "model.mlm_head is true");
  obstacles.Require(!model.adaptive(), "model.softmax is adaptive");
  obstacles.Require(model.attention_windows.empty(), "model.attention_windows is set");
}

HfFamily::Json Xlnet::NewConfig(const RunConfig& config, int64_t vocab_size,
                                const VocabIds& ids) const {
  const ModelConfig& model = config.model;
  return {{"model_type", "xlnet"},
          {"vocab_size", vocab_size},
          {"n_token", vocab_size},
          {"d_model", model.model_dim},
          {"n_layer", model.num_layers},
          {"n_head", model.num_heads},
          {"d_head", model.head_dim},
          {"d_inner", model.ffn_dim},
          {"ff_activation", HfActivation(model.activation)},
          {"untie_r", model.untie_r},
          {"attn_type", "bi"},
          {"bi_data", false},
          {"clamp_len", model.clamp_len},
          {"same_length", false},
          {"mem_len", model.mem_len},
          {"reuse_len", config.sampling.reuse_len},
          {"use_mems_eval", true},
          {"use_mems_train", false},
          {"dropout", model.dropout},
          {"initializer_range", model.init_range},
          {"layer_norm_eps", model.layer_norm_epsilon},
          {"summary_type", "last"},
          {"summary_use_proj", true},
          {"summary_activation", "tanh"},
          {"summary_last_dropout", 0.1},
          {"start_n_top", 5},
          {"end_n_top", 5},
          {"tie_word_embeddings", true},
          {"bos_token_id", ids.bos},
          {"eos_token_id", ids.eos},
          {"pad_token_id", ids.pad}};
}

void Xlnet::UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                         Json& json) const {
  const TaskConfig& task = config.model.task;
  const bool has_summary = task.has_head() && !task.has_spans() && !task.has_tags();
  if (config.model.next_sentence_head || has_summary) SetXlnetSummary(json);
  if (config.model.next_sentence_head) KeepLabels(2, json);
  // Some versions of transformers read one of the two names of the vocabulary's size, some the
  // other.
  json["vocab_size"] = vocab_size;
  json["n_token"] = vocab_size;
  if (!trained) return;
  json["ff_activation"] = HfActivation(config.model.activation);
  json["mem_len"] = config.model.mem_len;
  json["reuse_len"] = config.sampling.reuse_len;
  json["dropout"] = config.model.dropout;
  json["initializer_range"] = config.model.init_range;
}

// Relative biases are each layer's there, always, and so is a segment term: shared biases are
// repeated, a missing segment term is zero, which is the same function.
TensorTable Xlnet::Tensors(const ModelConfig& model, const ParameterLayout& layout) const {
  TensorTable tensors;
  for (const ParameterInfo& info : layout.parameters()) {
    const bool is_shared_bias = absl::StartsWith(info.name, kSharedBias);
    if (!is_shared_bias && !IsHeadParameter(info.name) && info.name != "lm_loss.bias")
      tensors.push_back(PlainTensor(info, info.name));
  }
  for (FileTensor& tensor : HeadTensors(model, layout)) {
    // Only the classes for tasks lack it.
    if (tensor.name == "lm_loss.bias" && !model.task.has_head()) tensor.head = nullptr;
    tensors.push_back(std::move(tensor));
  }
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string attention = absl::StrCat(kPrefix, "layer.", layer, ".rel_attn.");
    const Shape heads{model.num_heads, model.head_dim};
    const Shape pair{2, model.num_heads, model.head_dim};
    for (const char* bias : {"r_w_bias", "r_r_bias", "r_s_bias"}) {
      if (layout.Contains(attention + bias)) continue;
      const std::string shared = absl::StrCat(kPrefix, bias);
      if (!layout.Contains(shared)) {
        tensors.push_back({attention + bias, heads, {TensorBlock::Zeros(heads[0], heads[1])}});
        continue;
      }
      tensors.push_back(PlainTensor(layout.Find(shared), attention + bias));
      tensors.back().repeats =
          "untie_r is false in config.json, so that all layers share it; set untie_r to true";
    }
    const std::string segments = attention + "seg_embed";
    if (!layout.Contains(segments))
      tensors.push_back(
          {segments, pair, {TensorBlock::Zeros(2, model.num_heads * model.head_dim)}});
  }
  const char* const embedding = "transformer.word_embedding.weight";
  if (!layout.Contains(embedding)) return tensors;  // of an adaptive softmax, which Check refuses
  tensors.push_back(PlainTensor(layout.Find(embedding), "lm_loss.weight"));
  tensors.back().is_alias = true;
  tensors.back().repeats =
      "it must be the word embedding, an output of its own is not supported; save the model with "
      "tied embeddings";
  return tensors;
}

}  // namespace

const HfFamily& XlnetFamily() {
  static const Xlnet family;
  return family;
}

}  // namespace anyorder::launcher
