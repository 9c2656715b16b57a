// Pseudo-masked language model (UniLMv2, Bao et al. 2020): two losses on the same masked tokens
// from one forward pass.
//
// Autoencoding (AE): each masked token from the context alone, read where a [M] stands for it.
// Partially autoregressive (PAR): block after block in a random order, each from the context and
// the true tokens of the blocks before it, read where a [P] stands for it. unilmv2.md has the
// slots, the mask and what the paper leaves open.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "core/base/philox.h"
#include "core/objective/objective.h"

namespace anyorder {

// Slots a lane, all of them content, m = the most tokens that can be masked: seq_len of the text, m
// [M], m [P]. [M] and [P] share position and segment with the token they stand for and come in the
// order of the factorisation. A [P] holds <mask>, as in the authors' fine-tuning code; what is left
// over is padding (doc -1).
// InvalidArgument: memory, two directions, blocks that cannot be drawn.
ObjectiveOrStatus MakeUnilmV2(const ObjectiveSettings& settings);

// UniLMv2's fine-tuning for generation (Bao et al. 2020, section 3.5; the authors' s2s-ft): [SOS]
// source [EOS] target [EOS], every target token predicted from the source and the target tokens
// before it, all in one pass.
//
// Learns from generation examples. Slots a lane, all of them content: seq_len of the text,
// num_predict [P]. The source has rank 0; the t-th target token, its [EOS] among them, has rank t,
// and its [P], at the same position, sees ranks below t and itself. So a network writes as it has
// learned: Generation() has the same slots. Target tokens that others read are replaced with
// target_replace_prob: by <mask>, a random token or themselves as mask_token_prob and
// random_token_prob say; what is asked for is the true token.
//
// A target is cut to num_predict - 1 tokens, a source to what then remains of seq_len, both at
// their ends; a text that is shorter leaves padding (doc -1).
// InvalidArgument: memory, two directions, no room for a source.
ObjectiveOrStatus MakeUnilmV2Seq2seq(const ObjectiveSettings& settings);

// Which tokens a pseudo-masked language model predicts, and in which order (UniLMv2: Bao et al.
// 2020, section 3.4 and algorithm 1). Blocks are drawn one after the other; the order of drawing is
// the factorisation order.
// One step of the factorisation: tokens [begin, end).
struct TokenBlock {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const TokenBlock& other) const = default;
};

// Tokens after which drawing stops in a sequence of `size` tokens: mask_fraction of them.
int64_t BlockGoal(const SamplingConfig& sampling, int64_t size);
// The most tokens that can come out: the last block may go beyond the goal, but not beyond
// num_predict. With 512 tokens and the published setting 82, so that num_predict binds in no draw.
int64_t MostInBlocks(const SamplingConfig& sampling, int64_t size);

// Blocks in the order of drawing: a begin uniform over the sequence and a length, in a share
// block_span_prob of the draws block_min_span to block_max_span, else one, accepted if the block
// stays in the sequence, touches no block before it and no special token, and does not go above
// num_predict. Since special tokens end segments, no block reaches into another. `is_special`
// [size]: 1 where a token may not be predicted.
// REQUIRES: block_span_prob < 1, BlockGoal(size) <= num_predict; BlockGoal(size) tokens are not
// special, so that single tokens can always fill up what spans leave.
std::vector<TokenBlock> DrawBlocks(const SamplingConfig& sampling,
                                   absl::Span<const uint8_t> is_special, RandomStream& random);

}  // namespace anyorder
