// What a pretrained network makes of each token of a text: the states of its last layer, as frozen
// features of another model (Yang et al. 2019: ClueWeb09-B).

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/tensor.h"
#include "core/config/sampling_config.h"
#include "core/generate/inference_network.h"
#include "core/train/run/run_config.h"
#include "kernels/backend.h"

namespace anyorder {

struct TokenStateOptions {
  int64_t max_slots = 0;  // of a sequence, special tokens included; 0: sampling.seq_len
  int64_t batch_size = 8;
};

// The content stream without query stream and memory. A network that learned to read from both
// sides reads the text whole, in its objective's layout of one text (ObjectiveTraits): `text <sep>
// <cls>` (XLNet; CLS is a segment of its own), `<cls> text <sep>` (BERT, UniLM), global `<cls>`
// before the text (Longformer), or the text alone. A network that learned to read from left to
// right does so here, too, and reads the text alone: its states know nothing of later tokens.
class TokenEncoder {
 public:
  // `vocabulary` is that of `weights`, which are as in StepArgs; both `weights` and `backend` are
  // borrowed. InvalidArgument for more slots than the model has learned positions, or too few for
  // the special tokens and a token of text, or a model whose positions are in pairs: its states
  // depend on what is predicted next.
  static absl::StatusOr<std::unique_ptr<TokenEncoder>> Create(const RunConfig& config,
                                                              const VocabularyIds& vocabulary,
                                                              const TokenStateOptions& options,
                                                              ConstTensorView weights,
                                                              kernels::Backend& backend);

  int64_t dim() const { return config_.model.model_dim; }
  int64_t max_slots() const { return max_slots_; }
  // Tokens of a text that are read; of a longer one the first.
  int64_t max_tokens() const { return max_slots_ - num_special_; }

  // Calls `take` once for each text, in the order of lengths: `states` are [tokens, dim()] in
  // fp32, of the text's own tokens, as many as are read. An error of `take` ends it. A batch holds
  // texts of about one length, so that the time grows with the tokens. ResourceExhausted.
  using TakeStates = absl::FunctionRef<absl::Status(size_t text, std::vector<float> states)>;
  absl::Status Encode(const std::vector<std::vector<int32_t>>& texts, TakeStates take) const;

 private:
  TokenEncoder(const RunConfig& config, const VocabularyIds& vocabulary,
               const TokenStateOptions& options, ConstTensorView weights,
               kernels::Backend& backend);
  BatchShape ShapeOf(int64_t slots) const;
  void FillLane(const std::vector<int32_t>& text, int64_t b, Batch& batch) const;
  int64_t TokensOf(const std::vector<int32_t>& text) const {
    return std::min(std::ssize(text), max_tokens());
  }
  absl::Status EncodeBatch(const std::vector<std::vector<int32_t>>& texts,
                           const std::vector<size_t>& chosen, InferenceNetwork& network,
                           TakeStates take) const;

  RunConfig config_;
  VocabularyIds vocabulary_;
  int64_t batch_size_;
  ConstTensorView weights_;
  kernels::Backend& backend_;
  const ObjectiveTraits& traits_;
  std::string layout_;       // of a text, InputLayout::Of
  int64_t num_special_ = 0;  // tokens around the text
  int64_t first_token_ = 0;  // slot of the text's first
  int64_t max_slots_ = 0;
};

}  // namespace anyorder
