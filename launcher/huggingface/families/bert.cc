// BERT (modeling_bert.py). The next-sentence head has its classes in the other order there: class 0
// is that B follows A.

#include "absl/strings/match.h"

#include "launcher/huggingface/families/bert_like.h"
#include "launcher/huggingface/families/task_heads.h"

namespace anyorder::launcher {
namespace {

// Of other tasks: sequence and token classification, questions; the pooler where the run has no
// next-sentence head; and position_ids, which older files have among the weights.
constexpr const char* kBertOtherHeads[] = {"bert.pooler.",
                                           "pooler.",
                                           "cls.seq_relationship.",
                                           "classifier.",
                                           "qa_outputs.",
                                           "bert.embeddings.position_ids",
                                           "embeddings.position_ids"};

constexpr const char* kBertFinetuning[] = {"bert_finetuning", "longformer_finetuning"};

class Bert : public BertLikeFamily {
 public:
  Names names() const override {
    return {.model_type = "bert",
            .architecture = "BertForMaskedLM",
            .bare_architecture = "BertModel",
            .prefix = "bert.",
            .takes_bare = true,
            .next_sentence_architecture = "BertForPreTraining"};
  }
  std::span<const HfHead> heads() const override {
    static const HfHead heads[] = {
        {"masked language model's head",
         "BertForMaskedLM",
         "",
         {{"lm_head.dense.weight", "cls.predictions.transform.dense.weight"},
          {"lm_head.dense.bias", "cls.predictions.transform.dense.bias"},
          {"lm_head.layer_norm.weight", "cls.predictions.transform.LayerNorm.weight"},
          {"lm_head.layer_norm.bias", "cls.predictions.transform.LayerNorm.bias"},
          {"lm_loss.bias", "cls.predictions.bias"}}},
        {"next-sentence head",
         "BertForPreTraining",
         "; or leave out objective.next_sentence, which needs them",
         {{"sequence_summary.summary.weight", "bert.pooler.dense.weight"},
          {"sequence_summary.summary.bias", "bert.pooler.dense.bias"},
          {"logits_proj.weight", "cls.seq_relationship.weight"},
          {"logits_proj.bias", "cls.seq_relationship.bias"}},
         HfHeadKind::kNextSentence},
        ClassesHead("BertForSequenceClassification", "bert.pooler.dense.weight",
                    "bert.pooler.dense.bias", "classifier.weight", "classifier.bias"),
        ChoicesHead("BertForMultipleChoice", "bert.pooler.dense.weight", "bert.pooler.dense.bias",
                    "classifier.weight", "classifier.bias"),
        SimpleSpansHead("BertForQuestionAnswering"),
        TagsHead("BertForTokenClassification")};
    return heads;
  }
  std::span<const char* const> other_heads() const override { return kBertOtherHeads; }
  std::span<const char* const> finetuning() const override { return kBertFinetuning; }

  void Check(const RunConfig& config, HfObstacles& obstacles) const override {
    BertLikeFamily::Check(config, obstacles);
    obstacles.Require(config.model.attention_windows.empty(), "model.attention_windows is set");
    obstacles.Require(!config.model.global_projections, "model.global_projections is true");
  }
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override {
    TensorTable tensors = BertLikeFamily::Tensors(model, layout);
    for (FileTensor& tensor : tensors) {
      if (!absl::StartsWith(tensor.name, "cls.seq_relationship.")) continue;
      const TensorBlock both = tensor.blocks[0];
      tensor.blocks = {both.Rows(1, 1), both.Rows(0, 1)};
    }
    return tensors;
  }

 protected:
  OutputNames output() const override {
    return {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"};
  }
  bool pads_positions() const override { return false; }
};

}  // namespace

const HfFamily& BertFamily() {
  static const Bert family;
  return family;
}

}  // namespace anyorder::launcher
