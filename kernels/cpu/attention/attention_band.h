// The relative-position term of a row block against a chunk of keys.
//
// With x(i, j) = pos_j - pos_i + R - 1 + min_distance the column of the packed (reversed) table,
// key slots whose positions rise by one make x rise by one: the term of a group of rows is one
// product with a window of the table, stored with each row shifted by its own amount. No element is
// gathered and a group of six rows wastes five columns. Rows need not be contiguous, only near each
// other (kMaxSpan); rows that are not form groups of their own. Chunks whose keys are not
// contiguous take the slow, general road: a product with all distances that the chunk can need,
// then a gather.
// Columns beyond the table belong to invisible pairs only: windows are clipped, what stays in the
// score buffer there is never used.

#pragma once

#include "kernels/cpu/attention/attention_task.h"

namespace anyorder::kernels::cpu::ANYORDER_ISA {

// Rows [row, row + count) of a block and the window [low, high) of table columns that they need.
struct RowGroup {
  int64_t row = 0;
  int64_t count = 0;
  int64_t low = 0;
  int64_t high = 0;
};

inline int64_t TableOrigin(const AttentionProblem& p) {
  return p.num_distances - 1 + p.min_distance;
}

// Makes a group of rows at positions `span`, with keys at `key_positions`.
inline RowGroup MakeRowGroup(const AttentionProblem& p, int64_t row, int64_t count,
                             const Range& span, const Range& key_positions) {
  return {row, count, Max(0, key_positions.min - span.max + TableOrigin(p)),
          Min(p.num_distances, key_positions.max + 1 - span.min + TableOrigin(p))};
}

inline Range RangeOf(const int32_t* values, int64_t count) {
  Range range;
  for (int64_t i = 0; i < count; ++i) range.Include(values[i]);
  return range;
}

// Cuts the first `end` rows of a block into groups of at most `most` rows within kMaxSpan of
// positions, for keys at positions [first, first + num_keys). groups: [end]; returns how many.
inline int64_t MakeRowGroups(const AttentionProblem& p, const int32_t* pos, int64_t end,
                             int64_t most, const Range& key_positions, RowGroup* groups) {
  int64_t count = 0;
  int64_t row = 0;
  while (row < end) {
    Range span;
    span.Include(pos[row]);
    int64_t next = row + 1;
    for (; next < end && next - row < most; ++next) {
      Range wider = span;
      wider.Include(pos[next]);
      if (wider.max - wider.min > kMaxSpan) break;
      span = wider;
    }
    groups[count++] = MakeRowGroup(p, row, next - row, span, key_positions);
    row = next;
  }
  return count;
}

// The band of scores of rows against keys, and where in the score buffer it goes.
struct BandPlace {
  int64_t key = 0;     // first key slot
  int64_t keys = 0;    // how many
  int64_t column = 0;  // of the first, in score rows
};

template <class Number>
inline PanelArgs PositionPanel(const HeadTask& task,
                               const RowBlock<typename Number::Element>& block, int64_t row) {
  PanelArgs args;
  args.a = block.position_query + row * task.padded;
  args.a_row_bytes = task.padded * static_cast<int64_t>(sizeof(typename Number::Element));
  args.a_step_bytes = 4;
  args.b_step = task.distance_columns;
  args.steps = task.padded / Number::kPerWord;
  return args;
}

inline int64_t RoundUpColumns(int64_t columns) {
  return (columns + kColumnUnit - 1) / kColumnUnit * kColumnUnit;
}

// Overwrites the scores with the position term; keys contiguous.
template <class Number>
inline void SkewedBandScores(const AttentionProblem& p, const HeadTask& task,
                             const RowBlock<typename Number::Element>& block,
                             const BandPlace& place) {
  constexpr int64_t kPanelColumns = 64;
  const int32_t* pos = p.rows.pos + block.row;
  const int64_t first = task.keys.pos[place.key];
  const int64_t origin = TableOrigin(p);
  RowGroup groups[kRowBlock];
  const int64_t num_groups =
      MakeRowGroups(p, pos, block.count, kPanelRows, Range{first, first + place.keys - 1}, groups);
  // Columns outside, groups inside: neighbouring groups want nearly the same panel of the table,
  // which then is in the first-level cache.
  bool more = true;
  for (int64_t offset = 0; more; offset += kPanelColumns) {
    more = false;
    for (int64_t g = 0; g < num_groups; ++g) {
      const RowGroup& group = groups[g];
      const int64_t x = group.low + offset;
      if (x >= group.high) continue;
      more = true;
      float* c[kPanelRows];
      for (int64_t m = 0; m < group.count; ++m) {
        const int64_t shift = first - pos[group.row + m] + origin;
        c[m] = block.ScoreRow(group.row + m) + place.column + (x - shift);
      }
      PanelArgs args = PositionPanel<Number>(task, block, group.row);
      args.b = task.relative_transposed + x;
      args.c = c;
      Panel<Number>(group.count, args, Min(kPanelColumns, RoundUpColumns(group.high - x)));
    }
  }
}

// Band scores for any key positions. window: [kPanelRows][distance_columns] floats.
template <class Number>
inline void GatheredBandScores(const AttentionProblem& p, const HeadTask& task,
                               const RowBlock<typename Number::Element>& block,
                               const BandPlace& place, float* window) {
  const int32_t* pos = p.rows.pos + block.row;
  const int32_t* key_pos = task.keys.pos + place.key;
  const Range positions = RangeOf(key_pos, place.keys);
  for (int64_t row = 0; row < block.count; row += kPanelRows) {
    const int64_t count = Min(kPanelRows, block.count - row);
    const RowGroup group = MakeRowGroup(p, row, count, RangeOf(pos + row, count), positions);
    const int64_t low = group.low;
    const int64_t high = group.high;
    float* c[kPanelRows];
    for (int64_t m = 0; m < count; ++m) c[m] = window + m * task.distance_columns;
    if (low < high) {
      PanelArgs args = PositionPanel<Number>(task, block, row);
      args.b = task.relative_transposed + low;
      args.c = c;
      Panel<Number>(count, args, RoundUpColumns(high - low));
    }
    for (int64_t m = 0; m < count; ++m) {
      const int64_t shift = TableOrigin(p) - low - pos[row + m];
      float* scores = block.ScoreRow(row + m) + place.column;
      for (int64_t j = 0; j < place.keys; ++j) {
        const int64_t x = key_pos[j] + shift;
        scores[j] = x >= 0 && x < high - low ? c[m][x] : 0.0f;
      }
    }
  }
}

// Overwrites the scores of a chunk's `tiles` with the position term, by the road that fits (or
// leaves them where there is no table); returns where they are. window: scratch of
// GatheredBandScores.
template <class Number>
inline BandPlace PositionScores(const AttentionProblem& p, const HeadTask& task,
                                const RowBlock<typename Number::Element>& block,
                                const KeyChunk& chunk, const Range& tiles, float* window) {
  const int64_t key = (chunk.begin_tile + tiles.min) * kTileKeys;
  const int64_t keys = (tiles.max + 1 - tiles.min) * kTileKeys;
  const BandPlace place{key, Min(keys, task.keys.count - key), tiles.min * kTileKeys};
  if (p.num_distances > 0) {
    if (chunk.contiguous)
      SkewedBandScores<Number>(p, task, block, place);
    else
      GatheredBandScores<Number>(p, task, block, place, window);
  }
  return place;
}

}  // namespace anyorder::kernels::cpu::ANYORDER_ISA
