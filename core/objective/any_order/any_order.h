// Today's any-order models (any_order.md). All read windows of text without memory; those of
// diffusion share mask_noise.h.

#pragma once

#include "core/objective/objective.h"

namespace anyorder {

// Masked diffusion language models: MDLM (Sahoo et al. 2024) and LLaDA (Nie et al. 2025). A random
// share p of the tokens is replaced by <mask>, everybody sees everybody, and each masked token's
// loss weighs 1/p: an upper bound of the text's NLL (mask_noise.h).
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

}  // namespace anyorder
