// The learned bias by distance (T5) of a row block against a chunk of keys, added to scores after
// the scale.
//
// Column c(i, j) = pos_j - pos_i + R' - 1 + min_bias_distance of the reversed table rises by one
// from key to key where positions do: a tile of such keys reads 64 columns side by side. All
// columns before the table equal its first one and all after it its last; 64 copies of each end
// stand around the packed table, so that a tile's first column, clamped to them, still gives every
// key its own. Gradients are gathered in the same columns; whoever sums the slabs folds the copies.

#pragma once

#include "kernels/cpu/attention/attention_task.h"

namespace anyorder::kernels::cpu::ANYORDER_ISA {

static_assert(kBiasPad >= kTileKeys);

// The packed column of a row at `pos` and a key at `key_pos`, or of a tile's first key.
ANYORDER_SIMD int64_t BiasColumn(const AttentionProblem& p, int64_t pos, int64_t key_pos) {
  const int64_t column = key_pos - pos + p.num_bias_distances - 1 + p.min_bias_distance;
  return kBiasPad + Min(p.num_bias_distances, Max(-kBiasPad, column));
}

// What the columns of `table` and the scores of the pairs have to do with each other.
enum class BiasPass {
  kForward,  // scores += the packed bias, both in units of log2(e)
  // sums += ds, of natural scores, which stands where the scores were, 0 for pairs that do not see
  // each other. Rows outside, tiles inside: the columns of a row were written by the row before it,
  // and are out of the store buffer by then.
  kBackward
};
template <BiasPass kPass, typename Element>
inline void AddByDistance(const AttentionProblem& p, const HeadTask& task,
                          const RowBlock<Element>& block, const KeyChunk& chunk, float* table) {
  constexpr bool kIsForward = kPass == BiasPass::kForward;
  for (int64_t r = 0; r < block.count; ++r) {
    const int64_t pos = p.rows.pos[block.row + r];
    for (int64_t t = 0; t < chunk.end_tile - chunk.begin_tile; ++t) {
      if (block.views[t] == TileView::kSkip) continue;
      const int32_t* key_pos = task.keys.pos + (chunk.begin_tile + t) * kTileKeys;
      float* scores = block.ScoreRow(r) + t * kTileKeys;
      if (task.tiles[chunk.begin_tile + t].contiguous) {
        float* columns = table + BiasColumn(p, pos, key_pos[0]);
        float* to = kIsForward ? scores : columns;
        const float* from = kIsForward ? columns : scores;
        for (int64_t j = 0; j < kTileKeys; j += kLanes)
          Store(to + j, Add(Load(to + j), Load(from + j)));
      } else {
        for (int64_t j = 0; j < kTileKeys; ++j) {
          float& column = table[BiasColumn(p, pos, key_pos[j])];
          if (kIsForward)
            scores[j] += column;
          else
            column += scores[j];
        }
      }
    }
  }
}

}  // namespace anyorder::kernels::cpu::ANYORDER_ISA
