// What BERT, RoBERTa and Longformer share: config.json, and the tensors of embeddings and layers.

#pragma once

#include "launcher/huggingface/families/hf_family.h"

namespace anyorder::launcher {

// Objectives whose network predicts masked tokens where they stand, each from all of the text.
inline constexpr const char* kBertObjectives[] = {"bert", "longformer", "unilm", "unilm_seq2seq",
                                                  "masked_diffusion"};

// The heads of other tasks: sequence and token classification, questions; the pooler where the run
// has no next-sentence head; and position_ids, which older files have among the weights.
inline constexpr const char* kBertOtherHeads[] = {"pooler.", "cls.seq_relationship.", "classifier.",
                                                  "qa_outputs.", "embeddings.position_ids"};

class BertLikeFamily : public HfFamily {
 public:
  void VisitKeys(HfKeys& keys) const override;
  void SetDefaults(const HfConfig& model, RunConfig& config) const override;
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;
  void FitTensors(const HfConfig& config, TensorTable& tensors) const override;
  absl::Status Fold(const HfConfig& config, const ParameterLayout& layout, const TensorReader& read,
                    const FlatPiece& piece) const override;

 protected:
  // Names of the head's output weight, a second one of the embedding, and of a second one of its
  // bias `lm_loss.bias`.
  struct OutputNames {
    const char* weight;
    const char* bias;
    bool exports_bias = false;  // FileTensor::is_exported
  };
  virtual OutputNames output() const = 0;
  // Whether it is RoBERTa's kind.
  virtual bool is_roberta() const { return false; }
};

// What RoBERTa and Longformer, which was trained on from RoBERTa's weights, also share: the names
// of the heads, a GELU of the head that is the exact one whatever `hidden_act` says, and positions
// that are counted from the row behind that of padding.
class RobertaLikeFamily : public BertLikeFamily {
 public:
  // `names`: model_type, architecture, bare_architecture and prefix. What the names of
  // transformers' classes begin with: `classes`.
  RobertaLikeFamily(Names names, const std::string& classes);
  Names names() const override { return names_; }
  std::span<const HfHead> heads() const override { return heads_; }
  void SetDefaults(const HfConfig& model, RunConfig& config) const override;

 protected:
  OutputNames output() const override {
    return {"lm_head.decoder.weight", "lm_head.decoder.bias", true};
  }
  bool is_roberta() const override { return true; }

 private:
  Names names_;
  std::vector<HfHead> heads_;
};

}  // namespace anyorder::launcher
