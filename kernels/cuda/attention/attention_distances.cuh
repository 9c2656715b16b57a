// Gradient of the relative tables: drelative[table][r] = sum over pairs at distance r of gradient *
// (q + position_bias).
//
// A block has a tile of distances of one table and head, and every `slots`-th lane of that table.
// For each row it gathers the gradients at its distances, which turns the sum over pairs into a
// product weights^T q as in attention_keys.cu. Sums go on from group to group of lanes in the
// order of lanes, so that their bits do not depend on how lanes are grouped; those of the slots are
// added at the end, in order.

#pragma once

#include "kernels/cuda/attention/attention_product.cuh"

namespace anyorder::kernels::cuda {

// The grid is (tiles of distances; heads of the group; slots * tables).
template <typename T>
struct DistanceGradientParams {
  AttentionProblem<T> in;
  AttentionScores<T> scores;
  KeyOrder order;
  int slots;
  bool adds;       // to what an earlier group of lanes left
  float* sums;     // [slots, num_tables, R, H*D]: of gradient * q
  float* weights;  // [slots, num_tables, H, R]: of the gradients alone
};

// The steps of rows that a block goes through: lanes of its slot and table, and those rows that may
// meet its distances.
template <typename T>
struct DistanceWalk {
  const DistanceGradientParams<T>& p;
  int head;
  int slot;
  int table;
  int64_t low;  // distance
  int64_t high;
  int lane = 0;
  int turn = 0;  // how many lanes before `lane` have this table
  int step = 0;

  ANYORDER_DEVICE DistanceWalk(const DistanceGradientParams<T>& params, int distances)
      : p(params),
        head(params.scores.group.first_head + BlockY()),
        slot(BlockZ() / params.in.num_tables),
        table(BlockZ() % params.in.num_tables),
        low(params.in.min_distance + int64_t{BlockX()} * distances),
        high(low + distances - 1) {
    while (lane < p.scores.group.first_lane) NextLane();
    Seek();
  }

  ANYORDER_DEVICE int EndLane() const {
    return p.scores.group.first_lane + p.scores.group.num_lanes;
  }
  ANYORDER_DEVICE bool IsAtEnd() const { return lane >= EndLane(); }
  ANYORDER_DEVICE void Next() {
    ++step;
    Seek();
  }
  ANYORDER_DEVICE RowStep Rows() const { return RowStep::Of(p.in, p.scores.group, lane, step); }

  // Index of the block's first distance in `sums` (rows) and `weights`.
  ANYORDER_DEVICE int64_t FirstSum() const {
    return (int64_t{slot} * p.in.num_tables + table) * p.in.num_distances + low - p.in.min_distance;
  }
  ANYORDER_DEVICE int64_t FirstWeight() const {
    return ((int64_t{slot} * p.in.num_tables + table) * p.in.num_heads + head) *
               p.in.num_distances +
           low - p.in.min_distance;
  }
  ANYORDER_DEVICE int Count() const {
    const int64_t left = p.in.min_distance + p.in.num_distances - low;
    return static_cast<int>(left <= high - low ? left : high - low + 1);
  }

 private:
  ANYORDER_DEVICE void Seek() {
    const int steps = RowSteps(p.in.content_rows, p.in.query_rows);
    for (; lane < EndLane(); NextLane()) {
      // Numbered within the table: reading directions alternate from lane to lane, and a slot of
      // every fourth lane would have one alone.
      if (p.in.TableOf(lane) != table || turn % p.slots != slot) continue;
      for (; step < steps; ++step) {
        if (Meets(p.order.row_ranges[int64_t{lane} * steps + step], p.order.lanes[lane])) return;
      }
    }
  }
  ANYORDER_DEVICE void NextLane() {
    if (p.in.TableOf(lane) == table) ++turn;
    ++lane;
    step = 0;
  }
  ANYORDER_DEVICE bool Meets(const PositionRange& rows, const KeyLane& keys) const {
    if (rows.low == kNoPosition || keys.low == kNoPosition) return false;
    return rows.low - keys.high <= high && rows.high - keys.low >= low;
  }
};

// The gradient of a row at a distance: of the one key there, or of all of them where several slots
// share a position.
template <typename T>
ANYORDER_DEVICE float GradientAt(const LaneKeys& keys, const ScoreRow<T>& row, int64_t key_pos) {
  if (keys.is_affine) {
    const int64_t slot = key_pos - keys.base;
    return row.Has(slot) ? ToFloat(row.values[slot]) : 0.0f;
  }
  float sum = 0;
  for (int n = keys.CountBelow(key_pos); n < keys.num_keys && keys.positions[n] == key_pos; ++n) {
    const int slot = keys.slots[n];
    if (row.Has(slot)) sum += ToFloat(row.values[slot]);
  }
  return sum;
}

template <int kGroups>
struct DistanceMemory {
  float* weights;  // [32 distances, kScoreStride]
  float* rows;     // [32, stride]
  int32_t* docs;   // kDocPad: a row that sees nothing

  static constexpr int64_t kFloats =
      kTileKeys * kScoreStride + kTileRows * TileColumns<kGroups>::kStride + kTileRows;
  static constexpr int64_t kBytes = kFloats * int64_t{sizeof(float)};
  ANYORDER_DEVICE static DistanceMemory OfBlock() {
    DistanceMemory memory;
    memory.weights = reinterpret_cast<float*>(SharedMemory());
    memory.rows = memory.weights + kTileKeys * kScoreStride;
    memory.docs =
        reinterpret_cast<int32_t*>(memory.rows + kTileRows * TileColumns<kGroups>::kStride);
    return memory;
  }
};

// 32 distances a block; thread rows (attention_general.cuh) are distances here.
template <typename T, int kGroups>
struct GeneralDistanceBlock {
  const DistanceWalk<T>& walk;
  DistanceMemory<kGroups> memory;

  // 32 rows from `first` of the step: a warp has every fourth row, a lane one distance.
  ANYORDER_DEVICE void LoadWeights(const RowStep& rows, int first) const {
    const LaneKeys keys(walk.p.order, walk.lane, walk.p.in.num_keys);
    for (int row = Thread() / kWarp; row < kTileRows; row += kTileThreads / kWarp) {
      float weight = 0;
      bool sees = false;
      if (first + row < rows.count) {
        const ScoreRow<T> scores(walk.p.scores, rows.group_row + first + row, walk.head);
        sees = scores.begin < scores.end;
        const int64_t pos = walk.p.in.rows.pos[rows.row + first + row];
        if (sees) weight = GradientAt(keys, scores, pos - walk.low - Lane());
      }
      memory.weights[Lane() * kScoreStride + row] = weight;
      if (Lane() == 0) memory.docs[row] = sees ? 0 : kDocPad;
    }
  }

  ANYORDER_DEVICE void AddRows(const RowStep& rows, int first,
                               float (&sums)[kThreadRows][4 * kGroups],
                               float (&weights)[kThreadRows]) const {
    const AttentionProblem<T>& in = walk.p.in;
    SyncBlock();
    LoadWeights(rows, first);
    SyncBlock();
    LoadTile<kGroups>(memory.rows,
                      in.q + (rows.row + first) * in.model_dim() + walk.head * in.head_dim, in,
                      rows.count - first, static_cast<const T*>(nullptr), memory.docs);
    SyncBlock();
    AddWeighted<kGroups>(memory.weights, memory.rows, sums);
    AddWeights(memory.weights, weights);
  }

  // Between memory and the thread's sums, whatever `visit(kept, value)` does with them.
  template <typename Visitor>
  ANYORDER_DEVICE void ForEach(float (&sums)[kThreadRows][4 * kGroups],
                               float (&weights)[kThreadRows], Visitor&& visit) const {
    const AttentionProblem<T>& in = walk.p.in;
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) {
      const int distance = ThreadRow() + r;
      if (distance >= walk.Count()) continue;
      float* const kept = walk.p.sums + (walk.FirstSum() + distance) * in.model_dim() +
                          int64_t{walk.head} * in.head_dim;
      ANYORDER_UNROLL
      for (int d = 0; d < 4 * kGroups; ++d) {
        const int column = ThreadColumn(d / 4) + d % 4;
        if (column < in.head_dim) visit(kept[column], sums[r][d]);
      }
      // Its eight threads have the same sum; one keeps it.
      if (ThreadKey(0) == 0) visit(walk.p.weights[walk.FirstWeight() + distance], weights[r]);
    }
  }
};

template <typename T, int kGroups>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kTileThreads, 3)
    GeneralDistanceGradientKernel(DistanceGradientParams<T> p) {
  DistanceWalk<T> walk(p, kTileKeys);
  const GeneralDistanceBlock<T, kGroups> work{walk, DistanceMemory<kGroups>::OfBlock()};
  float sums[kThreadRows][4 * kGroups] = {};
  float weights[kThreadRows] = {};
  if (p.adds) work.ForEach(sums, weights, [](const float& kept, float& value) { value = kept; });
  for (; !walk.IsAtEnd(); walk.Next()) {
    const RowStep rows = walk.Rows();
    for (int first = 0; first < rows.count; first += kTileRows)
      work.AddRows(rows, first, sums, weights);
  }
  work.ForEach(sums, weights, [](float& kept, float value) { kept = value; });
}

// A row of a step, as gathering asks for it.
struct alignas(16) DistanceRow {
  int64_t slot;  // of the key at the block's first distance; its position where keys are not affine
  int32_t begin;  // slots of the hull
  int32_t end;
};

// 64 distances a block, 16 a warp; bf16 and 64 columns. Memory answers slowly, so that each thing
// is asked for before it is needed: while a tile is multiplied the next one's gradients are on
// their way to registers, its rows to shared memory, and what is known of the rows of the one
// behind.
struct MatrixDistanceBlock {
  static constexpr int kWarps = kProductThreads / kWarp;
  static constexpr int kRowsOfWarp = kProductRows / kWarps;
  static constexpr int64_t kTiles = 3 * kProductElements * int64_t{sizeof(BFloat16)};
  static constexpr int64_t kBytes = kTiles + kProductRows * int64_t{sizeof(DistanceRow)};

  const DistanceGradientParams<BFloat16>& p;
  DistanceWalk<BFloat16> ahead;  // at the step that is asked for next
  // Of the step that is loaded next; the same for all threads.
  int lane = 0;
  RowStep step = {};
  bool is_affine = false;
  // As memory has it, of row Thread() % kProductRows: it is not looked at before it is stored.
  Words2 hull = {};
  int32_t pos = 0;
  int64_t base = 0;
  uint32_t gathered[kRowsOfWarp] = {};  // of rows Thread() / 32 + 4 n: distances 2 Lane() + {0, 1}

  ANYORDER_DEVICE explicit MatrixDistanceBlock(const DistanceGradientParams<BFloat16>& params)
      : p(params), ahead(params, kProductColumns) {}

  ANYORDER_DEVICE static BFloat16* Weights() { return reinterpret_cast<BFloat16*>(SharedMemory()); }
  ANYORDER_DEVICE static BFloat16* Rows(int stage) {
    return Weights() + (1 + stage) * kProductElements;
  }
  ANYORDER_DEVICE static DistanceRow& RowAt(int row) {
    return reinterpret_cast<DistanceRow*>(SharedMemory() + kTiles)[row];
  }

  // Asks for the rows of the step `ahead` is at, and moves it on; whether there is a step.
  ANYORDER_DEVICE bool Ask() {
    if (ahead.IsAtEnd()) return false;
    lane = ahead.lane;
    step = ahead.Rows();
    const KeyLane& keys = p.order.lanes[lane];
    is_affine = keys.is_affine != 0;
    base = keys.base;
    const int row = Thread() % kProductRows;
    hull = {};
    if (row < step.count) {
      hull = LoadTwoWords(p.scores.HullOf(step.group_row + row, ahead.head));
      pos = p.in.rows.pos[step.row + row];
    }
    ahead.Next();
    return true;
  }
  // What Ask asked for; the block reads it behind a barrier.
  ANYORDER_DEVICE void StoreRow() const {
    if (Thread() >= kProductRows) return;
    RowAt(Thread()) = {pos - ahead.low - (is_affine ? base : 0),
                       static_cast<int32_t>(hull.word[0]) * kScoreTile,
                       static_cast<int32_t>(hull.word[1]) * kScoreTile};
  }

  ANYORDER_DEVICE void Load(int stage) {
    const int column = kGroup * (Thread() % (kProductColumns / kGroup));
    ANYORDER_UNROLL
    for (int n = 0; n < kProductRows / kCopyRows; ++n) {
      const int row = Thread() / (kProductColumns / kGroup) + kCopyRows * n;
      const bool is_there = RowAt(row).begin < RowAt(row).end;
      const int64_t element =
          is_there ? (step.row + row) * p.in.model_dim() + ahead.head * p.in.head_dim + column : 0;
      CopyAsync16(Rows(stage) + row * kProductStride + column, p.in.q + element, is_there);
    }
    CommitCopies();
    if (is_affine)
      GatherAffine();
    else
      GatherSorted();
  }
  // All loads are independent of each other, so that all are under way before one is waited for.
  ANYORDER_DEVICE void GatherAffine() {
    const BFloat16* values =
        p.scores.gradients + p.scores.Offset(step.group_row + Thread() / kWarp, ahead.head);
    ANYORDER_UNROLL
    for (int n = 0; n < kRowsOfWarp; ++n) {
      const DistanceRow row = RowAt(Thread() / kWarp + kWarps * n);
      const int64_t slot = row.slot - 2 * Lane();
      const uint32_t low = slot >= row.begin && slot < row.end ? values[slot].bits : 0u;
      const uint32_t high = slot > row.begin && slot <= row.end ? values[slot - 1].bits : 0u;
      gathered[n] = low | high << 16;
      values += kWarps * p.scores.padded_keys;
    }
  }
  ANYORDER_DEVICE void GatherSorted() {
    const LaneKeys keys(p.order, lane, p.in.num_keys);
    ANYORDER_UNROLL
    for (int n = 0; n < kRowsOfWarp; ++n) {
      const int row = Thread() / kWarp + kWarps * n;
      gathered[n] = 0;
      if (row >= step.count) continue;
      const ScoreRow<BFloat16> scores(p.scores, step.group_row + row, ahead.head);
      const int64_t at = RowAt(row).slot - 2 * Lane();
      gathered[n] = PackBf16(GradientAt(keys, scores, at), GradientAt(keys, scores, at - 1));
    }
  }
  ANYORDER_DEVICE void StoreGathered() const {
    ANYORDER_UNROLL
    for (int n = 0; n < kRowsOfWarp; ++n) {
      const int row = Thread() / kWarp + kWarps * n;
      *reinterpret_cast<uint32_t*>(Weights() + row * kProductStride + 2 * Lane()) = gathered[n];
    }
  }

  // Between memory and the thread's sums.
  template <typename Visitor>
  ANYORDER_DEVICE void ForEach(TransposedSums& sums, Visitor&& visit) const {
    ANYORDER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int distance = 16 * (Thread() / kWarp) + Lane() / 4 + 8 * half;
      if (distance >= ahead.Count()) continue;
      float* const kept =
          p.sums + (ahead.FirstSum() + distance) * p.in.model_dim() + ahead.head * kProductColumns;
      ANYORDER_UNROLL
      for (int n = 0; n < 8; ++n) {
        const int column = 8 * n + 2 * (Lane() % 4);
        visit(kept[column], sums.sum[n][2 * half]);
        visit(kept[column + 1], sums.sum[n][2 * half + 1]);
      }
      if (Lane() % 4 == 0) visit(p.weights[ahead.FirstWeight() + distance], sums.weight[2 * half]);
    }
  }
};

ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kProductThreads, 4)
    MatrixDistanceGradientKernel(DistanceGradientParams<BFloat16> p) {
  MatrixDistanceBlock work(p);
  TransposedSums sums;
  if (p.adds) work.ForEach(sums, [](const float& kept, float& value) { value = kept; });
  bool is_loaded = work.Ask();
  bool is_asked = false;
  if (is_loaded) {
    work.StoreRow();
    SyncBlock();
    work.Load(0);
    is_asked = work.Ask();
  }
  for (int stage = 0; is_loaded; stage ^= 1) {
    SyncBlock();  // the rows, and the weights before these, are done with
    work.StoreGathered();
    if (is_asked) work.StoreRow();
    WaitForCopies<0>();
    SyncBlock();
    is_loaded = is_asked;
    if (is_loaded) {
      work.Load(stage ^ 1);
      is_asked = work.Ask();
    }
    SyncWarp();  // gathering parts the lanes, and matrices are loaded by whole warps
    AddTransposed(MatrixDistanceBlock::Weights(), MatrixDistanceBlock::Rows(stage),
                  16 * (Thread() / kWarp), sums);
  }
  work.ForEach(sums, [](float& kept, float value) { kept = value; });
}

}  // namespace anyorder::kernels::cuda
