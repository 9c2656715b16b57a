// Incremental decoding: each step computes only the rows of new slots and lets them attend to
// cached keys and values of all slots before, which are final once computed (GenerationForm). n
// steps cost n rows, where recomputing the text costs n^2 / 2.
//
// A lane's cache holds its prompt's slots, then one slot a generated token, then the slots that
// serve a single step. Each lane starts right behind its own prompt, so that neither other lanes
// nor padding move its slots: what a lane computes does not depend on its company, up to how the
// backend's products round for another number of rows (README.md).
//
// N prompts, C lanes a prompt, B = N * C lanes, K key slots a lane, H heads, D head size, V
// vocabulary.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/generate/inference_network.h"
#include "core/generate/key_storage.h"
#include "core/generate/search.h"
#include "core/objective/generation_form.h"

namespace anyorder {

struct DecoderOptions {
  int64_t lanes_per_prompt = 1;  // C
  int64_t max_tokens = 1;        // steps that there can be
};

// Whether `max_tokens` tokens can be generated after `prompt`. InvalidArgument if it is empty and
// the form rewrites a text; OutOfRange if learned positions do not suffice.
absl::Status CheckFits(const ModelConfig& model, const GenerationForm& form,
                       const std::vector<int32_t>& prompt, int64_t max_tokens);

class Decoder final : public NextTokens {
 public:
  // Computes the prompts. `weights` [layout] in the model's dtype and `form` are borrowed.
  // Errors: those of CheckFits; InvalidArgument if the backend does not compute in the model's
  // dtype; ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(
      const ModelConfig& model, int64_t vocab_size, ConstTensorView weights,
      const GenerationForm& form, const std::vector<std::vector<int32_t>>& prompts,
      const DecoderOptions& options, kernels::Backend& backend);

  int64_t vocab_size() const override { return network_->shape().vocab_size; }
  int64_t lanes() const override { return network_->shape().batch.batch_size; }
  // CheckFinite's error, of any lane.
  absl::StatusOr<const float*> Next(const std::vector<int32_t>& newest,
                                    const std::vector<int32_t>& parents) override;
  // The logits of the last Next in the precision they were computed in, [B, V] G, in the host's
  // memory.
  ConstTensorView logits() const { return logits_; }

 private:
  Decoder(const ModelConfig& model, ConstTensorView weights, const GenerationForm& form,
          const std::vector<std::vector<int32_t>>& prompts, const DecoderOptions& options,
          kernels::Backend& backend);
  absl::Status Allocate(int64_t vocab_size);
  BatchShape StepShape() const;
  // Runs the prompts' slots and puts their keys into the cache of all their lanes.
  absl::Status ReadPrompts();
  void CachePrompts(const InferenceNetwork& network, int64_t slots);
  // Moves keys of generated slots between lanes.
  void Reorder(const std::vector<int32_t>& parents);
  void FillStep(const std::vector<int32_t>& newest);
  int64_t PromptOf(int64_t lane) const { return lane / options_.lanes_per_prompt; }

  ModelConfig model_;
  ConstTensorView weights_;
  const GenerationForm& form_;
  std::vector<std::vector<int32_t>> prompts_;
  DecoderOptions options_;
  kernels::Backend& backend_;
  std::vector<std::vector<Slot>> prompt_slots_;  // [N]
  std::vector<kernels::Band> bands_;             // of the form, or none
  int64_t span_ = 0;                             // largest position + 1
  int64_t key_slots_ = 0;                        // K

  std::unique_ptr<InferenceNetwork> network_;  // of a step
  std::unique_ptr<Batch> step_;
  std::unique_ptr<kernels::Buffer> key_storage_;
  std::unique_ptr<kernels::Buffer> moved_storage_;
  std::unique_ptr<kernels::Buffer> host_storage_;  // of the logits
  KeyCache cache_;
  TensorView moved_;  // [B, generated slots, H*D] T, while lanes are reordered
  TensorView logits_;
  std::vector<float> float_logits_;  // where G is not fp32
  int64_t target_ = 0;               // the next step's
};

}  // namespace anyorder
