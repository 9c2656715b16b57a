// What an objective that is fine-tuned on labelled examples asks of the network: a head, and how
// much its language model counts.

#pragma once

#include <cstdint>

#include "core/base/fields.h"

namespace anyorder {

// What labelled examples are examples of, and which texts one consists of.
enum class ExampleTask {
  kClassification,  // text, or up to kMostTexts of them
  kEntailment,      // premise, hypothesis
  kSimilarity,      // two texts, in either order
  kMultipleChoice,  // context, then two or more choices; the label is the right one
  kGeneration,      // source, target; no label
  kSpans,           // question, passage; the label is a part of the passage, or that none answers
  kTokens,          // the words of a text; each has a class, its tag
};
constexpr auto SpellingsOf(ExampleTask) {
  return std::array{"classification", "entailment",      "similarity",          "multiple_choice",
                    "generation",     "span_extraction", "token_classification"};
}

// The number of texts that an example without choices may have.
inline constexpr int64_t kMostTexts = 26;

// What kTokens has instead of a class: for a token that begins a word whose tag is not known; and
// for one that begins none.
inline constexpr int32_t kUnknownTag = -1;
inline constexpr int32_t kNoTag = -2;

// How the answer of kSpans is read off the states of its tokens (heads/span_head.cc).
enum class SpanHeadKind { kConditional, kSimple };
constexpr auto SpellingsOf(SpanHeadKind) { return std::array{"conditional", "simple"}; }

struct TaskConfig {
  ExampleTask task = ExampleTask::kClassification;
  // 1: a score instead of a class. kMultipleChoice: the most choices of an example. 0: no head,
  // unless the task is kSpans, which has no classes.
  int64_t num_classes = 0;
  double lm_weight = 0.5;  // lambda of L3 = L2 + lambda L1 (Radford et al. 2018, equation 5)
  double dropout = 0.1;    // of what the head's last layer reads
  double label_smoothing = 0.0;
  bool pooler = false;  // a dense layer with tanh before the last one
  bool bias = true;     // of the last layer; choices have none, which would add nothing
  SpanHeadKind span_head = SpanHeadKind::kConditional;
  bool answer_class = false;  // kConditional: whether there is an answer is learned apart

  bool has_head() const { return num_classes > 0 || has_spans(); }
  bool has_choices() const { return task == ExampleTask::kMultipleChoice; }
  bool has_spans() const { return task == ExampleTask::kSpans; }
  bool has_tags() const { return task == ExampleTask::kTokens; }
  bool reads_all_tokens() const { return has_spans() || has_tags(); }
  bool has_score() const {
    return num_classes == 1 && !has_choices() && !has_spans() && !has_tags();
  }
  // Outputs of the head's last layer: one a choice.
  int64_t num_outputs() const { return has_choices() ? 1 : num_classes; }
  bool operator==(const TaskConfig& other) const = default;
};

inline const char* ExampleTaskName(ExampleTask task) { return EnumName(task); }

}  // namespace anyorder
