// How a network reads a text some of whose tokens are blank, and predicts blanks: what any-order
// generation and scoring need of an objective. core/generate/any_order knows these families and no
// objective.
//
// A canvas is a text of fixed length: each position holds a token or is blank. What a family says
// is which slots its tokens and blanks become and who sees whom; everything else about writing (how
// many at once, which first, from which distribution) is a method's.

#pragma once

#include <cstdint>

#include "core/base/check.h"
#include "core/objective/lane_frame.h"

namespace anyorder {

enum class CanvasFamily {
  // Masked diffusion: blanks are <mask> slots, everybody sees everybody. Keys are never final.
  kMasked,
  // Block diffusion: the same within a block; finished blocks see themselves and those before.
  // Their keys are final.
  kBlocks,
  // Two streams (XLNet, A3, AS-ARM): tokens have ranks in the order of writing and see ranks up to
  // their own; a blank is a query slot that sees the ranks below the one it is to get. Keys are
  // final.
  kTwoStream,
  // Eso-LM: as kTwoStream, but a blank is a <mask> content slot (EsoForm below).
  kEso,
  // sigma-GPT: tokens in the order of writing, read causally; a token's slot predicts the position
  // that it names. Keys are final. The first token of the order must be given.
  kPairs,
  // Causal models: each token is predicted by the one before it. They score texts from left to
  // right; blanks with text behind them they cannot fill.
  kCausal,
};

// What clean tokens and masks of Eso-LM see (core/config/any_order_config.h, EsoForm).
struct EsoVisibility {
  bool clean_see_all = false;  // form A: clean tokens see all clean ones, so keys are not final
  bool masks_see_all = false;  // form "mixed": masks of the diffusion phase see all masks
  double diffusion_share = 1;  // alpha_0
};

struct CanvasForm {
  CanvasFamily family = CanvasFamily::kMasked;
  int64_t seq_len = 0;       // positions that training had
  int64_t block_len = 0;     // kBlocks
  bool shifted = false;      // kMasked, kBlocks: the slot before a blank predicts it
  bool first_given = false;  // the first token (kPairs: one token) was never predicted in training
  int32_t mask_token = 0;
  int32_t end_token = 0;  // ends a document
  EsoVisibility eso = {};

  // Whether a token's slot predicts the token after it in the order.
  bool predicts_next() const {
    return family == CanvasFamily::kPairs || family == CanvasFamily::kCausal;
  }

  // A written token at `pos`. `rank`: its place in the order of writing, or of its group; tokens of
  // one rank see one another. kMasked ignores it; of kBlocks it is the block (BlockOf). `next`:
  // kPairs, the position that its slot predicts.
  Slot Token(int32_t token, int64_t pos, int64_t rank, int64_t next = 0) const {
    Slot slot = RankedSlot(token, pos, family == CanvasFamily::kMasked ? 0 : rank);
    slot.next = static_cast<int32_t>(next);
    return slot;
  }
  // A blank at `pos` that is predicted from tokens of ranks below `rank`.
  //   kMasked     a <mask> that everybody sees.
  //   kBlocks     a slot of block `rank`'s noised copy, seen by that block alone.
  //   kTwoStream  a query slot.
  //   kEso        a <mask> that blanks of a higher rank see too (equal ranks: each other).
  // Not where predicts_next().
  Slot Blank(int64_t pos, int64_t rank) const {
    switch (family) {
      case CanvasFamily::kMasked: return RankedSlot(mask_token, pos, 0);
      case CanvasFamily::kBlocks: return UnfinishedToken(mask_token, pos);
      case CanvasFamily::kTwoStream:
        return {.pos = static_cast<int32_t>(pos), .lim = static_cast<int32_t>(rank - 1)};
      case CanvasFamily::kEso: return RankedSlot(mask_token, pos, rank);
      case CanvasFamily::kPairs:
      case CanvasFamily::kCausal: break;
    }
    ANYORDER_CHECK(false) << "a blank has no slot in a network whose tokens predict the next one";
    return {};
  }
  // kBlocks: a token inside a block that has blanks: it stands in the noised copy.
  Slot UnfinishedToken(int32_t token, int64_t pos) const {
    ANYORDER_CHECK(family == CanvasFamily::kBlocks) << "only block diffusion has a noised copy";
    return GroupSlot(token, pos, BlockOf(pos) - 1, BlockOf(pos));
  }
  // kPairs: a copy of a token that was written already, which sees the ranks below its own and
  // itself, is seen by nobody, and predicts position `next`. kEso: a <mask> that sees ranks below
  // `rank` and itself, and that nobody sees (the sequential phase). `group` differs from those of
  // all other slots of the pass.
  Slot LoneSlot(int32_t token, int64_t pos, int64_t rank, int64_t group, int64_t next = 0) const {
    Slot slot = GroupSlot(token, pos, rank - 1, group);
    slot.next = static_cast<int32_t>(next);
    return slot;
  }

  int64_t BlockOf(int64_t pos) const { return pos / block_len; }
};

}  // namespace anyorder
