// BERT (modeling_bert.py). The next-sentence head has its classes in the other order there: class 0
// is that B follows A.

#include "absl/strings/match.h"

#include "launcher/huggingface/families/bert_like.h"
#include "launcher/huggingface/families/task_heads.h"

namespace anyorder::launcher {
namespace {

constexpr char kBertPooler[] = "bert.pooler.dense";

constexpr const char* kBertFinetuning[] = {"bert_finetuning", "longformer_finetuning"};

class Bert : public BertLikeFamily {
 public:
  Names names() const override {
    return {.model_type = "bert",
            .architecture = "BertForMaskedLM",
            .bare_architecture = "BertModel",
            .prefix = "bert.",
            .takes_bare = true,
            .next_sentence_architecture = "BertForPreTraining",
            .pretraining = kBertObjectives,
            .finetuning = kBertFinetuning,
            .other_heads = kBertOtherHeads};
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
        DenseHead(
            "next-sentence head", "BertForPreTraining",
            "; or leave out objective.next_sentence, which needs them",
            {{"sequence_summary.summary", kBertPooler}, {"logits_proj", "cls.seq_relationship"}},
            HfHeadKind::kNextSentence),
        ClassesHead("BertForSequenceClassification", kBertPooler, "classifier"),
        ChoicesHead("BertForMultipleChoice", kBertPooler, "classifier"),
        SimpleSpansHead("BertForQuestionAnswering"),
        TagsHead("BertForTokenClassification")};
    return heads;
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
};

}  // namespace

const HfFamily& BertFamily() {
  static const Bert family;
  return family;
}

}  // namespace anyorder::launcher
