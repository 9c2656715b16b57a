// Texts that grow from left to right by a form's steps: what a search asks of a network. A prompt
// is computed once, then its lanes take it over; each step computes only the rows of new slots.
//
// N prompts, C lanes a prompt, B = N * C lanes, V vocabulary.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/generate/search.h"
#include "core/generate/slot_network.h"
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
  // Computes the prompts. `weights` [layout] in the model's dtype, `form` and the backend are
  // borrowed. Errors: those of CheckFits; SlotNetwork's.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(
      const ModelConfig& model, int64_t vocab_size, ConstTensorView weights,
      const GenerationForm& form, const std::vector<std::vector<int32_t>>& prompts,
      const DecoderOptions& options, kernels::Backend& backend);

  int64_t vocab_size() const override { return network_->vocab_size(); }
  int64_t lanes() const override { return network_->lanes(); }
  absl::Status Next(const std::vector<int32_t>& newest,
                    const std::vector<int32_t>& parents) override;
  absl::StatusOr<const float*> Logits(int64_t lane) override;
  // Logits [V] G, as they were computed.
  absl::StatusOr<ConstTensorView> Row(int64_t lane) { return network_->Row(lane, 0); }
  // Rows of the network that were computed so far, prompts included.
  int64_t rows() const { return network_->rows(); }

 private:
  Decoder(const GenerationForm& form, const std::vector<std::vector<int32_t>>& prompts,
          const DecoderOptions& options)
      : form_(form), prompts_(prompts), options_(options) {}
  absl::Status ReadPrompts();
  LanePass Step(const std::vector<int32_t>& prompt, int32_t newest) const;
  int64_t PromptOf(int64_t lane) const { return lane / options_.lanes_per_prompt; }

  const GenerationForm& form_;
  std::vector<std::vector<int32_t>> prompts_;
  DecoderOptions options_;
  std::unique_ptr<SlotNetwork> network_;
  std::vector<float> float_logits_;  // [V] where G is not fp32
  int64_t target_ = 0;               // the next step's
};

}  // namespace anyorder
