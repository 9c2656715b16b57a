// RoBERTa (modeling_roberta.py).

#include "launcher/huggingface/families/roberta.h"

#include <algorithm>

#include "launcher/huggingface/families/task_heads.h"

namespace anyorder::launcher {
namespace {

constexpr const char* kRobertaOtherHeads[] = {"roberta.pooler.",
                                              "pooler.",
                                              "classifier.",
                                              "qa_outputs.",
                                              "roberta.embeddings.position_ids",
                                              "embeddings.position_ids"};

class Roberta : public RobertaLikeFamily {
 public:
  Names names() const override {
    return {.model_type = "roberta",
            .architecture = "RobertaForMaskedLM",
            .bare_architecture = "RobertaModel",
            .prefix = "roberta.",
            .takes_bare = true};
  }
  std::span<const HfHead> heads() const override {
    static const HfHead heads[] = {
        RobertaLanguageModelHead(),
        ClassesHead("RobertaForSequenceClassification", "classifier.dense.weight",
                    "classifier.dense.bias", "classifier.out_proj.weight",
                    "classifier.out_proj.bias"),
        ChoicesHead("RobertaForMultipleChoice", "roberta.pooler.dense.weight",
                    "roberta.pooler.dense.bias", "classifier.weight", "classifier.bias"),
        SimpleSpansHead("RobertaForQuestionAnswering"), TagsHead("RobertaForTokenClassification")};
    return heads;
  }
  std::span<const char* const> other_heads() const override { return kRobertaOtherHeads; }
  void Check(const RunConfig& config, HfObstacles& obstacles) const override {
    RobertaLikeFamily::Check(config, obstacles);
    obstacles.Require(config.model.attention_windows.empty(), "model.attention_windows is set");
    obstacles.Require(!config.model.global_projections, "model.global_projections is true");
  }
};

}  // namespace

HfHead RobertaLanguageModelHead() {
  return {"masked language model's head",
          "RobertaForMaskedLM",
          "",
          {{"lm_head.dense.weight", "lm_head.dense.weight"},
           {"lm_head.dense.bias", "lm_head.dense.bias"},
           {"lm_head.layer_norm.weight", "lm_head.layer_norm.weight"},
           {"lm_head.layer_norm.bias", "lm_head.layer_norm.bias"},
           {"lm_loss.bias", "lm_head.bias"}}};
}

std::span<const char* const> RobertaLikeFamily::finetuning() const {
  static constexpr const char* kFinetuning[] = {"longformer_finetuning", "bert_finetuning"};
  return kFinetuning;
}

void RobertaLikeFamily::ReadConfig(HfConfigReader& reader, HfConfig& config) const {
  BertLikeFamily::ReadConfig(reader, config);
  reader.Expect("hidden_act", "gelu", ": the head has the exact GELU, and ours is the layers'");
}

void RobertaLikeFamily::SetDefaults(const HfConfig& /*model*/, RunConfig& config) const {
  config.objective.name = "longformer";  // text without pairs
  SamplingConfig& sampling = config.sampling;
  sampling.seq_len = std::min<int64_t>(4096, config.model.max_positions) - 1;  // and CLS
  sampling.num_predict = std::max<int64_t>(1, sampling.seq_len * 15 / 100);
  sampling.spans = SpanKind::kSingle;
  sampling.bidirectional = false;
}

void RobertaLikeFamily::Check(const RunConfig& config, HfObstacles& obstacles) const {
  BertLikeFamily::Check(config, obstacles);
  obstacles.Require(config.model.activation == kernels::Activation::kGeluErf,
                    "model.activation is not gelu_erf");
  obstacles.Require(!config.objective.next_sentence, "objective.next_sentence is true");
}

const HfFamily& RobertaFamily() {
  static const Roberta family;
  return family;
}

}  // namespace anyorder::launcher
