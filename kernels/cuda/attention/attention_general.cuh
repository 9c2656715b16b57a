// What the general kernels of attention do alike, forward and backward (kernels/attention.h): a
// block has a tile of rows of one lane, stream and head, and walks over the lane's keys in tiles,
// both in shared memory in fp32.
//
// A tile of scores is 32 rows by 32 keys. Thread t has the rows 2 (t / 8) + {0, 1} and the keys t %
// 8 + {0, 8, 16, 24}: a warp owns whole rows, so that row sums need no barrier, and the four keys
// of a row share one Philox call (kernels/dropout.h). In products with as many columns as a head it
// has the same rows and the columns 4 (t % 8) + 32 g + {0, 1, 2, 3}.

#pragma once

#include <algorithm>
#include <type_traits>

#include "core/base/check.h"
#include "kernels/cuda/attention/attention_types.h"
#include "kernels/cuda/platform/launch.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

inline constexpr int kTileRows = 32;
inline constexpr int kTileKeys = 32;
inline constexpr int kTileThreads = 128;
inline constexpr int kThreadRows = 2;
inline constexpr int kThreadKeys = 4;
// Distances that a tile meets where positions are consecutive are staged; others are gathered from
// memory.
inline constexpr int kBandRows = kTileRows + kTileKeys;
inline constexpr int kScoreStride = kTileKeys + 4;

// kGroups: head_dim / 32, rounded up to 1, 2, 4 or 8. Strides are 4 modulo 32 words: 16-byte reads
// of eight rows meet no bank twice.
template <int kGroups>
struct TileColumns {
  static constexpr int kColumns = 32 * kGroups;
  static constexpr int kStride = kColumns + 4;
  static constexpr bool kHasBand = kGroups <= 4;  // more would not fit an A100's shared memory
};

template <int kSlots>
struct TileSlots {
  int32_t pos[kSlots];
  int32_t order[kSlots];
  int32_t grp[kSlots];
  int32_t doc[kSlots];
  int32_t seg[kSlots];
  uint8_t glob[kSlots];
};

// Everything about the tile that is not a matrix.
struct TileFrame {
  TileSlots<kTileRows> rows;
  TileSlots<kScoreTile> keys;
  int32_t row_ids[kTileRows];
  float segment_same[kTileRows];
  float segment_difference[kTileRows];
  float lse[kTileRows];
  float delta[kTileRows];
  int32_t row_low, row_high;        // of the positions
  int32_t key_low[2], key_high[2];  // of each half of the keys; low > high: none
};

// Rows of one lane, stream and head.
struct RowTile {
  int stream;
  int lane;
  int head;
  int first;  // in the lane's stream
  int count;
  int64_t row;  // of the problem

  // Tile n of a lane: those of content rows come before those of query rows.
  template <typename T>
  ANYORDER_DEVICE static RowTile Of(const AttentionProblem<T>& in, int lane, int head, int n) {
    const int content_tiles = (in.content_rows + kTileRows - 1) / kTileRows;
    RowTile tile;
    tile.stream = n < content_tiles ? 0 : 1;
    tile.lane = lane;
    tile.head = head;
    tile.first = (n - (tile.stream == 0 ? 0 : content_tiles)) * kTileRows;
    const int left = in.RowsOfStream(tile.stream) - tile.first;
    tile.count = left < kTileRows ? left : kTileRows;
    tile.row = in.FirstRow(tile.stream, tile.lane) + tile.first;
    return tile;
  }
};

ANYORDER_HOST_DEVICE int RowTilesOfLane(int content_rows, int query_rows) {
  return (content_rows + kTileRows - 1) / kTileRows + (query_rows + kTileRows - 1) / kTileRows;
}

// Visit(tile) for those tiles of a block whose rows are the general kernels': every GridX-th of its
// lane and head. The grid is (at most RowTilesOfLane; heads; lanes). A block of a lane whose rows
// are all the ring's reads two forms and leaves.
template <typename T, typename Visitor>
ANYORDER_DEVICE void ForEachRowTile(const AttentionProblem<T>& in,
                                    const AttentionPrepared& prepared, int first_lane,
                                    int first_head, Visitor&& visit) {
  const int lane = first_lane + BlockZ();
  const bool has_content = HasForm(prepared, in.batch_size, 0, lane, kGeneralForm);
  const bool has_query = HasForm(prepared, in.batch_size, 1, lane, kGeneralForm);
  if (!has_content && !has_query) return;
  const int tiles = RowTilesOfLane(in.content_rows, in.query_rows);
  ANYORDER_ROLLED
  for (int n = BlockX(); n < tiles; n += GridX()) {
    const RowTile tile = RowTile::Of(in, lane, first_head + BlockY(), n);
    // No barrier between tiles: what a tile reads last, in StoreTile, the next one writes behind
    // barriers of its own.
    if (tile.stream == 0 ? has_content : has_query) visit(tile);
  }
}

struct Float4 {
  float v[4];
};
ANYORDER_DEVICE Float4 LoadFour(const float* from) {
  const Words4 words = LoadWords(from);
  return {{AsFloat(words.word[0]), AsFloat(words.word[1]), AsFloat(words.word[2]),
           AsFloat(words.word[3])}};
}
ANYORDER_DEVICE Float4 LoadFour(const BFloat16* from) {
  const Words2 words = LoadTwoWords(from);
  return {{LowBf16(words.word[0]), HighBf16(words.word[0]), LowBf16(words.word[1]),
           HighBf16(words.word[1])}};
}
// As many numbers as 16 bytes of T have, from elements or from fp32.
template <typename T>
using Wide = std::conditional_t<sizeof(T) == sizeof(float), Float4, Vector8>;
template <typename T, typename Element>
ANYORDER_DEVICE Wide<T> LoadWide(const Element* from) {
  if constexpr (sizeof(T) == sizeof(float))
    return LoadFour(from);
  else
    return LoadVector(from);
}
ANYORDER_DEVICE void StoreFour(float* to, const Float4& x) {
  StoreWords(to, {{AsBits(x.v[0]), AsBits(x.v[1]), AsBits(x.v[2]), AsBits(x.v[3])}});
}

// Over the eight threads that share rows.
ANYORDER_DEVICE float RowSum(float value) {
  return Butterfly<8>(value, [](float a, float b) { return a + b; });
}
ANYORDER_DEVICE float RowMax(float value) {
  return Butterfly<8>(value, [](float a, float b) { return fmaxf(a, b); });
}

// Of the eight threads that share rows, number l gets the sum of their parts[l]: each step hands
// half of what is left to the other half of the threads.
ANYORDER_DEVICE float RowScatterSum(float (&parts)[8]) {
  ANYORDER_UNROLL
  for (int half = 4; half > 0; half /= 2) {
    const bool is_high = (Thread() & half) != 0;
    ANYORDER_UNROLL
    for (int i = 0; i < half; ++i) {
      const float given = is_high ? parts[i] : parts[i + half];
      const float kept = is_high ? parts[i + half] : parts[i];
      parts[i] = kept + ShuffleXor(given, half);
    }
  }
  return parts[0];
}

ANYORDER_DEVICE int ThreadRow() { return kThreadRows * (Thread() / 8); }
ANYORDER_DEVICE int ThreadKey(int c) { return Thread() % 8 + 8 * c; }
ANYORDER_DEVICE int ThreadColumn(int g) { return 4 * (Thread() % 8) + 32 * g; }

// One thread's scores, or whatever else there is one of for each pair.
struct PairValues {
  float v[kThreadRows][kThreadKeys];
};

// Whose head a tile's columns are: rows of keys and values are as wide as those have heads.
enum class TileOf { kRows, kKeys };
template <TileOf kOf, typename T>
ANYORDER_DEVICE int64_t RowStride(const AttentionProblem<T>& in) {
  return kOf == TileOf::kRows ? in.model_dim() : in.keys_dim();
}

// Rows [0, rows) of a matrix into shared memory, `bias` added; zeros beyond, beyond `columns`, and
// where `docs` says that a slot is padding, whose memory may hold anything.
template <int kGroups, TileOf kOf = TileOf::kRows, typename T>
ANYORDER_DEVICE void LoadTile(float* shared, const T* from, const AttentionProblem<T>& in, int rows,
                              const T* bias = nullptr, const int32_t* docs = nullptr) {
  using Columns = TileColumns<kGroups>;
  for (int g = Thread(); g < kTileRows * 4 * kGroups; g += kTileThreads) {
    const int row = g / (4 * kGroups);
    const int column = kGroup * (g % (4 * kGroups));
    const int left = in.head_dim - column;
    const int count = left < kGroup ? left : kGroup;
    Vector8 x = {};
    if (row < rows && count > 0 && (docs == nullptr || docs[row] != kDocPad)) {
      x = LoadAny(from + row * RowStride<kOf>(in) + column, count, in.is_aligned);
      if (bias != nullptr) {
        const Vector8 b = LoadAny(bias + column, count, in.is_aligned);
        ANYORDER_UNROLL
        for (int i = 0; i < kGroup; ++i) x.v[i] += b.v[i];
      }
    }
    StoreVector(shared + row * Columns::kStride + column, x);
  }
}

// A tile with as many columns as a head, from the threads' sums through `shared` to memory.
template <int kGroups, TileOf kOf = TileOf::kRows, typename T>
ANYORDER_DEVICE void StoreTile(T* to, const float (&sums)[kThreadRows][4 * kGroups],
                               const AttentionProblem<T>& in, int rows, float* shared) {
  using Columns = TileColumns<kGroups>;
  SyncBlock();
  ANYORDER_UNROLL
  for (int r = 0; r < kThreadRows; ++r) {
    ANYORDER_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      const float* const x = sums[r] + 4 * g;
      StoreFour(shared + (ThreadRow() + r) * Columns::kStride + ThreadColumn(g),
                {{x[0], x[1], x[2], x[3]}});
    }
  }
  SyncBlock();
  for (int g = Thread(); g < rows * 4 * kGroups; g += kTileThreads) {
    const int row = g / (4 * kGroups);
    const int column = kGroup * (g % (4 * kGroups));
    const int left = in.head_dim - column;
    const int count = left < kGroup ? left : kGroup;
    if (count <= 0) continue;
    const Vector8 x = LoadVector(shared + row * Columns::kStride + column);
    T* const at = to + row * RowStride<kOf>(in) + column;
    if (in.is_aligned)
      StoreGroup<true>(at, x, count);
    else
      StoreGroup<false>(at, x, count);
  }
}

// values[r][c] += rows[r] . keys[c]
template <int kGroups>
ANYORDER_DEVICE void AddDots(const float* rows, const float* keys, int columns,
                             PairValues& values) {
  constexpr int kStride = TileColumns<kGroups>::kStride;
  const float* const row = rows + ThreadRow() * kStride;
  const float* const key = keys + ThreadKey(0) * kStride;
  for (int d = 0; d < columns; d += 4) {
    Float4 a[kThreadRows];
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) a[r] = LoadFour(row + r * kStride + d);
    ANYORDER_UNROLL
    for (int c = 0; c < kThreadKeys; ++c) {
      const Float4 b = LoadFour(key + 8 * c * kStride + d);
      ANYORDER_UNROLL
      for (int r = 0; r < kThreadRows; ++r) {
        ANYORDER_UNROLL
        for (int i = 0; i < 4; ++i) values.v[r][c] = MultiplyAdd(a[r].v[i], b.v[i], values.v[r][c]);
      }
    }
  }
}

// sums[r] += sum over the tile's keys of weights[r][key] * keys[key]; `weights` is [32,
// kScoreStride] in shared memory.
template <int kGroups>
ANYORDER_DEVICE void AddWeighted(const float* weights, const float* keys,
                                 float (&sums)[kThreadRows][4 * kGroups]) {
  constexpr int kStride = TileColumns<kGroups>::kStride;
  const float* const weight = weights + ThreadRow() * kScoreStride;
  for (int key = 0; key < kTileKeys; key += 4) {
    Float4 w[kThreadRows];
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) w[r] = LoadFour(weight + r * kScoreStride + key);
    ANYORDER_UNROLL
    for (int n = 0; n < 4; ++n) {
      ANYORDER_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        const Float4 x = LoadFour(keys + (key + n) * kStride + ThreadColumn(g));
        ANYORDER_UNROLL
        for (int r = 0; r < kThreadRows; ++r) {
          ANYORDER_UNROLL
          for (int i = 0; i < 4; ++i)
            sums[r][4 * g + i] = MultiplyAdd(w[r].v[n], x.v[i], sums[r][4 * g + i]);
        }
      }
    }
  }
}

// sums[r] += sum over the tile's keys of weights[r][key], in their order: what AddWeighted would
// make of keys of ones.
ANYORDER_DEVICE void AddWeights(const float* weights, float (&sums)[kThreadRows]) {
  const float* const weight = weights + ThreadRow() * kScoreStride;
  ANYORDER_UNROLL
  for (int r = 0; r < kThreadRows; ++r) {
    for (int key = 0; key < kTileKeys; key += 4) {
      const Float4 w = LoadFour(weight + r * kScoreStride + key);
      ANYORDER_UNROLL
      for (int n = 0; n < 4; ++n) sums[r] += w.v[n];
    }
  }
}

// A thread's values to shared memory, for AddWeighted. Rows belong to a warp.
ANYORDER_DEVICE void StorePairs(float* scores, const PairValues& values) {
  ANYORDER_UNROLL
  for (int r = 0; r < kThreadRows; ++r) {
    ANYORDER_UNROLL
    for (int c = 0; c < kThreadKeys; ++c)
      scores[(ThreadRow() + r) * kScoreStride + ThreadKey(c)] = values.v[r][c];
  }
}

// The rows of `relative` that the pairs of a tile take: staged in shared memory, or in memory.
struct TileBand {
  bool is_staged = false;
  int64_t low = 0;  // distance of the first staged row
  int count = 0;    // staged rows

  // Of a pair; any staged row for one that is not visible, whose distance may be none of the
  // table's.
  ANYORDER_DEVICE int StagedRow(int32_t row_pos, int32_t key_pos) const {
    const uint32_t at = static_cast<uint32_t>(row_pos) - static_cast<uint32_t>(key_pos) -
                        static_cast<uint32_t>(low);
    return at < static_cast<uint32_t>(count) ? static_cast<int>(at) : 0;
  }
};

// On the host.
//
// Calls function.template operator()<kGroups>() with the columns in units of 32, rounded up to 1,
// 2, 4 or 8.
template <typename Function>
void WithColumns(int head_dim, Function&& function) {
  ANYORDER_CHECK(head_dim >= 1 && head_dim <= kMaxHeadDim)
      << "head_dim " << head_dim << ": the CUDA backend's attention takes 1 to " << kMaxHeadDim;
  if (head_dim <= 32) return function.template operator()<1>();
  if (head_dim <= 64) return function.template operator()<2>();
  if (head_dim <= 128) return function.template operator()<4>();
  return function.template operator()<8>();
}

// The launch of a general kernel. Each lane and head has a block for each tile, unless the ring
// kernels may have the rows, which the host does not know; then so few that a launch for nothing is
// soon over, and enough to give each of 132 multiprocessors 15 where all rows are the general
// kernels'. XLNet-Large at B = 64 (512 content and 85 query rows, 16 heads): 2 a lane and head,
// 2048 in all, where one a tile were 19456.
template <typename Params>
LaunchShape GeneralShape(const Params& params, int lanes, int heads, int64_t shared_bytes) {
  constexpr int64_t kMostBlocks = 2048;
  const int64_t lanes_and_heads = int64_t{lanes} * heads;
  int64_t blocks = RowTilesOfLane(params.in.content_rows, params.in.query_rows);
  if (params.prepared.forms != nullptr && blocks * lanes_and_heads > kMostBlocks)
    blocks = std::max<int64_t>(1, kMostBlocks / lanes_and_heads);
  return {.blocks_x = blocks,
          .blocks_y = heads,
          .blocks_z = lanes,
          .threads = kTileThreads,
          .shared_bytes = shared_bytes};
}

// Whether gradients of keys and tables are made by tensor cores.
template <typename T>
bool TakesMatrixForm(const AttentionProblem<T>& in) {
  return std::is_same_v<T, BFloat16> && in.head_dim == 64 && in.is_aligned;
}

}  // namespace anyorder::kernels::cuda
