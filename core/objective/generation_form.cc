#include "core/objective/generation_form.h"

#include <algorithm>

namespace anyorder {
namespace {

// What a text goes on from.
std::vector<int32_t> TextBefore(const std::vector<int32_t>& prompt, int32_t end_of_document) {
  return prompt.empty() ? std::vector<int32_t>{end_of_document} : prompt;
}

class CausalGeneration final : public GenerationForm {
 public:
  using GenerationForm::GenerationForm;

  // All but the last token, which the first step reads.
  std::vector<Slot> PromptSlots(const std::vector<int32_t>& prompt) const override {
    const std::vector<int32_t> text = TextBefore(prompt, traits().end_token);
    std::vector<Slot> slots;
    for (size_t i = 0; i + 1 < text.size(); ++i)
      slots.push_back(CausalSlot(text[i], static_cast<int64_t>(i)));
    return slots;
  }
  std::vector<Slot> StepSlots(const std::vector<int32_t>& prompt, int64_t target,
                              int32_t newest) const override {
    const std::vector<int32_t> text = TextBefore(prompt, traits().end_token);
    const int64_t position = static_cast<int64_t>(text.size()) - 1 + target;
    return {CausalSlot(target == 0 ? text.back() : newest, position)};
  }
};

class QueryGeneration final : public GenerationForm {
 public:
  using GenerationForm::GenerationForm;

  std::vector<Slot> PromptSlots(const std::vector<int32_t>& prompt) const override {
    std::vector<Slot> slots;
    for (const int32_t token : TextBefore(prompt, traits().end_token))
      slots.push_back(RankedSlot(token, static_cast<int64_t>(slots.size()), 0));
    return slots;
  }
  std::vector<Slot> StepSlots(const std::vector<int32_t>& prompt, int64_t target,
                              int32_t newest) const override {
    const int64_t position = static_cast<int64_t>(std::max<size_t>(prompt.size(), 1)) + target;
    const Slot query{.pos = static_cast<int32_t>(position), .lim = static_cast<int32_t>(target)};
    return {target == 0 ? PadSlot(position - 1) : RankedSlot(newest, position - 1, target), query};
  }
};

// [CLS] source [SEP] target [SEP]: cloze and pseudo.
class SourceTarget final : public GenerationForm {
 public:
  SourceTarget(const SourceTargetSlots& slots, bool is_pseudo)
      : GenerationForm(
            {.passing_slots = 1, .takes_empty_prompt = false, .end_token = slots.tokens.separator}),
        slots_(slots),
        is_pseudo_(is_pseudo) {}

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
    // A [P] is alone in its group.
    Slot read = is_pseudo_ ? GroupSlot(slots_.read_token, position, target, 0)
                           : RankedSlot(slots_.read_token, position, target + 1);
    // The first step has no newest token: the one before is the prompt's.
    Slot last = target == 0 ? PadSlot(position - 1) : RankedSlot(newest, position - 1, target);
    read.seg = last.seg = slots_.target_segment;
    return {last, read};
  }

 private:
  SourceTargetSlots slots_;
  bool is_pseudo_;
};

}  // namespace

std::unique_ptr<GenerationForm> MakeCausalGeneration(const GenerationTokens& tokens,
                                                     int64_t context_slots) {
  return std::make_unique<CausalGeneration>(
      GenerationForm::Traits{.prompt_looks_ahead = false,
                             .end_token = tokens.end_of_document,
                             .context_slots = context_slots});
}

std::unique_ptr<GenerationForm> MakeQueryGeneration(const GenerationTokens& tokens,
                                                    int64_t context_slots) {
  return std::make_unique<QueryGeneration>(GenerationForm::Traits{
      .query_slots = 1, .end_token = tokens.end_of_document, .context_slots = context_slots});
}

std::unique_ptr<GenerationForm> MakeClozeGeneration(const SourceTargetSlots& slots) {
  return std::make_unique<SourceTarget>(slots, /*is_pseudo=*/false);
}

std::unique_ptr<GenerationForm> MakePseudoMaskGeneration(const SourceTargetSlots& slots) {
  return std::make_unique<SourceTarget>(slots, /*is_pseudo=*/true);
}

}  // namespace anyorder
