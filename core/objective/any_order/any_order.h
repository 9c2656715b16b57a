// Today's any-order models (any_order.md), which read windows of text without memory, what they
// keep alike, and what those of masked diffusion draw: how much of the text is masked, and which
// tokens.
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

// Masked diffusion language models: MDLM (Sahoo et al. 2024) and LLaDA (Nie et al. 2025). A random
// share p of the tokens is replaced by <mask>, everybody sees everybody, and each masked token's
// loss weighs 1/p: an upper bound of the text's NLL (above).
ObjectiveOrStatus MakeMaskedDiffusion(const ObjectiveSettings& settings);

// Masked diffusion fine-tuned on prompts with answers (Nie et al. 2025, section 2.3): examples of
// generation. The prompt is given, the answer and the <eod> that pads it are masked, seen and
// predicted like text. A prompt that does not fit loses its first tokens, down to half of the
// slots; then the answer its last ones, and with them its <eod>.
ObjectiveOrStatus MakeMaskedDiffusionSft(const ObjectiveSettings& settings);

// Block diffusion (Arriola et al. 2025, BD3-LM): blocks of text from left to right, each generated
// by masked diffusion given the blocks before it. Each lane holds the text twice, clean and noised:
// a noised block sees itself and the clean blocks before it, so that one pass gives the losses of
// all blocks. Blocks of one token at rate 1 are a causal model, one block is masked_diffusion.
ObjectiveOrStatus MakeBlockDiffusion(const ObjectiveSettings& settings);

// Eso-LM (Sahoo et al. 2025, "Esoteric language models"): diffusion generates a share alpha_0 of
// the tokens in random order, then the others follow from left to right. The loss is the sum of
// both phases' bounds; each lane holds both, as two documents.
ObjectiveOrStatus MakeEsoLm(const ObjectiveSettings& settings);

// A3 ("any-order any-subset autoregressive" modelling, ICLR 2026): tokens are put into groups,
// groups into an order; a group is predicted from the groups before it, its tokens independently of
// each other. Two streams: content sees groups up to its own, queries those before it, themselves
// never.
ObjectiveOrStatus MakeA3(const ObjectiveSettings& settings);

// AS-ARM, the any-subset autoregressive model behind ASSD (Guo and Ermon 2025): a prompt of random
// tokens is given, its tokens seeing one another; all others are predicted from left to right, each
// from the prompt and those before it. XLNet's two streams.
ObjectiveOrStatus MakeAsArm(const ObjectiveSettings& settings);

// sigma-GPT (Pannatier, Courdier and Fleuret 2024, section 3): the tokens of a window in random
// order, read causally in one stream. Slot t holds the t-th token of the order, knows its position
// and that of the next one, and predicts that. The first is given; the last one, of which nothing
// follows, is only predicted.
ObjectiveOrStatus MakeSigmaGpt(const ObjectiveSettings& settings);

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
