#include "core/objective/generation_form.h"

#include <utility>

#include "core/base/status.h"
#include "core/objective/objective.h"

namespace anyorder {
namespace {

// A text that goes on where the prompt ends.
class Continuation : public GenerationForm {
 public:
  Continuation(const GenerationTokens& tokens, int64_t context_slots)
      : tokens_(tokens), context_slots_(context_slots) {}

  int64_t context_slots() const override { return context_slots_; }
  int32_t end_token() const override { return tokens_.end_of_document; }
  bool takes_empty_prompt() const override { return true; }

 protected:
  std::vector<int32_t> TextBefore(const std::vector<int32_t>& prompt) const {
    return prompt.empty() ? std::vector<int32_t>{tokens_.end_of_document} : prompt;
  }

 private:
  GenerationTokens tokens_;
  int64_t context_slots_;
};

class CausalGeneration final : public Continuation {
 public:
  using Continuation::Continuation;

  int64_t lasting_slots() const override { return 1; }
  int64_t passing_slots() const override { return 0; }
  int64_t query_slots() const override { return 0; }
  int64_t readout_slot() const override { return 0; }
  bool prompt_looks_ahead() const override { return false; }

  // All but the last token, which the first step reads.
  std::vector<Slot> PromptSlots(const std::vector<int32_t>& prompt) const override {
    const std::vector<int32_t> text = TextBefore(prompt);
    std::vector<Slot> slots;
    for (size_t i = 0; i + 1 < text.size(); ++i)
      slots.push_back(CausalSlot(text[i], static_cast<int64_t>(i)));
    return slots;
  }
  std::vector<Slot> StepSlots(const std::vector<int32_t>& prompt, int64_t target,
                              int32_t newest) const override {
    const std::vector<int32_t> text = TextBefore(prompt);
    const int64_t position = static_cast<int64_t>(text.size()) - 1 + target;
    return {CausalSlot(target == 0 ? text.back() : newest, position)};
  }
};

class QueryGeneration final : public Continuation {
 public:
  using Continuation::Continuation;

  int64_t lasting_slots() const override { return 1; }
  int64_t passing_slots() const override { return 0; }
  int64_t query_slots() const override { return 1; }
  int64_t readout_slot() const override { return 1; }
  bool prompt_looks_ahead() const override { return true; }

  std::vector<Slot> PromptSlots(const std::vector<int32_t>& prompt) const override {
    std::vector<Slot> slots;
    for (const int32_t token : TextBefore(prompt))
      slots.push_back(RankedSlot(token, static_cast<int64_t>(slots.size()), 0));
    return slots;
  }
  std::vector<Slot> StepSlots(const std::vector<int32_t>& prompt, int64_t target,
                              int32_t newest) const override {
    const int64_t position = static_cast<int64_t>(TextBefore(prompt).size()) + target;
    const Slot query{.pos = static_cast<int32_t>(position), .lim = static_cast<int32_t>(target)};
    return {target == 0 ? PadSlot(position - 1) : RankedSlot(newest, position - 1, target), query};
  }
};

// [CLS] source [SEP] target [SEP]: the form of a step is the heir's.
class SourceTarget : public GenerationForm {
 public:
  explicit SourceTarget(const SourceTargetSlots& slots) : slots_(slots) {}

  int64_t lasting_slots() const override { return 1; }
  int64_t passing_slots() const override { return 1; }
  int64_t query_slots() const override { return 0; }
  int64_t readout_slot() const override { return 1; }
  bool prompt_looks_ahead() const override { return true; }
  int32_t end_token() const override { return slots_.tokens.separator; }
  bool takes_empty_prompt() const override { return false; }

  std::vector<Slot> PromptSlots(const std::vector<int32_t>& prompt) const override {
    std::vector<Slot> slots;
    const auto add = [&](int32_t token) {
      slots.push_back(
          RankedSlot(token, static_cast<int64_t>(slots.size()), 0, slots_.source_segment));
    };
    add(slots_.tokens.classifier);
    for (const int32_t token : prompt) add(token);
    add(slots_.tokens.separator);
    return slots;
  }
  std::vector<Slot> StepSlots(const std::vector<int32_t>& prompt, int64_t target,
                              int32_t newest) const override {
    const int64_t position = static_cast<int64_t>(prompt.size()) + 2 + target;
    Slot read = ReadSlot(slots_.read_token, position, target + 1);
    // The first step has no newest token: the one before is the prompt's.
    Slot last = target == 0 ? PadSlot(position - 1) : RankedSlot(newest, position - 1, target);
    read.seg = last.seg = slots_.target_segment;
    return {last, read};
  }

 protected:
  virtual Slot ReadSlot(int32_t token, int64_t position, int64_t rank) const = 0;

 private:
  SourceTargetSlots slots_;
};

class ClozeGeneration final : public SourceTarget {
 public:
  using SourceTarget::SourceTarget;

 protected:
  Slot ReadSlot(int32_t token, int64_t position, int64_t rank) const override {
    return RankedSlot(token, position, rank);
  }
};

class PseudoMaskGeneration final : public SourceTarget {
 public:
  using SourceTarget::SourceTarget;

 protected:
  Slot ReadSlot(int32_t token, int64_t position, int64_t rank) const override {
    Slot slot = RankedSlot(token, position, rank - 1);
    slot.key = kernels::kKeyNever;
    slot.grp = 0;  // its own: it is the only one of its kind
    return slot;
  }
};

}  // namespace

std::unique_ptr<GenerationForm> MakeCausalGeneration(const GenerationTokens& tokens,
                                                     int64_t context_slots) {
  return std::make_unique<CausalGeneration>(tokens, context_slots);
}

std::unique_ptr<GenerationForm> MakeQueryGeneration(const GenerationTokens& tokens,
                                                    int64_t context_slots) {
  return std::make_unique<QueryGeneration>(tokens, context_slots);
}

std::unique_ptr<GenerationForm> MakeClozeGeneration(const SourceTargetSlots& slots) {
  return std::make_unique<ClozeGeneration>(slots);
}

std::unique_ptr<GenerationForm> MakePseudoMaskGeneration(const SourceTargetSlots& slots) {
  return std::make_unique<PseudoMaskGeneration>(slots);
}

FormOrStatus Objective::Generation(const GenerationTokens&) const {
  return FailedPrecondition(
      "a network trained with ", name(),
      " has not learned an order to write text in; use a network trained with "
      "causal_lm, gpt or permutation_lm");
}

}  // namespace anyorder
