// A tile of the general kernels at work: its slots, who sees whom, its scores.

#pragma once

#include "kernels/cuda/attention/attention_general.cuh"

namespace anyorder::kernels::cuda {

// Shared memory of a general kernel. Matrices are [32, stride] unless said otherwise.
template <int kGroups>
struct TileMemory {
  static constexpr int kMatrix = kTileRows * TileColumns<kGroups>::kStride;

  TileFrame* frame;
  float* scores;      // [32, kScoreStride]: probabilities
  float* gradient;    // the same, of scores; backward only
  float* keys;        // values and keys, one after the other
  float* q;           // + content_bias
  float* dout;        // backward only
  float* q_position;  // + position_bias; only with a relative term
  float* band;        // [kBandRows, stride]; only with a relative term, and if kHasBand

  static constexpr int64_t FrameBytes() { return (sizeof(TileFrame) + 15) / 16 * 16; }
  static constexpr int64_t Bytes(bool is_backward, bool is_relative) {
    const int64_t matrices = 2 + (is_backward ? 1 : 0) + (is_relative ? 1 : 0);
    const int64_t band = is_relative && TileColumns<kGroups>::kHasBand ? kBandRows / kTileRows : 0;
    const int64_t scores = (is_backward ? 2 : 1) * kTileRows * kScoreStride;
    return FrameBytes() + (scores + (matrices + band) * kMatrix) * int64_t{sizeof(float)};
  }
  ANYORDER_DEVICE static TileMemory OfBlock(bool is_backward) {
    unsigned char* const base = SharedMemory();
    TileMemory memory;
    memory.frame = reinterpret_cast<TileFrame*>(base);
    memory.scores = reinterpret_cast<float*>(base + FrameBytes());
    memory.gradient = memory.scores + kTileRows * kScoreStride;
    memory.keys = memory.scores + (is_backward ? 2 : 1) * kTileRows * kScoreStride;
    memory.q = memory.keys + kMatrix;
    memory.dout = memory.q + kMatrix;
    memory.q_position = memory.q + (is_backward ? 2 : 1) * kMatrix;
    memory.band = memory.q_position + kMatrix;
    return memory;
  }
};

static_assert(AttentionDrawIndex(32 + 5 + 8 * 3) == 2 * 3 + 1 && AttentionDrawIndex(8) == 2);

template <typename T, int kGroups>
struct GeneralTile {
  static constexpr int kStride = TileColumns<kGroups>::kStride;

  const AttentionProblem<T>& in;
  const AttentionPrepared& prepared;
  RowTile tile;
  TileMemory<kGroups> memory;
  Band window;

  ANYORDER_DEVICE GeneralTile(const AttentionProblem<T>& problem, const AttentionPrepared& before,
                              const RowTile& rows, bool is_backward)
      : in(problem),
        prepared(before),
        tile(rows),
        memory(TileMemory<kGroups>::OfBlock(is_backward)),
        window(problem.BandOf(rows.head)) {}

  ANYORDER_DEVICE TileFrame& frame() const { return *memory.frame; }
  ANYORDER_DEVICE int head_offset() const { return tile.head * in.head_dim; }
  // Columns that products take: beyond head_dim there are zeros.
  ANYORDER_DEVICE int columns() const { return (in.head_dim + 3) / 4 * 4; }
  ANYORDER_DEVICE const T* OfHead(const T* bias) const {
    return bias == nullptr ? nullptr : bias + head_offset();
  }
  ANYORDER_DEVICE int64_t FirstKey() const { return int64_t{tile.lane} * in.num_keys; }

  // Warp 0 has the rows' slots.
  ANYORDER_DEVICE void LoadRowSlots() const {
    if (Thread() >= kTileRows) return;
    const int i = Thread();
    const bool is_there = i < tile.count;
    const int64_t row = tile.row + i;
    TileFrame& f = frame();
    f.rows.pos[i] = is_there ? in.rows.pos[row] : 0;
    f.rows.order[i] = is_there ? in.rows.lim[row] : 0;
    f.rows.grp[i] = is_there ? in.rows.grp[row] : -1;
    f.rows.doc[i] = is_there ? in.rows.doc[row] : kDocPad;
    f.rows.seg[i] = is_there ? in.rows.seg[row] : 0;
    f.rows.glob[i] = is_there ? in.rows.glob[row] : uint8_t{0};
    f.row_ids[i] = is_there && in.dropout.enabled() ? in.row_ids[row] : 0;
    const int64_t at = row * in.num_heads + tile.head;
    const bool has_segments = is_there && prepared.segment_same != nullptr;
    f.segment_same[i] = has_segments ? prepared.segment_same[at] : 0.0f;
    f.segment_difference[i] = has_segments ? prepared.segment_difference[at] : 0.0f;
    const int32_t low = WarpMin(is_there ? f.rows.pos[i] : kKeyNever);
    const int32_t high = WarpMax(is_there ? f.rows.pos[i] : ~kKeyNever);
    if (i == 0) {
      f.row_low = low;
      f.row_high = high;
    }
  }

  ANYORDER_DEVICE void LoadRows() const {
    LoadRowSlots();
    const T* const q = in.q + tile.row * in.model_dim() + head_offset();
    LoadTile<kGroups>(memory.q, q, in, tile.count, OfHead(in.content_bias));
    if (in.relative != nullptr)
      LoadTile<kGroups>(memory.q_position, q, in, tile.count, OfHead(in.position_bias));
  }

  // Warps 0 and 1 have the slots of 64 keys from `first` on. Padding does not widen the range of
  // positions.
  ANYORDER_DEVICE void LoadKeySlots(int first) const {
    if (Thread() >= kScoreTile) return;
    const int i = Thread();
    const bool is_there = first + i < in.num_keys;
    const int64_t key = FirstKey() + first + i;
    TileFrame& f = frame();
    const int32_t pos = is_there ? in.keys.pos[key] : 0;
    const int32_t doc = is_there ? in.keys.doc[key] : kDocPad;
    f.keys.pos[i] = pos;
    f.keys.order[i] = is_there ? in.keys.key[key] : kKeyNever;
    f.keys.grp[i] = is_there ? in.keys.grp[key] : -1;
    f.keys.doc[i] = doc;
    f.keys.seg[i] = is_there ? in.keys.seg[key] : 0;
    f.keys.glob[i] = is_there ? in.keys.glob[key] : uint8_t{0};
    const int32_t low = WarpMin(doc != kDocPad ? pos : kKeyNever);
    const int32_t high = WarpMax(doc != kDocPad ? pos : ~kKeyNever);
    if (Lane() == 0) {
      f.key_low[i / kTileKeys] = low;
      f.key_high[i / kTileKeys] = high;
    }
  }

  // Bit kThreadKeys * r + c: whether the thread's row r sees its key c of this half of the 64 keys.
  ANYORDER_DEVICE uint32_t VisiblePairs(int half) const {
    const TileFrame& f = frame();
    const RowVisibility rows{f.rows.pos, f.rows.order, f.rows.grp,
                             f.rows.doc, f.rows.seg,   f.rows.glob};
    const KeyVisibility keys{f.keys.pos, f.keys.order, f.keys.grp,
                             f.keys.doc, f.keys.seg,   f.keys.glob};
    uint32_t visible = 0;
    ANYORDER_UNROLL
    for (int c = 0; c < kThreadKeys; ++c) {
      ANYORDER_UNROLL
      for (int r = 0; r < kThreadRows; ++r) {
        if (ThreadRow() + r < tile.count &&
            IsVisible(rows, ThreadRow() + r, keys, half * kTileKeys + ThreadKey(c), window))
          visible |= 1u << (kThreadKeys * r + c);
      }
    }
    return visible;
  }

  // Keys or values of a half into memory.keys.
  ANYORDER_DEVICE void LoadKeys(const T* matrix, int first, int half) const {
    const int begin = first + half * kTileKeys;
    const T* const keys =
        matrix + (FirstKey() + begin) * in.keys_dim() + in.KvHeadOf(tile.head) * in.head_dim;
    LoadTile<kGroups, TileOf::kKeys>(memory.keys, keys, in, in.num_keys - begin,
                                     static_cast<const T*>(nullptr),
                                     frame().keys.doc + half * kTileKeys);
  }

  // The rows of `relative` between the least and the greatest distance of the half, if they fit.
  ANYORDER_DEVICE TileBand LoadBand(int half) const {
    TileBand band;
    if (in.relative == nullptr || !TileColumns<kGroups>::kHasBand) return band;
    const TileFrame& f = frame();
    int64_t low = int64_t{f.row_low} - f.key_high[half];
    int64_t high = int64_t{f.row_high} - f.key_low[half];
    if (low < in.min_distance) low = in.min_distance;
    const int64_t last = in.min_distance + in.num_distances - 1;
    if (high > last) high = last;
    if (low > high || high - low >= kBandRows) return band;
    band.is_staged = true;
    band.low = low;
    band.count = static_cast<int>(high - low + 1);
    const T* const from = RelativeRow(low);
    LoadTile<kGroups>(memory.band, from, in, band.count);
    if (band.count > kTileRows)
      LoadTile<kGroups>(memory.band + TileMemory<kGroups>::kMatrix,
                        from + kTileRows * in.model_dim(), in, band.count - kTileRows);
    return band;
  }
  ANYORDER_DEVICE const T* RelativeRow(int64_t distance) const {
    const int64_t row =
        int64_t{in.TableOf(tile.lane)} * in.num_distances + distance - in.min_distance;
    return in.relative + row * in.model_dim() + head_offset();
  }
  ANYORDER_DEVICE int64_t Distance(int r, int key) const {
    return int64_t{frame().rows.pos[ThreadRow() + r]} - frame().keys.pos[key];
  }

  // Row of `relative` of a pair; any row for one that is not visible, whose distance may be none of
  // the table's.
  ANYORDER_DEVICE const T* RelativeRowOf(int32_t row_pos, int32_t key_pos) const {
    const uint32_t at = static_cast<uint32_t>(row_pos) - static_cast<uint32_t>(key_pos) -
                        static_cast<uint32_t>(in.min_distance);
    const uint32_t row = at < static_cast<uint32_t>(in.num_distances) ? at : 0;
    return RelativeRow(in.min_distance) + row * in.model_dim();
  }

  // values += (q + position_bias) . relative. What pairs that are not visible get is nobody's.
  ANYORDER_DEVICE void AddRelative(const TileBand& band, int half, uint32_t visible,
                                   PairValues& values) const {
    if (band.is_staged)
      AddStaged(band, half, values);
    else if (in.is_aligned)
      AddGathered(half, values);
    else
      AddUnaligned(half, visible, values);
  }
  // All of the thread's pairs beside each other: a chain of additions for each.
  ANYORDER_DEVICE void AddStaged(const TileBand& band, int half, PairValues& values) const {
    const float* const rows = memory.q_position + ThreadRow() * kStride;
    int at[kThreadRows][kThreadKeys];
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) {
      ANYORDER_UNROLL
      for (int c = 0; c < kThreadKeys; ++c)
        at[r][c] = kStride * band.StagedRow(frame().rows.pos[ThreadRow() + r],
                                            frame().keys.pos[half * kTileKeys + ThreadKey(c)]);
    }
    ANYORDER_ROLLED
    for (int d = 0; d < columns(); d += 4) {
      ANYORDER_UNROLL
      for (int r = 0; r < kThreadRows; ++r) {
        const Float4 x = LoadFour(rows + r * kStride + d);
        ANYORDER_UNROLL
        for (int c = 0; c < kThreadKeys; ++c) {
          const Float4 y = LoadFour(memory.band + at[r][c] + d);
          ANYORDER_UNROLL
          for (int i = 0; i < 4; ++i) values.v[r][c] = MultiplyAdd(x.v[i], y.v[i], values.v[r][c]);
        }
      }
    }
  }
  // Eight threads read each row of the table together, 16 bytes a thread, so that it is one piece
  // of memory, and have four rows under way; then each gets the sum of its own key. Rolled up, with
  // the sums in memory.scores, which nobody needs yet: else they and their addresses would fill the
  // registers.
  ANYORDER_DEVICE void AddGathered(int half, PairValues& values) const {
    float* const sums = memory.scores + ThreadRow() * kScoreStride + ThreadKey(0);
    ANYORDER_ROLLED
    for (int n = 0; n < kThreadRows * kThreadKeys; ++n) {
      const int r = n / kThreadKeys;
      const int c = n % kThreadKeys;
      sums[r * kScoreStride + 8 * c] = GatheredDot(ThreadRow() + r, half * kTileKeys + 8 * c);
    }
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) {
      ANYORDER_UNROLL
      for (int c = 0; c < kThreadKeys; ++c) values.v[r][c] += sums[r * kScoreStride + 8 * c];
    }
  }
  // Of a row and the thread's key of eight from `first_key` on.
  ANYORDER_DEVICE float GatheredDot(int row, int first_key) const {
    const TileFrame& f = frame();
    constexpr int kWide = 16 / sizeof(T);
    float parts[8] = {};
    ANYORDER_ROLLED
    for (int first = 0; first < in.head_dim; first += 8 * kWide) {
      const int d = first + kWide * (Thread() % 8);
      ANYORDER_UNROLL
      for (int batch = 0; batch < 8; batch += 4) {
        if (d < in.head_dim) {
          const Wide<T> x = LoadWide<T>(memory.q_position + row * kStride + d);
          ANYORDER_UNROLL
          for (int key = batch; key < batch + 4; ++key) {
            const Wide<T> y =
                LoadWide<T>(RelativeRowOf(f.rows.pos[row], f.keys.pos[first_key + key]) + d);
            ANYORDER_UNROLL
            for (int i = 0; i < kWide; ++i) parts[key] = MultiplyAdd(x.v[i], y.v[i], parts[key]);
          }
        }
        // Keeps the compiler from having all eight under way, for which backward has no registers.
        SyncWarp();
      }
    }
    return RowScatterSum(parts);
  }
  ANYORDER_DEVICE void AddUnaligned(int half, uint32_t visible, PairValues& values) const {
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) {
      ANYORDER_UNROLL
      for (int c = 0; c < kThreadKeys; ++c) {
        if ((visible >> (kThreadKeys * r + c) & 1) == 0) continue;
        const int64_t distance = Distance(r, half * kTileKeys + ThreadKey(c));
        values.v[r][c] +=
            DotUnaligned(memory.q_position + (ThreadRow() + r) * kStride, RelativeRow(distance));
      }
    }
  }
  ANYORDER_DEVICE float DotUnaligned(const float* a, const T* b) const {
    float sum = 0;
    for (int d = 0; d < in.head_dim; d += kGroup) {
      const int left = in.head_dim - d;
      const Vector8 x = LoadVector(a + d);
      const Vector8 y = LoadGroup<false>(b + d, left < kGroup ? left : kGroup);
      ANYORDER_UNROLL
      for (int i = 0; i < kGroup; ++i) sum = MultiplyAdd(x.v[i], y.v[i], sum);
    }
    return sum;
  }

  // Scores in units of log 2, of pairs that are visible; keys and band are in shared memory.
  ANYORDER_DEVICE PairValues Scores(const TileBand& band, int half, uint32_t visible) const {
    PairValues s = {};
    if (in.relative != nullptr) AddRelative(band, half, visible, s);
    AddDots<kGroups>(memory.q, memory.keys, columns(), s);
    const TileFrame& f = frame();
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) {
      const int row = ThreadRow() + r;
      ANYORDER_UNROLL
      for (int c = 0; c < kThreadKeys; ++c) {
        const int key = half * kTileKeys + ThreadKey(c);
        float score = s.v[r][c] + f.segment_same[row];
        if (f.rows.seg[row] != f.keys.seg[key]) score += f.segment_difference[row];
        const float bias = in.distance_bias == nullptr ? 0.0f : DistanceBias(Distance(r, key));
        score = MultiplyAdd(score, in.scale, bias);
        s.v[r][c] = score * kLog2E;
      }
    }
    return s;
  }
  ANYORDER_DEVICE float DistanceBias(int64_t distance) const {
    int64_t r = distance - in.min_bias_distance;
    if (r < 0) r = 0;
    if (r >= in.num_bias_distances) r = in.num_bias_distances - 1;
    const int64_t row = int64_t{in.TableOf(tile.lane)} * in.num_bias_distances + r;
    return ToFloat(in.distance_bias[row * in.num_heads + tile.head]);
  }

  // What dropout makes of the thread's probabilities: 0, or 1 / (keep probability).
  ANYORDER_DEVICE PairValues DropoutFactors(int first_key) const {
    PairValues factors;
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) {
      const PhiloxBlock block = AttentionDropoutBlock(
          in.dropout, static_cast<uint32_t>(frame().row_ids[ThreadRow() + r]),
          static_cast<uint32_t>(tile.head), static_cast<uint32_t>(first_key + ThreadKey(0)));
      ANYORDER_UNROLL
      for (int c = 0; c < kThreadKeys; ++c) {
        // The thread's key c is number c of the call's four words: no index that only the run
        // knows.
        const uint32_t draw = block[c] >> (16 * (ThreadKey(0) & 1)) & 0xffffu;
        factors.v[r][c] = draw >= in.dropout.threshold ? in.dropout.scale() : 0.0f;
      }
    }
    return factors;
  }
};

}  // namespace anyorder::kernels::cuda
