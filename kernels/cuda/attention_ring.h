// The ring kernels of attention: tensor cores, bf16, head_dim 64 (attention_index.h has the idea). The plan is made on the device, because
// positions and visibility are there; the host only knows the most tiles that a lane may have.

#pragma once

#include "core/base/dtype.h"
#include "core/base/stream.h"
#include "kernels/cuda/attention_index.h"
#include "kernels/cuda/attention_types.h"

namespace anyorder::kernels::cuda {

// A key slot as the kernels copy it: of a pad, key is kKeyNever and doc kDocPad.
struct alignas(8) RingKeyOrder {
  int32_t key;
  int32_t seg;
};
struct alignas(16) RingKeyRule {
  int32_t pos;
  int32_t grp;
  int32_t doc;
  int32_t glob;
};

// Rows [first_row, first_row + num_rows) of the problem; no rows: nothing to do.
struct RingRowTile {
  int64_t first_row;
  int32_t num_rows;
  int32_t lane;
  int32_t first_pos;  // lowest position
  int32_t
      origin;  // row of `relative` at band column 0; out of the table where no pair of the tile is in it
  SlotSummary rows;
};

// Made by MakeRingPlan for one problem. Index of tiles[stream]: lane * capacity[stream] + tile.
struct RingPlan {
  int32_t* forms;  // [2 * B], AttentionPrepared::forms
  int key_tiles;
  int capacity[2];
  RingRowTile* tiles[2];
  SlotSummary* keys;     // [B, key_tiles]
  RingKeyOrder* orders;  // [B, key_tiles * kKeyTile]
  RingKeyRule* rules;    // the same
};

// Whether the ring kernels may take rows of this problem, as far as the host knows; `in.is_aligned` speaks of out, dout and dq too.
bool RingApplies(const AttentionProblem<BFloat16>& in);

// Bytes of a plan, a multiple of 16, and the plan's places in `memory`, which is aligned to 16 bytes.
int64_t RingPlanBytes(const AttentionShape& shape);
RingPlan PlaceRingPlan(const AttentionShape& shape, void* memory);

// REQUIRES below: RingApplies.
void MakeRingPlan(const AttentionProblem<BFloat16>& in, const RingPlan& plan, StreamView stream);
// Rows whose form is kRingForm: out and lse.
void AttentionRingForward(const AttentionForwardParams<BFloat16>& params,
                          const RingPlan& plan,
                          StreamView stream);
// The same rows of params.scores.group: dq and `scores`.
void AttentionRingBackward(const AttentionBackwardParams<BFloat16>& params,
                           const RingPlan& plan,
                           StreamView stream);

}  // namespace anyorder::kernels::cuda
