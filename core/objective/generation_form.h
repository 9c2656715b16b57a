// How a network writes text, token after token: which slots a prompt becomes, which slots each step
// adds, and who sees whom. An objective owns the form, because only it knows what its network has
// learned to read; core/generate runs any of them.
//
// A step predicts one token. Its slots are, in this order:
//   lasting one, which holds the newest token; its keys stay in the cache for all later steps;
//   passing content slots for this step alone, as the [MASK] that is about to be replaced; their
//   keys are overwritten;
//   queries   rows that start as mask_emb and are nobody's keys.
// The prediction is read from the last. No lasting slot, and no slot of the prompt, may see a slot
// that comes later: its keys could not be final.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/objective/lane_frame.h"

namespace anyorder {

// Ids of pieces that stand for no text.
struct GenerationTokens {
  int32_t classifier = 0;       // [CLS]
  int32_t separator = 0;        // [SEP]
  int32_t mask = 0;             // <mask>
  int32_t end_of_document = 0;  // <eod>
};

class GenerationForm {
 public:
  struct Traits {
    int64_t passing_slots = 0;
    int64_t query_slots = 0;
    bool prompt_looks_ahead = true;  // whether slots of a prompt see later ones of it
    bool takes_empty_prompt = true;
    int32_t end_token = 0;  // ends a text
    // The newest slots that a row may see, itself included, as it did at most in training; 0: all.
    // A model that has windows of its own keeps those instead.
    int64_t context_slots = 0;
  };

  explicit GenerationForm(const Traits& traits) : traits_(traits) {}
  virtual ~GenerationForm() = default;
  const Traits& traits() const { return traits_; }
  // Whether one pass predicts each token of a text from those before it, once (`anyorder eval
  // --objective causal`): the content slot before the token does, or a query slot at its position,
  // which see what lane_frame.h's CausalSlot and CausalQuery do.
  bool scores_texts() const { return traits_.passing_slots == 0; }

  // Slots whose keys are cached before the first step. May be none.
  virtual std::vector<Slot> PromptSlots(const std::vector<int32_t>& prompt) const = 0;
  // The slots of the step that predicts target `target` (0 is the first after the prompt); `newest`
  // is the token that step target - 1 led to, and means nothing for target 0.
  virtual std::vector<Slot> StepSlots(const std::vector<int32_t>& prompt, int64_t target,
                                      int32_t newest) const = 0;

 private:
  Traits traits_;
};

// The forms there are. Ranks: a slot sees keys whose rank is at most its own.
//
//   causal  GPT, Transformer-XL: CausalSlot. A step has one slot, which holds the newest token and
//           is read: it predicts the one after it.
//   query   XLNet. The prompt has rank 0: its slots see one another, as context does in training;
//           targets have rank 1, 2, ... A step has the newest token's slot and a query slot that
//           sees all before it.
//   cloze   UniLM v1 (Dong et al. 2019, section 2.3). [CLS] source [SEP] has rank 0, targets rank
//           1, 2, ... A step has the newest token's slot and a [MASK] where the next one goes, of
//           that rank, which is read.
//   pseudo  UniLMv2 (Bao et al. 2020). As cloze, but the read slot is [P]: it sees what comes
//           before it and, by its group, itself, and no other slot sees it.
//
// causal and query: `context_slots` as above; the text ends with <eod>, and an empty prompt is one
// <eod>: the beginning of a document.
std::unique_ptr<GenerationForm> MakeCausalGeneration(const GenerationTokens& tokens,
                                                     int64_t context_slots);
std::unique_ptr<GenerationForm> MakeQueryGeneration(const GenerationTokens& tokens,
                                                    int64_t context_slots);

// cloze and pseudo: the text ends with [SEP].
struct SourceTargetSlots {
  GenerationTokens tokens;
  int32_t read_token = 0;  // what the read slot holds: [MASK] or [P]
  int32_t source_segment = 0;
  int32_t target_segment = 1;
};
std::unique_ptr<GenerationForm> MakeClozeGeneration(const SourceTargetSlots& slots);
std::unique_ptr<GenerationForm> MakePseudoMaskGeneration(const SourceTargetSlots& slots);

}  // namespace anyorder
