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
#include "core/model/any_order_config.h"

namespace anyorder {

// How spans of targets are drawn (XLNet, section 2.3; spec of the released data_utils.py).
enum class SpanKind {
  kSubword,  // l pieces from a word start on: what released models were trained with
  kWord,     // l whole words: what the paper describes
  kSingle,   // no spans: uniformly random positions (the ablation row "- span-based prediction")
};

// What text an objective needs.
enum class SampleKind {
  kPairs,        // [reuse][A][SEP][B][SEP][CLS] with span masks and a factorisation order per half
  kContiguous,   // seq_len consecutive tokens and the one after each (causal language modelling)
  kMaskedPairs,  // the same text as kPairs, with BERT's targets and a corrupted copy of it to read
  kExamples,  // one labelled example, whole: TextSample::parts and label (data/README.md, "Labelled examples")
};

// What labelled examples are examples of, and which texts one consists of.
enum class ExampleTask {
  kClassification,  // text
  kEntailment,      // premise, hypothesis
  kSimilarity,      // two texts, in either order
  kMultipleChoice,  // context, then two or more choices; the label is the right one
  kGeneration,      // source, target; no label
};

// Section [sampling]. Defaults: the published XLNet setting.
struct SamplingConfig {
  int64_t seq_len = 512;     // S, slots of the content stream
  int64_t reuse_len = 256;   // tokens a lane advances by each step; with pairs: must be seq_len / 2
  int64_t num_predict = 85;  // targets a lane and step; kMaskedPairs: at most, see NumTargets
  int64_t perm_size = 256;   // block length of the factorisation order; divides both halves
  int64_t mask_alpha = 6;    // a span of l tokens sits in a context of l * mask_alpha / mask_beta
  int64_t mask_beta = 1;
  int64_t max_span = 5;  // span lengths 1..max_span with probability proportional to 1 / l
  SpanKind spans = SpanKind::kSubword;
  bool functional_targets =
      true;                   // spans may hit SEP / CLS, which then are no target (released code);
                              // false: never, so that num_predict targets always remain
  bool bidirectional = true;  // half of the lanes read backwards
  // kMaskedPairs (Devlin et al. 2019, section 3.1): how many tokens are targets, and what stands in the input for one:
  // `<mask>`, else a random token, else the token itself.
  double mask_fraction = 0.15;
  double mask_token_prob = 0.8;
  double random_token_prob = 0.1;
  AnyOrderConfig any_order;  // its keys stand in [sampling], too

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
    visit("mask_fraction", self.mask_fraction);
    visit("mask_token_prob", self.mask_token_prob);
    visit("random_token_prob", self.random_token_prob);
    AnyOrderConfig::VisitFields(self.any_order, visit);
  }

  // Targets of a lane and step. kPairs: num_predict. kMaskedPairs: BERT's min(num_predict, max(1, round(mask_fraction *
  // seq_len))), halves rounded to even. Else: seq_len.
  int64_t NumTargets(SampleKind kind) const;

  // InvalidArgument listing every fault. `kind` decides which fields matter.
  absl::Status Validate(SampleKind kind) const;
};

template <>
inline constexpr auto kEnumNames<SpanKind> = std::to_array<std::pair<SpanKind, const char*>>(
    {{SpanKind::kSubword, "subword"}, {SpanKind::kWord, "word"}, {SpanKind::kSingle, "single"}});
template <>
inline constexpr auto kEnumNames<ExampleTask> = std::to_array<std::pair<ExampleTask, const char*>>(
    {{ExampleTask::kClassification, "classification"},
     {ExampleTask::kEntailment, "entailment"},
     {ExampleTask::kSimilarity, "similarity"},
     {ExampleTask::kMultipleChoice, "multiple_choice"},
     {ExampleTask::kGeneration, "generation"}});

// Its name above.
const char* ExampleTaskName(ExampleTask task);

// Ids that an objective may put where the text has none of them.
struct VocabularyIds {
  int32_t separator = 0;   // [SEP]
  int32_t classifier = 0;  // [CLS]
  int32_t mask = 0;        // <mask>
  int64_t size = 0;        // ids are in [0, size)
  int32_t begin = 0;       // <s>; kExamples only, like the next
  int32_t end = 0;         // </s>
};

struct TextSample {
  int64_t lane = 0;
  int64_t step = 0;
  uint64_t seed =
      0;  // an objective's own draws: RandomStream(seed, RandomPurpose::kObjective, step, lane)
  VocabularyIds vocabulary;
  bool backward = false;              // reading direction of the lane
  std::vector<int32_t> tokens;        // [S] vocabulary ids, uncorrupted
  std::vector<int32_t> input_tokens;  // [S] kMaskedPairs: what the network reads instead
  std::vector<int32_t> next_tokens;   // [S] kContiguous: the token after each
  std::vector<int32_t>
      segment;  // [S] pairs: 0 reuse, A and its SEP; 1 B and its SEP; 2 CLS. Else 0
  std::vector<uint8_t>
      word_starts;  // [S] 1 where the token's piece begins a word, a property of the piece; SEP and CLS: 1
  // kPairs and kMaskedPairs only:
  std::vector<uint8_t> is_masked;      // [S] NumTargets ones (whole words: or a few less)
  std::vector<uint8_t> is_functional;  // [S] SEP and CLS
  std::vector<int32_t> order;  // [S] kPairs: rank of each position inside its own half (0-based)
  bool b_follows_a = false;    // the next-sentence label
  // kExamples only; all token arrays above are empty, since how parts become a sequence is the objective's business.
  int64_t example = 0;                      // its number in the dataset
  std::vector<std::vector<int32_t>> parts;  // ids of each text, none of them empty or cut
  int32_t label = -1;                       // class or right choice; -1: not known
};

}  // namespace anyorder
