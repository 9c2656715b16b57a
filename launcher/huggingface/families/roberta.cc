// RoBERTa (modeling_roberta.py).

#include <algorithm>

#include "launcher/huggingface/families/bert_like.h"
#include "launcher/huggingface/families/task_heads.h"

namespace anyorder::launcher {
namespace {

constexpr const char* kRobertaFinetuning[] = {"longformer_finetuning", "bert_finetuning"};

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

}  // namespace

RobertaLikeFamily::RobertaLikeFamily(Names names, const std::string& classes)
    : names_(names), heads_(RobertaHeads(classes, names.prefix)) {
  names_.takes_bare = true;
  names_.pretraining = kBertObjectives;
  names_.finetuning = kRobertaFinetuning;
  names_.other_heads = kBertOtherHeads;
}

void RobertaLikeFamily::SetDefaults(const HfConfig& /*model*/, RunConfig& config) const {
  config.objective.name = "longformer";  // text without pairs
  config.sampling.seq_len = std::min<int64_t>(4096, config.model.max_positions);
}

const HfFamily& RobertaFamily() {
  static const RobertaLikeFamily family({.model_type = "roberta",
                                         .architecture = "RobertaForMaskedLM",
                                         .bare_architecture = "RobertaModel",
                                         .prefix = "roberta."},
                                        "Roberta");
  return family;
}

}  // namespace anyorder::launcher
