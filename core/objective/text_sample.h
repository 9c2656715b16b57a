// What the sampler (data/) hands to an objective (core/objective): one lane's text of one step.
//
// A lane is one row of the global batch: it reads a contiguous stream of the corpus, forwards or
// backwards, step after step. S = seq_len. All arrays are in the lane's reading order: for a
// backward lane that is the time-reversed text.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/config/sampling_config.h"
#include "core/config/task_config.h"

namespace anyorder {

// Tokens of an example of generation.
struct PartLengths {
  int64_t source = 0;
  int64_t target = 0;
};

// Of kExamples the content of an example, and no token arrays, since how parts become a sequence is
// the objective's business; else the arrays.
struct TextSample : ExampleContent {
  int64_t lane = 0;
  int64_t num_lanes = 1;  // of the step, on all ranks
  int64_t step = 0;
  uint64_t seed = 0;  // of an objective's own draws (LaneDraws)
  VocabularyIds vocabulary;
  bool backward = false;              // reading direction of the lane
  std::vector<int32_t> tokens;        // [S] vocabulary ids, uncorrupted
  std::vector<int32_t> input_tokens;  // [S] kMaskedPairs: what the network reads instead
  std::vector<int32_t> next_tokens;   // [S] kContiguous: the token after each
  std::vector<int32_t> segment;       // [S] pairs: 0 reuse, A, its SEP; 1 B, its SEP; 2 CLS. Else 0
  std::vector<uint8_t> word_starts;   // [S] 1 where the token's piece begins a word, a property of
                                      // the piece; SEP and CLS: 1
  // All kinds of pairs:
  TextMode mode = TextMode::kBidirectional;
  int64_t padding = 0;  // the last slots of a short sample: they have the id of SEP, no meaning
  std::vector<uint8_t> is_masked;      // [S] NumTargets ones (whole words, short samples: less)
  std::vector<uint8_t> is_functional;  // [S] SEP and CLS
  std::vector<int32_t> order;  // [S] kPairs: rank of each position inside its own half (0-based)
  bool b_follows_a = false;    // the next-sentence label
  int64_t example = 0;         // kExamples: its number in the dataset
  // kGeneration: the lengths of the step's examples, [num_lanes], on all ranks; all lanes share
  // them. Null: not asked for (AnyOrderConfig::is_padded_by_step).
  std::shared_ptr<const std::vector<PartLengths>> step_lengths;
};

// A part of a passage, or of a window of it, that may be the answer to a question: what heads say
// and data/sampling/span_answers.h merges.
struct SpanCandidate {
  // Tokens [begin, end), counted from the first of the window.
  int32_t begin = 0;
  int32_t end = 0;
  // The log probability of the start, plus that of the end given it. With a simple head, where both
  // are apart, the sum of their logits, as BERT's released code compares spans of several windows.
  double log_probability = 0;
  bool operator==(const SpanCandidate&) const = default;
};

}  // namespace anyorder
