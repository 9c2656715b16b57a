#include "core/model/text_sample.h"

#include "absl/strings/str_cat.h"

namespace anyorder {

namespace {

// Positions are 32-bit in batches and in the kernels; this leaves room for memory and sums of two.
constexpr int64_t kMaxSeqLen = int64_t{1} << 24;
// [SEP] after A, [SEP] and [CLS] after B.
constexpr int64_t kNumFunctional = 3;

void CheckPairs(const SamplingConfig& config, FaultList& faults) {
  const int64_t half = config.seq_len / 2;
  // A and B need one token each beside the three functional ones.
  faults.Require(
      config.seq_len % 2 == 0 && half >= kNumFunctional + 2,
      absl::StrCat(
          "seq_len=", config.seq_len, " must be even and at least ", 2 * kNumFunctional + 4));
  faults.Require(config.reuse_len == half,
                 absl::StrCat("reuse_len=", config.reuse_len, " must be seq_len / 2 = ", half));
  faults.Require(config.perm_size >= 1 && half % config.perm_size == 0,
                 absl::StrCat("perm_size=", config.perm_size, " must divide reuse_len = ", half));
  // The first half predicts the larger part, the second may have three tokens that cannot be chosen.
  const int64_t choosable = half - (config.functional_targets ? 0 : kNumFunctional);
  const int64_t most = half > choosable ? 2 * choosable + 1 : 2 * half;
  faults.Require(config.num_predict >= 1 && config.num_predict <= most,
                 absl::StrCat("num_predict=",
                              config.num_predict,
                              " must be in [1, ",
                              most,
                              "] for seq_len=",
                              config.seq_len));
  faults.Require(config.mask_beta >= 1 && config.mask_alpha >= config.mask_beta,
                 absl::StrCat("mask_alpha=",
                              config.mask_alpha,
                              ", mask_beta=",
                              config.mask_beta,
                              " must satisfy mask_alpha >= mask_beta >= 1"));
  faults.Require(config.mask_alpha <= kMaxSeqLen,
                 absl::StrCat("mask_alpha=", config.mask_alpha, " must be at most ", kMaxSeqLen));
  faults.Require(
      config.max_span >= 1 && config.max_span <= half,
      absl::StrCat("max_span=", config.max_span, " must be in [1, seq_len / 2 = ", half, "]"));
}

}  // namespace

absl::Status SamplingConfig::Validate(SampleKind kind) const {
  FaultList faults;
  faults.Require(seq_len >= 1 && seq_len <= kMaxSeqLen,
                 absl::StrCat("seq_len=", seq_len, " must be in [1, ", kMaxSeqLen, "]"));
  if (kind == SampleKind::kPairs) CheckPairs(*this, faults);
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("[sampling] ", faults.Joined()));
}

}  // namespace anyorder
