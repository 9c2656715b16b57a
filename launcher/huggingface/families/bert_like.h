// What BERT, RoBERTa and Longformer share: config.json, and the tensors of embeddings and layers.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/huggingface/families/hf_family.h"

namespace anyorder::launcher {

class BertLikeFamily : public HfFamily {
 public:
  std::span<const HfKeyName> keys() const override;
  void ReadConfig(HfConfigReader& reader, HfConfig& config) const override;
  void SetDefaults(const HfConfig& model, RunConfig& config) const override;
  void Check(const RunConfig& config, HfObstacles& obstacles) const override;
  Json NewConfig(const RunConfig& config, int64_t vocab_size, const VocabIds& ids) const override;
  void UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                    Json& json) const override;
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;
  void FitTensors(const HfConfig& config, TensorTable& tensors) const override;

 protected:
  // Names of the head's output weight, a second one of the embedding, and of a second one of its
  // bias `lm_loss.bias`.
  struct OutputNames {
    const char* weight;
    const char* bias;
    bool exports_bias = false;  // FileTensor::is_exported
  };
  virtual OutputNames output() const = 0;
  // Whether rows of the position table up to `pad_token_id` stand for no position.
  virtual bool pads_positions() const = 0;
};

}  // namespace anyorder::launcher
