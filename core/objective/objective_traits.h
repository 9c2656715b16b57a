// What an objective is, as its line in registry/ says it, and the table of these lines. Callers ask
// the traits, not an objective's name.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "core/config/sampling_config.h"
#include "core/config/task_config.h"

namespace anyorder {

class Objective;
struct ObjectiveSettings;
using ObjectiveOrStatus = absl::StatusOr<std::unique_ptr<Objective>>;

// How a system writes a text, or the texts of an example: parts with blanks between, each with the
// segment of its slots, as "<cls>:0 A:0 <sep>:0". A and B are the texts. Exported tokenizers write
// the same.
struct InputLayout {
  const char* first = "A:0";  // the first text, with what stands before it
  const char* next = "B:0";   // each of the others
  const char* last = "";      // after all of them
  // Whether a third text has a segment of its own (3, the fourth 4, ...), not that of the second:
  // relative segments only ask whether two are equal (Yang et al. 2019, section 2.5).
  bool has_more_segments = false;
  // ExampleTask::kSpans: the passage is A and the question B, instead of the reverse.
  bool passage_first = false;

  // The layout of so many texts, called A, B, C, ... REQUIRES 1 to kMostTexts.
  std::string Of(int64_t num_texts) const;
  bool IsAlone() const { return !absl::StrContains(Of(2), "<"); }
  // [CLS] A [SEP] B [SEP] as BERT has it, not XLNet's A [SEP] B [SEP] [CLS].
  bool cls_first() const { return absl::StartsWith(first, "<cls>"); }
  // Whether one text or two have the special token `piece`, such as "<sep>", among their parts.
  bool Has(absl::string_view piece) const;
};
// The layouts of the released code for one text and two. XLNet: Yang et al. 2019, section 3.1,
// classifier_utils.py and run_squad.py. BERT: Devlin et al. 2019, section 3.2; UniLM and masked
// diffusion, which have none of their own, use it. Longformer: RoBERTa's <s> A </s></s> B </s>,
// with CLS and SEP (Beltagy et al. 2020, section 6). GPT: Radford et al. 2018, section 3.3.
inline constexpr InputLayout kTextAlone;
inline constexpr InputLayout kXlnetLayout = {"A:0 <sep>:0", "B:1 <sep>:1", "<cls>:2", true, true};
inline constexpr InputLayout kBertLayout = {"<cls>:0 A:0 <sep>:0", "B:1 <sep>:1"};
inline constexpr InputLayout kLongformerLayout = {"<cls>:0 A:0 <sep>:0", "<sep>:0 B:0 <sep>:0"};
inline constexpr InputLayout kGptLayout = {"<s>:0 A:0", "<sep>:0 B:0", "<cls>:0"};

struct ObjectiveTraits {
  enum Flag : uint32_t {
    kPutsMask = 1 << 0,  // <mask> where the text has another token
    // Its network may have recurrence memory, and lanes that read backwards. Others read windows of
    // text, one way, and remember nothing.
    kRemembers = 1 << 1,
    kCausal = 1 << 2,  // no content slot sees a later one
    // Slots say the position that they predict (Slot::next): model.positions must be in pairs.
    kPairedPositions = 1 << 3,
    kGlobals = 1 << 4,  // CLS has global attention; so have other slots that the objective chooses
    kNextSentence = 1 << 5,  // lanes say whether B follows A if objective.next_sentence asks for it
    kSameLength = 1 << 6,    // model.same_length means something
    // kExamples: a head tells classes, choices, scores, spans or tags. Without one the objective
    // writes targets.
    kTaskHead = 1 << 7,
    kTurns = 1 << 8,  // an example of generation may have several answers, all of them learned
  };

  const char* name;
  const char* other_names;  // with blanks between, lower case, "_" for "-"
  SampleKind sample_kind;
  ObjectiveOrStatus (*make)(const ObjectiveSettings&) = nullptr;
  SamplingKeys keys = SamplingKeys::kNone;  // of [sampling] that it reads, with kCommon
  InputLayout layout = kTextAlone;          // of a text by itself, and of two
  uint32_t flags = 0;

  bool has(Flag flag) const { return (flags & flag) != 0; }
  // Whether it learns from labelled examples of `task`. Rows of a causal network do not see what
  // follows a token, which answers and tags depend on.
  bool Learns(ExampleTask task) const;
};

// The table, in its order.
absl::Span<const ObjectiveTraits> Objectives();

// The objective that `name` means: its own, or one of other_names; upper case is lower case, and
// "-" is "_". InvalidArgument if there is none: with the nearest name, or with what keeps its mask
// from being expressed.
absl::StatusOr<const ObjectiveTraits*> ObjectiveNamed(absl::string_view name);

// The names of those that `fits` says yes to, as messages have them: "a, b or c".
std::string ObjectivesThat(absl::FunctionRef<bool(const ObjectiveTraits&)> fits);

}  // namespace anyorder
