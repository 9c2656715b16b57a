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

constexpr const char* kXlnetPretraining[] = {"permutation_lm", "dae", "as_arm"};
constexpr const char* kXlnetFinetuning[] = {"xlnet_finetuning"};

// What models for other tasks than the run's have beside the network: sequence classification,
// multiple choice, token classification, questions.
constexpr const char* kXlnetOtherHeads[] = {"sequence_summary.", "logits_proj.",  "classifier.",
                                            "qa_outputs.",       "start_logits.", "end_logits.",
                                            "answer_class."};

// Some versions of transformers read one of the two names of the vocabulary's size, some the other.
void VisitXlnetVocabulary(HfKeys& keys) {
  int64_t& size = keys.config.vocab_size;
  for (const char* key : {"vocab_size", "n_token"}) keys.Write(key, size, HfKeys::In::kAll);
  HfConfigReader* const reader = keys.reader();
  if (reader == nullptr) return;
  int64_t n_token = 0;
  const bool has_token = reader->Size("n_token", 1, HfKeys::kMaxSize, n_token);
  size = n_token;
  const bool has_size = reader->Size("vocab_size", 1, HfKeys::kMaxSize, size);
  keys.Require(has_size || has_token, "'vocab_size' is missing");
  keys.Require(!has_token || n_token == size,
               absl::StrCat("'n_token' is ", n_token, " but 'vocab_size' is ", size));
}

// Says in an imported model's file that the summary is that of our heads, where the run has one.
void UpdateXlnetSummary(const ModelConfig& model, Json& json) {
  const TaskConfig& task = model.task;
  const bool has_summary = task.has_head() && !task.has_spans() && !task.has_tags();
  if (model.next_sentence_head || has_summary) {
    for (const auto& [key, value] : {std::pair<const char*, Json>{"summary_type", "last"},
                                     {"summary_activation", "tanh"},
                                     {"summary_use_proj", true}}) {
      json[key] = value;
    }
  }
  if (model.next_sentence_head) KeepLabels(2, json);
}

class Xlnet : public HfFamily {
 public:
  Names names() const override {
    return {.model_type = "xlnet",
            .architecture = "XLNetLMHeadModel",
            .bare_architecture = "XLNetModel",
            .prefix = kPrefix,
            .has_xlnet_tokenizer = true,
            .pretraining = kXlnetPretraining,
            .finetuning = kXlnetFinetuning,
            .other_heads = kXlnetOtherHeads};
  }
  std::span<const HfHead> heads() const override;
  void VisitKeys(HfKeys& keys) const override;
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;
};

std::span<const HfHead> Xlnet::heads() const {
  static const std::vector<HfHead> heads = [] {
    constexpr char kSummary[] = "sequence_summary.summary";
    DenseNames spans;
    for (const char* name : {"start_logits.dense", "end_logits.dense_0", "end_logits.LayerNorm",
                             "end_logits.dense_1", "answer_class.dense_0", "answer_class.dense_1"})
      spans.emplace_back(name, name);
    std::vector<HfHead> list = {
        {"language model's bias", "XLNetLMHeadModel", "", {{"lm_loss.bias", "lm_loss.bias"}}},
        DenseHead("next-sentence head", "XLNetForSequenceClassification",
                  "; or leave out objective.next_sentence, which needs them for its two classes",
                  {{kSummary, kSummary}, {"logits_proj", "logits_proj"}},
                  HfHeadKind::kNextSentence),
        ClassesHead("XLNetForSequenceClassification", kSummary, "logits_proj"),
        ChoicesHead("XLNetForMultipleChoice", kSummary, "logits_proj"),
        SimpleSpansHead("XLNetForQuestionAnsweringSimple"),
        TagsHead("XLNetForTokenClassification", /*has_dropout=*/false),
        DenseHead("conditional head of questions", "XLNetForQuestionAnswering", kOtherTask, spans,
                  HfHeadKind::kConditionalSpans)};
    list.back().names.pop_back();  // the last layer has no bias
    return list;
  }();
  return heads;
}

void Xlnet::VisitKeys(HfKeys& keys) const {
  HfConfig& config = keys.config;
  ModelConfig& model = keys.model;
  // A missing segment term is zero.
  keys.Replace(model.segments, Segments::kNone, Segments::kRelative);
  if (keys.updated() != nullptr) UpdateXlnetSummary(model, *keys.updated());
  VisitXlnetVocabulary(keys);
  keys.Required("d_model", model.model_dim);
  keys.Required("n_layer", model.num_layers, HfKeys::kMaxLayers);
  keys.Required("n_head", model.num_heads);
  keys.SplitWidth("n_head", "d_model");
  keys.Fixed("d_head", model.model_dim / model.num_heads, ": 'n_head' of them must be 'd_model'");
  keys.Names(model.head_dim, "d_head");
  keys.Required("d_inner", model.ffn_dim);
  keys.Activation("ff_activation", model.activation, "gelu", HfKeys::In::kTrained);
  if (keys.reader() != nullptr && model.activation == kernels::Activation::kGeluErf) {
    config.gelu_is_open = true;
    model.activation = kernels::Activation::kGeluTanh;
  }
  keys.Bool("untie_r", model.untie_r, true);
  keys.Fixed(
      "attn_type", "bi",
      ": it was trained to read one way only; set it to \"bi\" if these weights are to learn "
      "the other way, too");
  keys.Write("bi_data", false);
  keys.Size("clamp_len", model.clamp_len, -1, -1);
  if (model.clamp_len == 0) model.clamp_len = -1;  // either means no limit there
  keys.Fixed("same_length", false, ": set it to false if these weights may attend further");
  keys.Size("mem_len", model.mem_len, 384, 0, HfKeys::In::kTrained);
  keys.Write("reuse_len", config.reuse_len, HfKeys::In::kTrained);
  keys.Write("use_mems_eval", true);
  keys.Write("use_mems_train", false);
  keys.Rate("dropout", model.dropout);
  keys.Set(model.attention_dropout, model.dropout);  // they have one rate for everything
  keys.Range("initializer_range", model.init_range);
  keys.Number("layer_norm_eps", model.layer_norm_epsilon, 1e-12);
  // The summary of XLNetForSequenceClassification is that of our heads only with these values,
  // which are its defaults.
  keys.Summary("summary_type", "last", /*is_written=*/true);
  keys.Summary("summary_use_proj", true, /*is_written=*/true);
  keys.Summary("summary_activation", "tanh", /*is_written=*/true);
  keys.Summary("summary_proj_to_labels", false);
  keys.Write("summary_last_dropout", 0.1);
  keys.Write("start_n_top", 5);
  keys.Write("end_n_top", 5);
  keys.Fixed("tie_word_embeddings", true, ": an output of its own is not supported");
  keys.Id("bos_token_id", config.ids.bos);
  keys.Id("eos_token_id", config.ids.eos);
  keys.Id("pad_token_id", config.ids.pad);
}

// Relative biases are each layer's there, always, and so is a segment term: shared biases are
// repeated, a missing segment term is zero, which is the same function.
TensorTable Xlnet::Tensors(const ModelConfig& model, const ParameterLayout& layout) const {
  TensorList list(layout);
  for (const ParameterInfo& info : layout.parameters()) {
    const bool is_shared_bias = absl::StartsWith(info.name, kSharedBias);
    if (!is_shared_bias && !IsHeadParameter(info.name) && info.name != "lm_loss.bias")
      list.Plain(info.name, info.name);
  }
  for (FileTensor& tensor : HeadTensors(model, layout)) {
    // Only the classes for tasks lack it.
    if (tensor.name == "lm_loss.bias" && !model.task.has_head()) tensor.head = nullptr;
    list.Add(std::move(tensor));
  }
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string attention = absl::StrCat(kPrefix, "layer.", layer, ".rel_attn.");
    const Shape heads{model.num_heads, model.head_dim};
    const Shape pair{2, model.num_heads, model.head_dim};
    for (const char* bias : {"r_w_bias", "r_r_bias", "r_s_bias"}) {
      if (list.Contains(attention + bias)) continue;
      const std::string shared = absl::StrCat(kPrefix, bias);
      if (!list.Contains(shared)) {
        list.Add({attention + bias, heads, {TensorBlock::Zeros(heads[0], heads[1])}});
        continue;
      }
      FileTensor repeated = PlainTensor(layout.Find(shared), attention + bias);
      repeated.repeats =
          "untie_r is false in config.json, so that all layers share it; set untie_r to true";
      list.Add(std::move(repeated));
    }
    const std::string segments = attention + "seg_embed";
    if (!list.Contains(segments))
      list.Add({segments, pair, {TensorBlock::Zeros(2, model.num_heads * model.head_dim)}});
  }
  // Not of an adaptive softmax, which Check refuses.
  if (list.Contains("transformer.word_embedding.weight")) list.TiedOutput("lm_loss.weight");
  return list.Take();
}

}  // namespace

const HfFamily& XlnetFamily() {
  static const Xlnet family;
  return family;
}

}  // namespace anyorder::launcher
