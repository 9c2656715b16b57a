// What any-order objectives keep alike, and what those of masked diffusion draw: how much of the
// text is masked, and which tokens.
//
// The bound that they all estimate (Sahoo et al. 2024, MDLM, equation 10; Nie et al. 2025, LLaDA,
// equation 3), for text of L tokens:
//
//   -log p(x) <= E over p ~ U(0, 1), each token masked with probability p, of (1/p) sum over masked
//   i of -log p(x_i | the others)
//
// It is the mean over all orders of the any-order model's likelihood (Ou et al. 2024), since a set
// of k of L tokens is masked with weight integral of p^(k-1) (1-p)^(L-k) dp = 1 / (k (L choose k)).
//
// All draws are functions of (seed, step, lane), like everything that a run draws.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "core/base/philox.h"
#include "core/config/any_order_config.h"
#include "core/objective/objective.h"

namespace anyorder {

class AnyOrderObjective : public Objective {
 public:
  using Objective::Objective;

 protected:
  const AnyOrderConfig config_ = sampling_.any_order;
};

// A stream that all lanes of the step share.
RandomStream StepDraws(const TextSample& sample);

// Draw `index` of `count` that the lane makes this step, uniform in [0, 1). With stratified_rates
// the draws of all lanes together are spread evenly, as rate_strata says, with i = lane * count +
// index of n = num_lanes * count. Each alone is uniform, so expectations stay. Only a van der
// Corput sequence needs no n: its first 2^k numbers are a grid, whichever k.
double SpreadUniform(const TextSample& sample, int64_t index, int64_t count,
                     const AnyOrderConfig& config);

// InvalidArgument where rate_strata is set and stratified_rates is not.
absl::Status CheckStrata(const AnyOrderConfig& config);

struct MaskedText {
  std::vector<uint8_t> masked;  // [length]
  std::vector<float> weights;   // [length] loss weight where masked, else 0
};

// Masks tokens [0, length) in blocks of `block_len`, each at a rate of its own in [mask_rate_min,
// mask_rate_max]. With weights 1/p the sum of weights over a block has the mean block_len; with 1/t
// (MDLM's log-linear schedule, p = (1 - eps) t, of which it is the rate alpha'(t) / (1 - alpha(t)))
// that is 1 - eps as much. With keep_first_token the first is unmasked again, after all draws: what
// is left is the draw for the other tokens alone, of rates as of counts. REQUIRES: with
// resample_blocks, CheckResampling and blocks of one length.
MaskedText DrawMasks(const TextSample& sample, const AnyOrderConfig& config, int64_t length,
                     int64_t block_len, RandomStream& random);

// Dream's CART weights in place of the others: that of masked token i is the sum over unmasked j of
// 0.5 p (1 - p)^(|i - j| - 1), p = 0.3, as far as j is in the document of i. O(length).
// `documents`: a number for each token, at least, equal in neighbours that may see each other.
void WeighByContext(const std::vector<int32_t>& documents, MaskedText& text);

// What a lane adds to the number that the whole step's sum of losses is divided by
// (Batch::divisors, summed over microbatches and ranks): its tokens, those that can be masked;
// those that are; or 1, a lane's weights being those of its mean. Never 0, so that a step without
// any has loss 0, not 0 / 0.
double DivisorOf(const MaskedText& text, const AnyOrderConfig& config);

// InvalidArgument with resample_blocks where no mask of a block would do.
absl::Status CheckResampling(const AnyOrderConfig& config);

// Whether weights and divisor are those of a mean that is the NLL of single tokens, and the bound
// of more.
bool AverageIsNll(const AnyOrderConfig& config);

// What the weighted losses of DrawMasks are the mean of, by the range of rates: a bound only where
// that is (nearly) all of (0, 1].
std::string DiffusionQuantity(const AnyOrderConfig& config);

// InvalidArgument unless rates can be drawn.
absl::Status CheckMaskRates(const AnyOrderConfig& config);

// How networks of masked diffusion, whole or by blocks, read text with blanks.
CanvasForm DiffusionCanvas(CanvasFamily family, const AnyOrderConfig& config, int64_t seq_len,
                           const GenerationTokens& tokens);

}  // namespace anyorder
