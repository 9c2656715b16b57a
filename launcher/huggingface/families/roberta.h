// What RoBERTa and Longformer, whose authors went on from its weights, share beside bert_like.h:
// the names of the head, whose GELU is the exact one whatever `hidden_act` says, and positions that
// are counted from the row behind that of padding.

#pragma once

#include <string>
#include <vector>

#include "launcher/huggingface/families/bert_like.h"

namespace anyorder::launcher {

// The heads of the classes that begin with `name`, whose tensors begin with `prefix`.
std::vector<HfHead> RobertaHeads(const std::string& name, const std::string& prefix);

inline constexpr const char* kRobertaFinetuning[] = {"longformer_finetuning", "bert_finetuning"};

class RobertaLikeFamily : public BertLikeFamily {
 public:
  void SetDefaults(const HfConfig& model, RunConfig& config) const override;

 protected:
  OutputNames output() const override {
    return {"lm_head.decoder.weight", "lm_head.decoder.bias", true};
  }
  bool is_roberta() const override { return true; }
};

}  // namespace anyorder::launcher
