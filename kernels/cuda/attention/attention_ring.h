// The ring kernels of attention: tensor cores, bf16, head_dim 64 (attention_index.h has the idea).
// The plan is made on the device, because positions and visibility are there; the host only knows
// the most tiles that a lane may have.

#pragma once

#include "core/base/dtype.h"
#include "core/base/stream.h"
#include "kernels/cuda/attention/attention_index.h"
#include "kernels/cuda/attention/attention_types.h"

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
  int32_t origin;  // row of `relative` at band column 0; out of the table where no pair of the tile
                   // is in it
  int32_t stream;  // 0: content, 1: query
  int32_t cost;    // of a head, in any unit: what the work list is ordered by
  SlotSummary rows;
};

// Made by MakeRingPlan for one problem.
struct RingPlan {
  int32_t* forms;  // [2 * B], AttentionPrepared::forms
  int key_tiles;
  int capacity[2];        // the most tiles of a lane's streams
  RingRowTile* tiles[2];  // [B, capacity]
  // [B, capacity of both]: the same tiles, each lane's in falling order of cost; those without rows
  // are the last.
  RingRowTile* work;
  SlotSummary* keys;     // [B, key_tiles]
  RingKeyOrder* orders;  // [B, key_tiles * kKeyTile]
  RingKeyRule* rules;    // the same
};

// The blocks that `num_lanes` lanes and `num_heads` heads take: as many as there may be tiles.
// Block number i has the tile at i / (num_heads * num_lanes) of its lane's work: the longest tiles
// of all lanes and heads start first, so that none of them starts when the others end, and blocks
// without rows come last. It finds it without asking for what others do.
inline int64_t RingBlocks(const RingPlan& plan, int num_lanes, int num_heads) {
  return int64_t{plan.capacity[0] + plan.capacity[1]} * num_lanes * num_heads;
}

// Whether the ring kernels may take rows of this problem, as far as the host knows; `in.is_aligned`
// speaks of out, dout and dq too.
bool RingApplies(const AttentionProblem<BFloat16>& in);

// Bytes of a plan, a multiple of 16, and the plan's places in `memory`, which is aligned to 16
// bytes.
int64_t RingPlanBytes(const AttentionShape& shape);
RingPlan PlaceRingPlan(const AttentionShape& shape, void* memory);

// REQUIRES below: RingApplies. A plan depends on sizes but those of heads and tables, on rows, keys
// and min_distance alone.
void MakeRingPlan(const AttentionProblem<BFloat16>& in, const RingPlan& plan, StreamView stream);
// Rows whose form is kRingForm: out and lse.
void AttentionRingForward(const AttentionForwardParams<BFloat16>& params, const RingPlan& plan,
                          StreamView stream);
// Computes dq and `scores` for these rows of params.scores.group.
void AttentionRingBackward(const AttentionBackwardParams<BFloat16>& params, const RingPlan& plan,
                           StreamView stream);

}  // namespace anyorder::kernels::cuda
