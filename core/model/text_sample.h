// What the sampler (data/) hands to an objective (core/model/objectives): one lane's text of one step.
//
// A lane is one row of the global batch: it reads a contiguous stream of the corpus, forwards or backwards,
// step after step. S = seq_len. All arrays are in the lane's reading order: for a backward lane that is
// the time-reversed text.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "core/base/fields.h"

namespace anyorder {

// How spans of targets are drawn (XLNet, section 2.3; spec of the released data_utils.py).
enum class SpanKind {
  kSubword,  // l pieces from a word start on: what released models were trained with
  kWord,     // l whole words: what the paper describes
  kSingle,   // no spans: uniformly random positions (the ablation row "- span-based prediction")
};

// What text an objective needs.
enum class SampleKind {
  kPairs,       // [reuse][A][SEP][B][SEP][CLS] with span masks and a factorisation order per half
  kContiguous,  // seq_len consecutive tokens and the one after each (causal language modelling)
};

// Section [sampling]. Defaults: the published XLNet setting.
struct SamplingConfig {
  int64_t seq_len = 512;     // S, slots of the content stream
  int64_t reuse_len = 256;   // tokens a lane advances by each step; kPairs: must be seq_len / 2
  int64_t num_predict = 85;  // targets a lane and step; kPairs
  int64_t perm_size = 256;   // block length of the factorisation order; divides both halves
  int64_t mask_alpha = 6;    // a span of l tokens sits in a context of l * mask_alpha / mask_beta
  int64_t mask_beta = 1;
  int64_t max_span = 5;  // span lengths 1..max_span with probability proportional to 1 / l
  SpanKind spans = SpanKind::kSubword;
  bool functional_targets =
      true;                   // spans may hit SEP / CLS, which then are no target (released code);
                              // false: never, so that num_predict targets always remain
  bool bidirectional = true;  // half of the lanes read backwards

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("seq_len", self.seq_len);
    visit("reuse_len", self.reuse_len);
    visit("num_predict", self.num_predict);
    visit("perm_size", self.perm_size);
    visit("mask_alpha", self.mask_alpha);
    visit("mask_beta", self.mask_beta);
    visit("max_span", self.max_span);
    visit("spans", self.spans);
    visit("functional_targets", self.functional_targets);
    visit("bidirectional", self.bidirectional);
  }

  // InvalidArgument listing every fault. `kind` decides which fields matter.
  absl::Status Validate(SampleKind kind) const;
};

template <>
inline constexpr auto kEnumNames<SpanKind> = std::to_array<std::pair<SpanKind, const char*>>(
    {{SpanKind::kSubword, "subword"}, {SpanKind::kWord, "word"}, {SpanKind::kSingle, "single"}});

struct TextSample {
  int64_t lane = 0;
  int64_t step = 0;
  bool backward = false;             // reading direction of the lane
  std::vector<int32_t> tokens;       // [S] vocabulary ids, uncorrupted
  std::vector<int32_t> next_tokens;  // [S] kContiguous: the token after each
  std::vector<int32_t>
      segment;  // [S] kPairs: 0 reuse, A and its SEP; 1 B and its SEP; 2 CLS. Else 0
  // kPairs only:
  std::vector<uint8_t> is_masked;      // [S] exactly num_predict ones
  std::vector<uint8_t> is_functional;  // [S] SEP and CLS
  std::vector<int32_t> order;          // [S] rank of each position inside its own half (0-based)
  bool b_follows_a = false;            // the next-sentence label
};

}  // namespace anyorder
