// What an objective that is fine-tuned on labelled examples asks of the network: a head, and how
// much its language model counts.

#pragma once

#include <cstdint>

#include "core/base/fields.h"

namespace anyorder {

// What labelled examples are examples of, and which texts one consists of.
enum class ExampleTask {
  kClassification,  // text
  kEntailment,      // premise, hypothesis
  kSimilarity,      // two texts, in either order
  kMultipleChoice,  // context, then two or more choices; the label is the right one
  kGeneration,      // source, target; no label
  kSpans,           // question, passage; the label is a part of the passage, or that none answers
};

struct TaskConfig {
  ExampleTask task = ExampleTask::kClassification;
  // kMultipleChoice: the most choices of an example; 0: no head, 1: a score instead of a class.
  int64_t num_classes = 0;
  double lm_weight = 0.5;  // lambda of L3 = L2 + lambda L1 (Radford et al. 2018, equation 5)
  double dropout = 0.1;    // of the states that the head reads

  bool has_head() const { return num_classes > 0; }
  bool has_choices() const { return task == ExampleTask::kMultipleChoice; }
  // Sequences that an example becomes, of each of which the head reads one state.
  int64_t num_sequences() const {
    if (has_choices()) return num_classes;
    return task == ExampleTask::kSimilarity ? 2 : 1;
  }
  // Outputs of the head's dense layer: one score a choice.
  int64_t num_outputs() const { return has_choices() ? 1 : num_classes; }
  bool operator==(const TaskConfig& other) const = default;
};

template <>
inline constexpr auto kEnumNames<ExampleTask> = EnumNames<ExampleTask>("classification",
                                                                       "entailment", "similarity",
                                                                       "multiple_choice",
                                                                       "generation",
                                                                       "span_extraction");

inline const char* ExampleTaskName(ExampleTask task) { return EnumName(task); }

}  // namespace anyorder
