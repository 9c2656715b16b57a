// Fine-tuning on labelled examples, the same for all systems but for the sequence in which a system
// writes an example: special tokens, segments, who sees whom. What is learned is the head's
// business (core/network/heads/); finetuning.md describes both.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/objective/objective.h"

namespace anyorder {

// How a system writes the texts of an example: parts with blanks between, each with the segment of
// its slots, as "<cls>:0 A:0 <sep>:0". A and B are the texts. Exported tokenizers write the same.
struct InputLayout {
  const char* first;  // the first text, with what stands before it
  const char* next;   // each of the others
  const char* last;   // after all of them
  // Whether a third text has a segment of its own (3, the fourth 4, ...), not that of the second:
  // relative segments only ask whether two are equal (Yang et al. 2019, section 2.5).
  bool has_more_segments = false;

  // Of so many texts, called A, B, C, ... REQUIRES 1 to kMostTexts.
  std::string Of(int64_t num_texts) const;
};
// Those of the released code for one text and two. UniLM and masked diffusion use BERT's.
inline constexpr InputLayout kXlnetLayout = {"A:0 <sep>:0", "B:1 <sep>:1", "<cls>:2", true};
inline constexpr InputLayout kBertLayout = {"<cls>:0 A:0 <sep>:0", "B:1 <sep>:1", ""};
inline constexpr InputLayout kLongformerLayout = {"<cls>:0 A:0 <sep>:0", "<sep>:0 B:0 <sep>:0", ""};
inline constexpr InputLayout kGptLayout = {"<s>:0 A:0", "<sep>:0 B:0", "<cls>:0"};

// What a system's fine-tuning is.
struct FineTuningForm {
  InputLayout layout;
  int64_t num_segments = 1;
  // kSpans: the passage is A and the question B, instead of the reverse.
  bool passage_first = false;
  // Attention is causal, and the language model loss of the text is added to the task's.
  bool is_causal = false;
  // kSimilarity is read in both orders, and the states are added (Radford et al. 2018,
  // section 3.3).
  bool has_both_orders = false;
  // CLS, and the tokens of a question or choice, attend to all and are seen by all (Beltagy et al.
  // 2020, section 6).
  bool has_globals = false;
};

// One sequence: an example's text, or texts, between special tokens.
struct TaskSequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> segments;  // of each token
  std::vector<int64_t> begin;     // where each text stands
  std::vector<int64_t> size;      // as much of it as fits
  int64_t classifier = 0;         // where CLS stands
};

// Of at most `seq_len` tokens. Texts are cut at their ends. Of several that do not fit, those that
// take less than an equal share of the room stay whole, and the others share what these leave, the
// first ones the odd tokens. REQUIRES seq_len >= the special tokens and one of each text.
TaskSequence LayOut(const InputLayout& layout, const VocabularyIds& ids,
                    const std::vector<const std::vector<int32_t>*>& texts, int64_t seq_len);

// The objective that teaches the task of settings.model.task in that form. InvalidArgument without
// a task that has a head, and for settings that it cannot use.
ObjectiveOrStatus MakeFineTuning(const ObjectiveSettings& settings, const FineTuningForm& form);

// Of objectives that write a target to a source (Objective::CheckTask): FailedPrecondition unless
// `task` is generation, which alone has both.
absl::Status CheckGenerates(const std::string& objective, ExampleTask task);

}  // namespace anyorder
