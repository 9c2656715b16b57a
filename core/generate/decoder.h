// Texts that grow from left to right by a form's steps: what a search asks of a network. A prompt
// is computed once, then its lanes take it over; each step computes only the rows of new slots.
// Texts may come and go between steps.
//
// B lanes, a text each; V vocabulary.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/generate/search.h"
#include "core/generate/slot_network.h"
#include "core/objective/generation_form.h"

namespace anyorder {

// What a text begins with.
struct Prompt {
  std::vector<int32_t> tokens;
  int64_t max_tokens = 1;  // steps that there can be
  int64_t lanes = 1;       // that go on from it
};

// Whether `max_tokens` tokens can be generated after `prompt`. InvalidArgument if it is empty and
// the form rewrites a text; OutOfRange if learned positions do not suffice.
absl::Status CheckFits(const ModelConfig& model, const GenerationForm& form,
                       const std::vector<int32_t>& prompt, int64_t max_tokens);

class Decoder final : public NextTokens {
 public:
  // Computes the prompts. `weights` [layout] in the model's dtype, `form` and the backend are
  // borrowed. `before_pass`: as SlotNetworkOptions has it.
  // Errors: those of CheckFits; SlotNetwork's.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(
      const ModelConfig& model, int64_t vocab_size, ConstTensorView weights,
      const GenerationForm& form, const std::vector<Prompt>& prompts, kernels::Backend& backend,
      std::function<absl::Status()> before_pass = nullptr);

  // Computes further prompts; their lanes stand behind the others. Lanes that are there keep their
  // steps; there are no logits until the next one. Prompts that are the same, also those of lanes
  // that are there, are computed once. Errors: as Create's; there are no new lanes then.
  absl::Status Add(const std::vector<Prompt>& prompts);
  // Those behind it move up. There are no logits until the next step.
  void Remove(int64_t lane) {
    lanes_.erase(lanes_.begin() + lane);
    network_->RemoveLane(lane);
  }

  int64_t vocab_size() const override { return network_->vocab_size(); }
  int64_t lanes() const override { return static_cast<int64_t>(lanes_.size()); }
  absl::Status Next(const std::vector<int32_t>& newest,
                    const std::vector<int32_t>& parents) override;
  absl::StatusOr<const float*> Logits(int64_t lane) override;
  // Logits [V] G, as they were computed.
  absl::StatusOr<ConstTensorView> Row(int64_t lane) { return network_->Row(lane, 0); }
  // Rows of the network that were computed so far, prompts included.
  int64_t rows() const { return network_->rows(); }

 private:
  struct Lane {
    std::shared_ptr<const Prompt> prompt;  // not null
    int64_t target = 0;                    // the next step's
  };

  Decoder(const ModelConfig& model, const GenerationForm& form) : model_(model), form_(form) {}
  absl::Status ReadPrompts(const std::vector<Prompt>& prompts);
  absl::Status RunPrompts(const std::vector<LanePass>& passes, int64_t first);
  LanePass Step(const Lane& lane, int32_t newest) const;

  const ModelConfig model_;
  const GenerationForm& form_;
  std::unique_ptr<SlotNetwork> network_;
  std::vector<Lane> lanes_;
  std::vector<float> float_logits_;  // [V] where G is not fp32
};

}  // namespace anyorder
