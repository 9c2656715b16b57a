// What an objective that is fine-tuned on labelled examples asks of the network: a head, and how
// much its language model counts.

#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

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

// A labelled example, or what a dataset or a sampler has made of it.
struct ExampleContent {
  std::vector<std::vector<int32_t>> parts;  // ids of each text, none of them empty or cut
  int32_t label = -1;                       // class or right choice; -1: not known. kSpans: 1 if
                                            // parts[1] holds the answer, or 0
  // The label where it is a number, of datasets with scores; NaN: not known, or no such dataset.
  float score = std::numeric_limits<float>::quiet_NaN();
  // kSpans: the answer's tokens in parts[1], [begin, end); -1, -1: none, or not known. And where
  // parts[1] begins in the whole passage, of which it may be a window.
  int32_t answer_begin = -1;
  int32_t answer_end = -1;
  int64_t window_begin = 0;
  // kTokens: of each token of parts[0] the class of the word that it begins, kUnknownTag or kNoTag.
  // Then `label` is 0 if the tags of all words are known, else -1.
  std::vector<int32_t> tags;
  // kGeneration: the parts up to the end of each example that is packed here; empty: one example.
  std::vector<int64_t> packed_ends;
};

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

}  // namespace anyorder
