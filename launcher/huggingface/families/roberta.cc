// RoBERTa (modeling_roberta.py).

#include "launcher/huggingface/families/roberta.h"

#include <algorithm>

#include "launcher/huggingface/families/task_heads.h"

namespace anyorder::launcher {
namespace {

class Roberta : public RobertaLikeFamily {
 public:
  Names names() const override {
    return {.model_type = "roberta",
            .architecture = "RobertaForMaskedLM",
            .bare_architecture = "RobertaModel",
            .prefix = "roberta.",
            .takes_bare = true,
            .pretraining = kBertObjectives,
            .finetuning = kRobertaFinetuning,
            .other_heads = kBertOtherHeads};
  }
  std::span<const HfHead> heads() const override {
    static const std::vector<HfHead> heads = RobertaHeads("Roberta", names().prefix);
    return heads;
  }
};

}  // namespace

std::vector<HfHead> RobertaHeads(const std::string& name, const std::string& prefix) {
  return {
      {"masked language model's head",
       name + "ForMaskedLM",
       "",
       {{"lm_head.dense.weight", "lm_head.dense.weight"},
        {"lm_head.dense.bias", "lm_head.dense.bias"},
        {"lm_head.layer_norm.weight", "lm_head.layer_norm.weight"},
        {"lm_head.layer_norm.bias", "lm_head.layer_norm.bias"},
        {"lm_loss.bias", "lm_head.bias"}}},
      ClassesHead(name + "ForSequenceClassification", "classifier.dense", "classifier.out_proj"),
      ChoicesHead(name + "ForMultipleChoice", prefix + "pooler.dense", "classifier"),
      SimpleSpansHead(name + "ForQuestionAnswering"),
      TagsHead(name + "ForTokenClassification")};
}

void RobertaLikeFamily::SetDefaults(const HfConfig& /*model*/, RunConfig& config) const {
  config.objective.name = "longformer";  // text without pairs
  SamplingConfig& sampling = config.sampling;
  sampling.seq_len = std::min<int64_t>(4096, config.model.max_positions) - 1;  // and CLS
  sampling.num_predict = std::max<int64_t>(1, sampling.seq_len * 15 / 100);
  sampling.spans = SpanKind::kSingle;
  sampling.bidirectional = false;
}

const HfFamily& RobertaFamily() {
  static const Roberta family;
  return family;
}

}  // namespace anyorder::launcher
