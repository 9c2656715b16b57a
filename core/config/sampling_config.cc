#include "core/config/sampling_config.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace anyorder {

namespace {

// [SEP] after A, [SEP] and [CLS] after B.
constexpr int64_t kNumFunctional = 3;

bool IsMasked(SampleKind kind) {
  return kind == SampleKind::kMaskedPairs || kind == SampleKind::kModePairs;
}

// What both kinds of pairs ask for.
void CheckHalves(const SamplingConfig& config, FaultList& faults) {
  const int64_t half = config.seq_len / 2;
  // A and B need one token each in addition to the three functional ones.
  faults.Require(config.seq_len % 2 == 0 && half >= kNumFunctional + 2,
                 absl::StrCat("seq_len=", config.seq_len, " must be even and at least ",
                              2 * kNumFunctional + 4));
  faults.Require(config.reuse_len == half,
                 absl::StrCat("reuse_len=", config.reuse_len, " must be seq_len / 2 = ", half));
  faults.Require(config.mask_alpha >= config.mask_beta,
                 absl::StrCat("mask_alpha=", config.mask_alpha,
                              " must be at least mask_beta = ", config.mask_beta));
  faults.Require(config.max_span <= half, absl::StrCat("max_span=", config.max_span,
                                                       " must be at most seq_len / 2 = ", half));
}

// Most targets if the first half predicts the larger part and the second has tokens that cannot be
// chosen.
int64_t MostTargets(int64_t half, bool functional_targets) {
  return functional_targets ? 2 * half : 2 * (half - kNumFunctional) + 1;
}

void CheckPairs(const SamplingConfig& config, FaultList& faults) {
  const int64_t half = config.seq_len / 2;
  faults.Require(half % config.perm_size == 0,
                 absl::StrCat("perm_size=", config.perm_size, " must divide reuse_len = ", half));
  const int64_t most = MostTargets(half, config.functional_targets);
  faults.Require(config.num_predict <= most,
                 absl::StrCat("num_predict=", config.num_predict, " must be at most ", most,
                              " for seq_len=", config.seq_len));
}

void CheckMaskedPairs(const SamplingConfig& config, FaultList& faults) {
  const int64_t half = config.seq_len / 2;
  const int64_t most = config.spans == SpanKind::kSubword ? MostTargets(half, false)
                                                          : config.seq_len - kNumFunctional;
  const int64_t targets = config.NumTargets(SampleKind::kMaskedPairs);
  faults.Require(targets <= most,
                 absl::StrCat("mask_fraction=", config.mask_fraction,
                              " and num_predict=", config.num_predict, " ask for ", targets,
                              " targets, but seq_len=", config.seq_len, " has at most ", most));
  faults.Require(config.spans != SpanKind::kNgram || config.max_ngram <= half,
                 absl::StrCat("max_ngram=", config.max_ngram, " must be at most seq_len / 2 = ",
                              half, "; ngram_prob=0 masks single tokens only"));
}

// Keys that samples with a memory or an order cannot follow, because their halves are fixed.
void CheckFreePairs(const SamplingConfig& config, SampleKind kind, FaultList& faults) {
  const bool is_masked = IsMasked(kind);
  const double prob = config.short_sequence_prob;
  faults.Require(
      prob == 0 || is_masked,
      absl::StrCat("short_sequence_prob=", prob,
                   " must be 0: only masked language models without memory know padding"));
  const bool is_free =
      kind == SampleKind::kModePairs || prob > 0 || config.pairs == PairStyle::kBert;
  faults.Require(config.pairs == PairStyle::kXlnet || is_masked,
                 "pairs=\"bert\" is for masked language models without memory; use \"xlnet\"");
  faults.Require(!is_masked || !is_free || config.spans != SpanKind::kSubword,
                 "spans=\"subword\" draws XLNet's spans, half by half, which these samples do not "
                 "have; use \"ngram\", \"single\" or \"word\"");
}

void CheckShares(const SamplingConfig& config, FaultList& faults) {
  const double sum = config.bidirectional_share + config.seq2seq_share +
                     config.left_to_right_share + config.right_to_left_share;
  // Thirds are written with a few digits.
  constexpr double kSlack = 1e-3;
  faults.Require(std::abs(sum - 1) <= kSlack,
                 absl::StrCat("bidirectional_share, seq2seq_share, left_to_right_share and "
                              "right_to_left_share sum to ",
                              sum, " but must sum to 1"));
}

}  // namespace

int64_t SamplingConfig::NumTargets(SampleKind kind) const {
  if (kind == SampleKind::kPairs) return num_predict;
  return IsMasked(kind) ? MaskedTargets(seq_len) : seq_len;
}

int64_t SamplingConfig::MaskedTargets(int64_t length) const {
  // nearbyint rounds halves to even, as Python's round does in BERT's code.
  const double share = std::nearbyint(mask_fraction * static_cast<double>(length));
  return std::min(num_predict, std::max(int64_t{1}, static_cast<int64_t>(share)));
}

FaultList SamplingConfig::Validate(SampleKind kind) const {
  FaultList faults, named;
  CheckBounds("sampling", *this, named);
  if (!named.empty()) return named;
  faults.Require(mask_token_prob + random_token_prob <= 1,
                 absl::StrCat("mask_token_prob=", mask_token_prob, ", random_token_prob=",
                              random_token_prob, " must be at most 1 together"));
  if (kind == SampleKind::kPairs || IsMasked(kind)) CheckHalves(*this, faults);
  if (kind == SampleKind::kPairs) CheckPairs(*this, faults);
  if (IsMasked(kind)) CheckMaskedPairs(*this, faults);
  CheckFreePairs(*this, kind, faults);
  if (kind == SampleKind::kModePairs) CheckShares(*this, faults);
  // Other samples have the spans of XLNet's halves.
  faults.Require(spans != SpanKind::kNgram || kind != SampleKind::kPairs,
                 "spans=\"ngram\" is for masked language models; use \"subword\", \"word\" or "
                 "\"single\"");
  named.Add(faults, "[sampling] ");
  return named;
}

}  // namespace anyorder
