// What text a lane of a step has, as numbers: section [sampling], which the sampler (data/) follows
// and objectives (core/objective) check.

#pragma once

#include <cstdint>

#include "core/base/fields.h"
#include "core/config/any_order_config.h"

namespace anyorder {

// How spans of targets are drawn (XLNet, section 2.3; spec of the released data_utils.py).
enum class SpanKind {
  kSubword,
  kWord,
  kSingle,  // the ablation row "- span-based prediction"
  kNgram,   // single tokens, now and then a bigram, a trigram... (Dong et al. 2019, section 2.4)
};

// What text an objective needs.
enum class SampleKind {
  kPairs,        // [reuse][A][SEP][B][SEP][CLS] with span masks and a factorisation order per half
  kContiguous,   // seq_len consecutive tokens and the one after each (causal language modelling)
  kMaskedPairs,  // the same text as kPairs, with BERT's targets and a corrupted copy of it to read
  kModePairs,    // as kMaskedPairs, but [A][SEP][B][SEP][CLS] or [A][SEP][CLS], by the sample's
                 // TextMode
  kExamples,     // one labelled example, whole: TextSample::parts and label (data/prep/EXAMPLES.md)
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
constexpr auto SpellingsOf(TextMode) {  // what a run's loss_NAME says
  return std::array{"bidirectional", "seq2seq", "left_to_right", "right_to_left"};
}

enum class PairStyle { kXlnet, kBert };

// UniLMv2: what becomes of masked tokens that the corruption leaves as they were. Where a [M] holds
// one, each [P] could read its answer there.
enum class KeptOriginals { kMask, kDropPar, kLeak };

// Ids that an objective may put where the text has none of them.
struct VocabularyIds {
  int32_t separator = 0;         // [SEP]
  int32_t classifier = 0;        // [CLS]
  int32_t mask = 0;              // <mask>
  int64_t size = 0;              // ids are in [0, size)
  int32_t begin = 0;             // <s>; kExamples only, like the next
  int32_t end = 0;               // </s>
  int32_t end_of_document = -1;  // <eod>; -1: the text has none
};

// Section [sampling]. Defaults: the published XLNet setting.
struct SamplingConfig {
  int64_t seq_len = 512;
  int64_t reuse_len = 256;
  int64_t num_predict = 85;
  int64_t perm_size = 256;
  int64_t mask_alpha = 6;
  int64_t mask_beta = 1;
  int64_t max_span = 5;
  SpanKind spans = SpanKind::kSubword;
  bool functional_targets = true;
  bool bidirectional = true;
  bool lane_cells = false;
  bool hide_documents = false;
  bool pack_examples = false;
  double mask_fraction = 0.15;
  double mask_token_prob = 0.8;
  double random_token_prob = 0.1;
  AnyOrderConfig any_order;  // its keys stand in [sampling], too
  double ngram_prob = 0.2;
  int64_t max_ngram = 3;
  double short_sequence_prob = 0.0;
  PairStyle pairs = PairStyle::kXlnet;
  double bidirectional_share = 1.0 / 3;
  double seq2seq_share = 1.0 / 3;
  double left_to_right_share = 1.0 / 6;
  double right_to_left_share = 1.0 / 6;
  double target_mask_prob = 0.7;
  double block_span_prob = 0.4;
  int64_t block_min_span = 2;
  int64_t block_max_span = 6;
  KeptOriginals kept_originals = KeptOriginals::kMask;
  double target_replace_prob = 0.5;
  int64_t global_classifiers = 1;
  int64_t global_stride = 0;
  int64_t passage_stride = 128;
  int64_t max_question = 64;
  // Special tokens of a sequence of two texts. RunConfig::Resolve sets it; files have no such key.
  int64_t pair_specials = 4;

  static void VisitFields(auto& self, auto& visit) {
    using enum SamplingKeys;
    // Positions are 32-bit in batches and in the kernels; this leaves room for memory and sums.
    visit("seq_len", self.seq_len, "Length of a training sequence.", Between(1, 1 << 24, "tokens"),
          kCommon);
    visit("reuse_len", self.reuse_len,
          "Tokens that a lane advances by each step; objectives on text pairs need seq_len / 2.",
          AtLeast(0, "tokens"), kHalves);
    visit("num_predict", self.num_predict,
          "Prediction targets per sequence; for masked language models the largest number of them.",
          AtLeast(1, "tokens"), kHalves | kCorruption);
    visit("perm_size", self.perm_size,
          "permutation_lm: block length of the factorisation order; divides seq_len / 2.",
          AtLeast(1, "tokens"), kPermutation);
    visit(
        "mask_alpha", self.mask_alpha,
        "A target span of l tokens lies in a context of l * mask_alpha / mask_beta tokens (XLNet's "
        "K).",
        Between(1, 1 << 24), kHalves);
    visit("mask_beta", self.mask_beta, "Denominator of the context length; see mask_alpha.",
          AtLeast(1), kHalves);
    visit("max_span", self.max_span,
          "Span lengths are 1 to max_span, with probability proportional to 1 / length.",
          AtLeast(1, "tokens"), kHalves);
    visit("spans", self.spans,
          "How target spans are sampled: \"subword\" tokens from a word start (released XLNet), "
          "whole "
          "\"word\"s (the paper), \"single\" tokens, or \"ngram\"s (UniLM).",
          kHalves | kMaskedText);
    visit(
        "functional_targets", self.functional_targets,
        "Spans may cover [SEP] and [CLS], which are then no targets (released XLNet); false: spans "
        "avoid them, so that exactly num_predict targets remain.",
        kHalves);
    visit("bidirectional", self.bidirectional, "Half of the lanes read the text backwards.",
          kCommon);
    visit("lane_cells", self.lane_cells,
          "The lanes' streams are whole cells of the text, 4,096 at most, as in runs whose "
          "config.toml lacks this key; false: even parts.",
          kCommon);
    visit(
        "hide_documents", self.hide_documents,
        "masked_diffusion, block_diffusion, gpt, and causal_lm without memory: tokens of a window "
        "do not see other documents in it.",
        kDocuments);
    visit("pack_examples", self.pack_examples,
          "gpt_sft: examples share a sequence where they fit, none of which sees another.",
          kPacking);
    visit("mask_fraction", self.mask_fraction,
          "Masked language models: fraction of the tokens that are targets.", PositiveFraction(),
          kMaskedText);
    visit("mask_token_prob", self.mask_token_prob,
          "Masked language models: probability that a target is replaced with <mask>.",
          Between(0, 1), kCorruption);
    visit("random_token_prob", self.random_token_prob,
          "Masked language models: probability that a target is replaced with a random token; the "
          "remaining targets keep their token.",
          Between(0, 1), kCorruption);
    AnyOrderConfig::VisitFields(self.any_order, visit);
    visit("ngram_prob", self.ngram_prob,
          "spans = \"ngram\": probability of masking an n-gram instead of a single token.",
          Between(0, 1), kPairMasks);
    visit("max_ngram", self.max_ngram,
          "spans = \"ngram\": n-gram lengths are uniform in 2 to max_ngram.", AtLeast(2, "tokens"),
          kPairMasks);
    visit("short_sequence_prob", self.short_sequence_prob,
          "Masked language models without memory: fraction of samples that are cut to a random "
          "length and padded (BERT).",
          Between(0, 1), kPairMasks);
    visit("pairs", self.pairs,
          "How text pairs are built: \"xlnet\" begins with the reused part and truncates on the "
          "right; \"bert\" begins at the window and truncates tokens at random ends.",
          kPairMasks);
    visit(
        "bidirectional_share", self.bidirectional_share,
        "unilm: fraction of samples in which all tokens see each other; the four shares sum to 1.",
        Between(0, 1), kTextModes);
    visit("seq2seq_share", self.seq2seq_share,
          "unilm: fraction of samples in which segment A is the source and B the target.",
          Between(0, 1), kTextModes);
    visit("left_to_right_share", self.left_to_right_share,
          "unilm: fraction of samples that are predicted from left to right.", Between(0, 1),
          kTextModes);
    visit("right_to_left_share", self.right_to_left_share,
          "unilm: fraction of samples that are predicted from right to left.", Between(0, 1),
          kTextModes);
    visit("target_mask_prob", self.target_mask_prob,
          "unilm_seq2seq: fraction of a target's tokens, its [EOS] included, that are masked.",
          PositiveFraction(), kTargetMasks);
    visit("block_span_prob", self.block_span_prob,
          "unilmv2: probability of masking a span instead of a single token (Bao et al. 2020, "
          "algorithm 1).",
          Between(0, 0.9), kBlockSpans);
    visit("block_min_span", self.block_min_span,
          "unilmv2: span lengths are uniform in block_min_span to block_max_span.",
          AtLeast(1, "tokens"), kBlockSpans);
    visit("block_max_span", self.block_max_span, "unilmv2: longest span.", AtLeast(1, "tokens"),
          kBlockSpans);
    visit(
        "kept_originals", self.kept_originals,
        "unilmv2: treatment of targets that keep their token, which [P] slots could read: \"mask\" "
        "replaces them, \"drop_par\" drops their PAR loss, \"leak\" keeps both losses (the "
        "paper).",
        kBlockSpans);
    visit("target_replace_prob", self.target_replace_prob,
          "unilmv2_seq2seq: fraction of target tokens replaced where later tokens read them.",
          Between(0, 1), kTargetReplacement);
    visit("global_classifiers", self.global_classifiers,
          "longformer: [CLS] tokens before the text, all with global attention.",
          AtLeast(0, "tokens"), kGlobalSlots);
    visit("global_stride", self.global_stride,
          "longformer: every n-th token of the text has global attention; 0: none.",
          AtLeast(0, "tokens"), kGlobalSlots);
    visit(
        "passage_stride", self.passage_stride,
        "Questions about a passage: tokens from the begin of one window of a long passage to that "
        "of the next.",
        AtLeast(1, "tokens"), kPassages);
    visit("max_question", self.max_question,
          "Questions about a passage: tokens of the question that are read.", AtLeast(1, "tokens"),
          kPassages);
  }

  // Targets of a lane and step. kPairs: num_predict. kMaskedPairs, kModePairs:
  // MaskedTargets(seq_len), fewer in a short sample. Else: seq_len.
  int64_t NumTargets(SampleKind kind) const;
  // BERT's min(num_predict, max(1, round(mask_fraction * length))), halves rounded to even.
  int64_t MaskedTargets(int64_t length) const;

  // Every fault: every key is held to its bounds, and what keys mean together by what `kind` reads.
  FaultList Validate(SampleKind kind) const;
};

constexpr auto SpellingsOf(SpanKind) { return std::array{"subword", "word", "single", "ngram"}; }
constexpr auto SpellingsOf(PairStyle) { return std::array{"xlnet", "bert"}; }
constexpr auto SpellingsOf(KeptOriginals) { return std::array{"mask", "drop_par", "leak"}; }

}  // namespace anyorder
