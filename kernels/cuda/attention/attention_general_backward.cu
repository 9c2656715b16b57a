// The first backward pass of attention for any arguments of the contract: probabilities again from
// lse, gradients of scores, dq. What the gradients of keys, tables and biases need goes to scratch
// (AttentionScores).

#include "kernels/cuda/attention/attention_general_tile.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {

template <typename T, int kGroups>
struct GeneralBackward {
  const GeneralTile<T, kGroups>& work;
  const AttentionBackwardParams<T>& p;
  int64_t group_row;  // the tile's first row in scratch

  // Sums of the thread's rows.
  struct Sums {
    float dq[kThreadRows][4 * kGroups] = {};
    float other_segment[kThreadRows] = {};
    uint32_t seen = 0;  // pairs of any tile, as VisiblePairs has them
  };

  ANYORDER_DEVICE void LoadRows() const {
    work.LoadRows();
    const RowTile& tile = work.tile;
    LoadTile<kGroups>(work.memory.dout, p.dout + tile.row * p.in.model_dim() + work.head_offset(),
                      p.in, tile.count);
    if (Thread() >= kTileRows) return;
    const bool is_there = Thread() < tile.count;
    const int64_t at = (tile.row + Thread()) * p.in.num_heads + tile.head;
    const float lse = is_there ? p.lse[at] : 0.0f;
    // Scores of minus infinity alone have probabilities of 0, not of -inf + inf.
    work.frame().lse[Thread()] = lse == -INFINITY ? 0.0f : lse * kLog2E;
    work.frame().delta[Thread()] = is_there ? p.delta[at] : 0.0f;
  }

  // Zeros in both matrices of scratch, for the tile's rows and the slots [begin, end), multiples of
  // 32.
  ANYORDER_DEVICE void StoreZeros(int begin, int end) const {
    const int groups = (end - begin) / kGroup;
    for (int g = Thread(); g < work.tile.count * groups; g += kTileThreads) {
      const int64_t at =
          p.scores.Offset(group_row + g / groups, work.tile.head) + begin + kGroup * (g % groups);
      StoreVector(p.scores.probabilities + at, Vector8{});
      StoreVector(p.scores.gradients + at, Vector8{});
    }
  }
  // A warp's eight rows of `scores`, eight slots a lane, to scratch.
  ANYORDER_DEVICE void StoreScores(const float* scores, T* to, int first_key) const {
    const int row = Thread() / kWarp * 8 + Lane() / 4;
    const int column = kGroup * (Lane() % 4);
    if (row >= work.tile.count) return;
    StoreVector(to + p.scores.Offset(group_row + row, work.tile.head) + first_key + column,
                LoadVector(scores + row * kScoreStride + column));
  }

  // From scores and products dout . v to probabilities after dropout and gradients of scores, with
  // `scale`.
  ANYORDER_DEVICE void Differentiate(int first, int half, uint32_t visible, PairValues& s,
                                     PairValues& dp, Sums& sums) const {
    const TileFrame& f = work.frame();
    const bool has_dropout = p.in.dropout.enabled();
    PairValues factors = {};
    if (has_dropout) factors = work.DropoutFactors(first + half * kTileKeys);
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) {
      const int row = ThreadRow() + r;
      ANYORDER_UNROLL
      for (int c = 0; c < kThreadKeys; ++c) {
        const bool is_visible = (visible >> (kThreadKeys * r + c) & 1) != 0;
        const float factor = has_dropout ? factors.v[r][c] : 1.0f;
        const float probability = is_visible ? Exp2(s.v[r][c] - f.lse[row]) : 0.0f;
        const float ds =
            is_visible ? probability * MultiplyAdd(factor, dp.v[r][c], -f.delta[row]) * p.in.scale
                       : 0.0f;
        s.v[r][c] = probability * factor;
        dp.v[r][c] = ds;
        if (f.rows.seg[row] != f.keys.seg[half * kTileKeys + ThreadKey(c)])
          sums.other_segment[r] += ds;
      }
    }
  }

  // dq += sum over keys of ds * relative[distance]
  ANYORDER_DEVICE void AddRelative(const TileBand& band, int half, Sums& sums) const {
    if (!band.is_staged && p.in.is_aligned) return AddGathered(half, sums);
    const float* const ds = work.memory.gradient + ThreadRow() * kScoreStride;
    for (int key = 0; key < kTileKeys; ++key) {
      const int32_t key_pos = work.frame().keys.pos[half * kTileKeys + key];
      ANYORDER_UNROLL
      for (int r = 0; r < kThreadRows; ++r) {
        const float weight = ds[r * kScoreStride + key];
        if (weight == 0.0f) continue;
        const int32_t row_pos = work.frame().rows.pos[ThreadRow() + r];
        if (band.is_staged) {
          AddRow(
              weight,
              work.memory.band + band.StagedRow(row_pos, key_pos) * TileColumns<kGroups>::kStride,
              TileColumns<kGroups>::kColumns, sums.dq[r]);
        } else {
          AddUnaligned(weight, work.RelativeRow(int64_t{row_pos} - key_pos), sums.dq[r]);
        }
      }
    }
  }
  // Rows of the table from memory, those of four keys under way together. What a row does not see
  // it adds 0 times: tables are finite, or the step is lost anyway.
  ANYORDER_DEVICE void AddGathered(int half, Sums& sums) const {
    const float* const ds = work.memory.gradient + ThreadRow() * kScoreStride;
    ANYORDER_ROLLED
    for (int key = 0; key < kTileKeys; key += 4) {
      const int32_t* const key_pos = work.frame().keys.pos + half * kTileKeys + key;
      ANYORDER_UNROLL
      for (int r = 0; r < kThreadRows; ++r) {
        const Float4 weights = LoadFour(ds + r * kScoreStride + key);
        ANYORDER_UNROLL
        for (int n = 0; n < 4; ++n)
          AddRow(weights.v[n],
                 work.RelativeRowOf(work.frame().rows.pos[ThreadRow() + r], key_pos[n]),
                 p.in.head_dim, sums.dq[r]);
      }
    }
  }
  // `row` has `columns`, a multiple of 4.
  template <typename Element>
  ANYORDER_DEVICE void AddRow(float weight, const Element* row, int columns,
                              float (&sums)[4 * kGroups]) const {
    ANYORDER_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      if (ThreadColumn(g) >= columns) continue;
      const Float4 x = LoadFour(row + ThreadColumn(g));
      ANYORDER_UNROLL
      for (int i = 0; i < 4; ++i) sums[4 * g + i] = MultiplyAdd(weight, x.v[i], sums[4 * g + i]);
    }
  }
  ANYORDER_DEVICE void AddUnaligned(float weight, const T* row, float (&sums)[4 * kGroups]) const {
    ANYORDER_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      ANYORDER_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int column = ThreadColumn(g) + i;
        if (column < p.in.head_dim)
          sums[4 * g + i] = MultiplyAdd(weight, ToFloat(row[column]), sums[4 * g + i]);
      }
    }
  }

  ANYORDER_DEVICE void Half(int first, int half, uint32_t visible, Sums& sums) const {
    const TileMemory<kGroups>& memory = work.memory;
    work.LoadKeys(p.in.v, first, half);
    SyncBlock();
    PairValues dp = {};
    AddDots<kGroups>(memory.dout, memory.keys, work.columns(), dp);
    SyncBlock();
    work.LoadKeys(p.in.k, first, half);
    const TileBand band = work.LoadBand(half);
    SyncBlock();
    PairValues s = work.Scores(band, half, visible);
    Differentiate(first, half, visible, s, dp, sums);
    sums.seen |= visible;
    StorePairs(memory.scores, s);
    StorePairs(memory.gradient, dp);
    SyncWarp();
    StoreScores(memory.scores, p.scores.probabilities, first + half * kTileKeys);
    StoreScores(memory.gradient, p.scores.gradients, first + half * kTileKeys);
    AddWeighted<kGroups>(memory.gradient, memory.keys, sums.dq);
    if (p.in.relative != nullptr) AddRelative(band, half, sums);
  }

  // The segment's part of dq, hulls and sums of other segments.
  ANYORDER_DEVICE void Finish(int first_tile, int end_tile, Sums& sums) const {
    const RowTile& tile = work.tile;
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) {
      const int row = ThreadRow() + r;
      const float other = RowSum(sums.other_segment[r]);
      const uint32_t own = (sums.seen >> (kThreadKeys * r)) & ((1u << kThreadKeys) - 1);
      const bool sees = RowSum(own != 0 ? 1.0f : 0.0f) > 0.0f;
      if (p.in.segment_embedding != nullptr) AddSegment(other, sums.dq[r]);
      if (ThreadKey(0) != 0 || row >= tile.count) continue;
      int32_t* const hull = p.scores.HullOf(group_row + row, tile.head);
      hull[0] = sees ? first_tile : 0;
      hull[1] = sees ? end_tile : 0;
      if (p.scores.other_segment != nullptr)
        p.scores.other_segment[(tile.row + row) * p.in.num_heads + tile.head] = other;
    }
  }
  // Gradients of a row's scores sum to 0: those of the same segment are minus those of the others.
  ANYORDER_DEVICE void AddSegment(float other, float (&dq)[4 * kGroups]) const {
    const T* const same = p.in.segment_embedding + work.head_offset();
    const T* const different = same + p.in.model_dim();
    ANYORDER_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      ANYORDER_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int column = ThreadColumn(g) + i;
        if (column < p.in.head_dim)
          dq[4 * g + i] =
              MultiplyAdd(other, ToFloat(different[column]) - ToFloat(same[column]), dq[4 * g + i]);
      }
    }
  }
};

template <typename T, int kGroups>
ANYORDER_DEVICE void BackwardTile(const AttentionBackwardParams<T>& p, const RowTile& tile) {
  const AttentionProblem<T>& in = p.in;
  const GeneralTile<T, kGroups> tile_work(in, p.prepared, tile, true);
  const GeneralBackward<T, kGroups> work{
      tile_work, p, p.scores.group.FirstRow(in, tile.stream, tile.lane) + tile.first};
  work.LoadRows();
  typename GeneralBackward<T, kGroups>::Sums sums;
  int first_tile = 0;
  int end_tile = 0;
  for (int first = 0; first < in.num_keys; first += kScoreTile) {
    SyncBlock();
    tile_work.LoadKeySlots(first);
    SyncBlock();
    const uint32_t visible_first = tile_work.VisiblePairs(0);
    const uint32_t visible_second = tile_work.VisiblePairs(1);
    const bool is_first_seen = SyncBlockOr(visible_first != 0);
    const bool is_second_seen = SyncBlockOr(visible_second != 0);
    if (!is_first_seen && !is_second_seen) continue;
    const int key_tile = first / kScoreTile;
    if (end_tile == 0) first_tile = end_tile = key_tile;
    if (end_tile < key_tile) work.StoreZeros(end_tile * kScoreTile, first);
    end_tile = key_tile + 1;
    for (int half = 0; half < 2; ++half) {
      SyncBlock();
      const int begin = first + half * kTileKeys;
      if (half == 0 ? is_first_seen : is_second_seen)
        work.Half(first, half, half == 0 ? visible_first : visible_second, sums);
      else
        work.StoreZeros(begin, begin + kTileKeys);
    }
  }
  work.Finish(first_tile, end_tile, sums);
  StoreTile<kGroups>(p.dq + tile.row * in.model_dim() + tile_work.head_offset(), sums.dq, in,
                     tile.count, tile_work.memory.keys);
}

template <typename T, int kGroups>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kTileThreads, kGroups <= 2 ? 3 : 2)
    AttentionGeneralBackwardKernel(AttentionBackwardParams<T> p) {
  const AttentionGroup& group = p.scores.group;
  ForEachRowTile(p.in, p.prepared, group.first_lane, group.first_head,
                 [&](const RowTile& tile) { BackwardTile<T, kGroups>(p, tile); });
}

template <typename T>
void LaunchGeneralBackward(const AttentionBackwardParams<T>& params, StreamView stream) {
  const AttentionProblem<T>& in = params.in;
  const AttentionGroup& group = params.scores.group;
  WithColumns(in.head_dim, [&]<int kGroups>() {
    const LaunchShape shape =
        GeneralShape(params, group.num_lanes, group.num_heads,
                     TileMemory<kGroups>::Bytes(true, in.relative != nullptr));
    Launch(AttentionGeneralBackwardKernel<T, kGroups>, shape, params, stream);
  });
}

template void LaunchGeneralBackward(const AttentionBackwardParams<float>&, StreamView);
template void LaunchGeneralBackward(const AttentionBackwardParams<BFloat16>&, StreamView);

}  // namespace anyorder::kernels::cuda
