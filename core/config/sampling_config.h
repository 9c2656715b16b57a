// What text a lane of a step has, as numbers: section [sampling], which the sampler (data/) follows
// and objectives (core/objective) check.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "core/base/fields.h"
#include "core/config/any_order_config.h"

namespace anyorder {

// How spans of targets are drawn (XLNet, section 2.3; spec of the released data_utils.py).
enum class SpanKind {
  kSubword,  // l pieces from a word start on: what released models were trained with
  kWord,     // l whole words: what the paper describes
  kSingle,   // no spans: uniformly random positions (the ablation row "- span-based prediction")
  kNgram,    // single tokens, now and then a bigram, a trigram...: UniLM's (Dong et al. 2019,
             // section 2.4)
};

// What text an objective needs.
enum class SampleKind {
  kPairs,        // [reuse][A][SEP][B][SEP][CLS] with span masks and a factorisation order per half
  kContiguous,   // seq_len consecutive tokens and the one after each (causal language modelling)
  kMaskedPairs,  // the same text as kPairs, with BERT's targets and a corrupted copy of it to read
  kModePairs,    // as kMaskedPairs, but [A][SEP][B][SEP][CLS] or [A][SEP][CLS], by the sample's
                 // TextMode
  kExamples,     // one labelled example, whole: TextSample::parts and label (data/prep/README.md)
};

// How a sample is to be read (UniLM, section 2.3). A sample's mode is drawn by itself, so a batch
// mixes them.
enum class TextMode {
  kBidirectional,  // all see all; B follows A or does not
  kSeq2seq,        // A sees A, B sees A and what is left of it; B follows A
  kLeftToRight,    // one segment
  kRightToLeft,    // one segment
};
inline constexpr int kNumTextModes = 4;

// Where pairs begin and how they are cut to length.
enum class PairStyle {
  kXlnet,  // A is the reuse part and what follows it; what is too long is cut on the right
  kBert,   // A begins where the window begins and may be short; what is too long is cut token by
           // token at a random end
};

// UniLMv2: what becomes of masked tokens that the corruption leaves as they were. Where a [M] holds
// one, each [P] could read its answer there.
enum class KeptOriginals {
  kMask,     // the [M] holds <mask> after all
  kDropPar,  // the [M] holds it, and the token has no PAR loss
  kLeak,     // the [M] holds it, and the token has both losses: the paper as it reads
};

// Ids that an objective may put where the text has none of them.
struct VocabularyIds {
  int32_t separator = 0;   // [SEP]
  int32_t classifier = 0;  // [CLS]
  int32_t mask = 0;        // <mask>
  int64_t size = 0;        // ids are in [0, size)
  int32_t begin = 0;       // <s>; kExamples only, like the next
  int32_t end = 0;         // </s>
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
  bool functional_targets = true;  // spans may hit SEP / CLS, which then are no target (released
                                   // code); false: never, so that num_predict targets always remain
  bool bidirectional = true;       // half of the lanes read backwards
  // kMaskedPairs (Devlin et al. 2019, section 3.1): how many tokens are targets, and what stands in
  // the input for one: `<mask>`, else a random token, else the token itself.
  double mask_fraction = 0.15;
  double mask_token_prob = 0.8;
  double random_token_prob = 0.1;
  AnyOrderConfig any_order;  // its keys stand in [sampling], too
  // kNgram: how often a draw takes an n-gram instead of one token, n uniform in 2..max_ngram.
  double ngram_prob = 0.2;
  int64_t max_ngram = 3;
  // Objectives without memory (Devlin et al. 2019, released create_pretraining_data.py): the share
  // of samples of a shorter, uniformly random length, the rest of their slots padding; and how
  // pairs are made.
  double short_sequence_prob = 0.0;
  PairStyle pairs = PairStyle::kXlnet;
  // kModePairs: shares of samples by TextMode. They sum to 1.
  double bidirectional_share = 1.0 / 3;
  double seq2seq_share = 1.0 / 3;
  double left_to_right_share = 1.0 / 6;
  double right_to_left_share = 1.0 / 6;
  // Fine-tuning for generation: how many of a target's tokens are hidden, its [EOS] being one that
  // may be.
  double target_mask_prob = 0.7;
  // unilmv2 (Bao et al. 2020, algorithm 1), with mask_fraction and num_predict, the most masked
  // tokens: how often a draw takes a span instead of one token, and the lengths of spans, all
  // alike.
  double block_span_prob = 0.4;
  int64_t block_min_span = 2;
  int64_t block_max_span = 6;
  KeptOriginals kept_originals = KeptOriginals::kMask;
  // unilmv2_seq2seq: how often a target token is replaced, by the two probabilities above, where
  // later ones read it.
  double target_replace_prob = 0.5;
  // longformer: CLS slots before the text, all of them global, and every n-th slot of the text
  // global too (0: none).
  int64_t global_classifiers = 1;
  int64_t global_stride = 0;

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
    visit("ngram_prob", self.ngram_prob);
    visit("max_ngram", self.max_ngram);
    visit("short_sequence_prob", self.short_sequence_prob);
    visit("pairs", self.pairs);
    visit("bidirectional_share", self.bidirectional_share);
    visit("seq2seq_share", self.seq2seq_share);
    visit("left_to_right_share", self.left_to_right_share);
    visit("right_to_left_share", self.right_to_left_share);
    visit("target_mask_prob", self.target_mask_prob);
    visit("block_span_prob", self.block_span_prob);
    visit("block_min_span", self.block_min_span);
    visit("block_max_span", self.block_max_span);
    visit("kept_originals", self.kept_originals);
    visit("target_replace_prob", self.target_replace_prob);
    visit("global_classifiers", self.global_classifiers);
    visit("global_stride", self.global_stride);
  }

  // Targets of a lane and step. kPairs: num_predict. kMaskedPairs, kModePairs:
  // MaskedTargets(seq_len), fewer in a short sample. Else: seq_len.
  int64_t NumTargets(SampleKind kind) const;
  // BERT's min(num_predict, max(1, round(mask_fraction * length))), halves rounded to even.
  int64_t MaskedTargets(int64_t length) const;

  // InvalidArgument listing every fault. `kind` decides which fields matter.
  absl::Status Validate(SampleKind kind) const;
};

template <>
inline constexpr auto kEnumNames<SpanKind> =
    std::to_array<std::pair<SpanKind, const char*>>({{SpanKind::kSubword, "subword"},
                                                     {SpanKind::kWord, "word"},
                                                     {SpanKind::kSingle, "single"},
                                                     {SpanKind::kNgram, "ngram"}});
template <>
inline constexpr auto kEnumNames<PairStyle> = std::to_array<std::pair<PairStyle, const char*>>(
    {{PairStyle::kXlnet, "xlnet"}, {PairStyle::kBert, "bert"}});
template <>
inline constexpr auto kEnumNames<KeptOriginals> =
    std::to_array<std::pair<KeptOriginals, const char*>>({{KeptOriginals::kMask, "mask"},
                                                          {KeptOriginals::kDropPar, "drop_par"},
                                                          {KeptOriginals::kLeak, "leak"}});

}  // namespace anyorder
