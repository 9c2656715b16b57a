// What RoBERTa and Longformer, whose authors went on from its weights, share beside bert_like.h:
// the names of the head, whose GELU is the exact one whatever `hidden_act` says, and positions that
// are counted from the row behind that of padding.

#pragma once

#include <vector>

#include "launcher/huggingface/families/bert_like.h"

namespace anyorder::launcher {

HfHead RobertaLanguageModelHead();

class RobertaLikeFamily : public BertLikeFamily {
 public:
  std::span<const char* const> finetuning() const override;
  void ReadConfig(HfConfigReader& reader, HfConfig& config) const override;
  void SetDefaults(const HfConfig& model, RunConfig& config) const override;
  void Check(const RunConfig& config, HfObstacles& obstacles) const override;

 protected:
  OutputNames output() const override {
    return {"lm_head.decoder.weight", "lm_head.decoder.bias", true};
  }
  bool pads_positions() const override { return true; }
};

}  // namespace anyorder::launcher
