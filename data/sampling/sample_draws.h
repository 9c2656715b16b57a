// The random choices of a sample: its mode and length, which tokens are targets, in which order
// they are predicted, and what a denoising network reads in their place.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "core/base/philox.h"
#include "core/config/sampling_config.h"

namespace anyorder::data {

// Targets that are spans of neighbouring tokens (XLNet, section 2.3; the procedure of the released
// data_utils.py).

// Span lengths 1..max_span with probability proportional to 1 / length.
class SpanLengths {
 public:
  explicit SpanLengths(int64_t max_span);
  int64_t Draw(RandomStream& random) const;

 private:
  std::vector<double> cumulative_;  // of lengths 1, 2, ...; the last is 1
};

// One half of a sequence, both arrays in reading order of the text.
struct HalfText {
  absl::Span<const uint8_t> word_starts;
  absl::Span<const uint8_t> functional;  // SEP, CLS
};

// Positions [begin, end) of a half.
struct TokenSpan {
  int64_t begin = 0;
  int64_t end = 0;
};

// Walks along the half: draws a length l, places a span at the first word start after a random part
// of its context of l * mask_alpha / mask_beta tokens, and goes on after the rest of that context,
// until `goal` tokens are in spans or the next span would reach the end of the half. Spans come in
// order and do not touch.
//   kSubword: a span is l tokens, l cut to what the goal leaves.
//   kWord: a span is l words, or as many whole words as the goal leaves; it never ends inside a
//   word.
//   kSingle: no spans.
// Without functional_targets no span begins at or goes past a functional position.
std::vector<TokenSpan> DrawSpans(const HalfText& half, int64_t goal, const SamplingConfig& config,
                                 const SpanLengths& lengths, RandomStream& random);

// Exactly `goal` ones: DrawSpans, and single positions, drawn uniformly, for what they leave of the
// goal. REQUIRES goal <= positions that may be chosen (without functional_targets: those that are
// not functional).
std::vector<uint8_t> DrawSpanMask(const HalfText& half, int64_t goal, const SamplingConfig& config,
                                  const SpanLengths& lengths, RandomStream& random);

// How a sample is to be read and how much of it is text: drawn before the text itself.

// Tokens that are no text in a sample of two segments: SEP after A, SEP and CLS after B.
inline constexpr int64_t kNumFunctional = 3;

struct TextExtent {
  TextMode mode = TextMode::kBidirectional;
  // Tokens of both segments: seq_len - kNumFunctional, in a short sample uniform in [2, seq_len -
  // kNumFunctional].
  int64_t tokens = 0;
};

// kModePairs: a mode by the shares, then, if short samples are asked for, whether this is one and
// its length. Other kinds are bidirectional. REQUIRES: config is valid for `kind`.
TextExtent DrawExtent(const SamplingConfig& config, SampleKind kind, RandomStream& random);

// Factorisation orders (XLNet, section 2.2; the block permutation of the released data_utils.py).

// Ranks of the order.size() positions of one half, in place: blocks of permutation.size() positions
// come left to right, and every block uses the same permutation: order[j] = block(j) * perm_size +
// permutation[offset(j)]. REQUIRES order.size() % permutation.size() == 0.
void FillOrder(absl::Span<const int32_t> permutation, absl::Span<int32_t> order);

// BERT's denoising (Devlin et al. 2019, section 3.1 and appendix A.1): which tokens of a sequence
// are targets, and what the network reads in their place.

// Ones at the targets: units in random order, each taken whole unless it would go above `goal`. A
// unit is a token (kSingle: exactly `goal` ones) or a word (kWord: `goal`, or less if no word that
// is left fits). A word begins at a word start and at what follows a functional token; functional
// tokens are in no unit. Arrays are in reading order of the text. REQUIRES spans is kSingle or
// kWord, 0 <= goal <= tokens that are not functional.
std::vector<uint8_t> DrawUnitMask(absl::Span<const uint8_t> word_starts,
                                  absl::Span<const uint8_t> functional, SpanKind spans,
                                  int64_t goal, RandomStream& random);

// UniLM's targets (Dong et al. 2019, section 2.4; the order of the released code): exactly `goal`
// ones. Each draw takes a token that is no target yet, uniformly, and with config.ngram_prob the n
// - 1 tokens after it, too, n uniform in 2..max_ngram; an n-gram ends before a functional token and
// where the goal is reached, and passes over what is a target already. REQUIRES 0 <= goal <= tokens
// that are not functional.
std::vector<uint8_t> DrawNgramMask(absl::Span<const uint8_t> functional,
                                   const SamplingConfig& config, int64_t goal,
                                   RandomStream& random);

}  // namespace anyorder::data
