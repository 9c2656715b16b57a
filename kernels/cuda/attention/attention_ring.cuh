// What the two ring kernels of attention share: how a block finds its work, copies its operands,
// computes the band of position products and decides who sees whom. A warp has one or two halves of
// 16 row slots; lane (g, t) = (Lane() / 4, Lane() % 4) of it holds, of each half, rows g and g + 8
// and of each 8 columns those at 2t and 2t + 1: the layout of a product's accumulators.

#pragma once

#include <cmath>

#include "kernels/cuda/attention/attention_ring.h"
#include "kernels/cuda/platform/simt.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

// Scores of a warp: [half][8 columns][part 2 * row + column].
template <typename Tile>
using Scores = float[Tile::kHalves][kKeyTile / 8][4];

// A block's part of the work of a group of lanes and heads (RingBlocks).
struct RingWork {
  int head;
  const RingRowTile& tile;

  ANYORDER_DEVICE RingWork(const RingPlan& plan, const AttentionGroup& group)
      : head(group.first_head + BlockX() % group.num_heads),
        tile(plan.work[int64_t{group.first_lane + BlockX() / group.num_heads % group.num_lanes} *
                           (plan.capacity[0] + plan.capacity[1]) +
                       BlockX() / group.num_heads / group.num_lanes]) {}
};

// Calls function.template operator()<Tile>() with the tile's kind, which is the same for all
// threads of the block.
template <bool kHasPosition, typename Function>
ANYORDER_DEVICE void WithTile(const RingRowTile& tile, Function&& function) {
  if constexpr (!kHasPosition)
    function.template operator()<UnplacedTile>();
  else if (tile.stream == 0)
    function.template operator()<ContentTile>();
  else
    function.template operator()<TableTile>();
}

// Shared memory of a block that may get a tile of any kind.
template <bool kHasPosition, template <typename> typename Memory>
constexpr int RingBytes(int key_tiles) {
  if constexpr (!kHasPosition) return Memory<UnplacedTile>::Bytes(key_tiles);
  const int content = Memory<ContentTile>::Bytes(key_tiles);
  const int table = Memory<TableTile>::Bytes(key_tiles);
  return content > table ? content : table;
}

// A row slot in shared memory; a slot without a row sees nothing.
struct alignas(16) RowRecord {
  int32_t lim;
  int32_t seg;
  float difference;  // AttentionPrepared::segment_difference
  uint32_t row_id;
  int32_t pos;
  int32_t grp;
  int32_t doc;
  int32_t glob;
};

// Rows of an operand in shared memory as ldmatrix asks for them. `row` is this lane's.
struct OperandRows {
  const unsigned char* base;
  int spread;

  ANYORDER_DEVICE OperandRows(const unsigned char* operand, int row)
      : base(operand + row * kOperandBytes), spread(row & 7) {}
  // `more` rows on, a multiple of 8.
  ANYORDER_DEVICE const unsigned char* At(int more, int chunk) const {
    return base + more * kOperandBytes + ((chunk ^ spread) << 4);
  }
};
// Of 16 rows that are columns of a product.
ANYORDER_DEVICE int ColumnRow() { return Lane() % 8 + Lane() / 16 * 8; }
ANYORDER_DEVICE int ColumnChunk() { return Lane() / 8 % 2; }
// Of 16 rows that are rows of the left factor, or the inner dimension of a product with the
// transposed load.
ANYORDER_DEVICE int InnerRow() { return Lane() % 16; }
ANYORDER_DEVICE int InnerChunk() { return Lane() / 16; }

// The window of a head, in 32 bits: distances fit (attention_plan.cu).
struct RingWindow {
  int32_t lowest;
  int32_t highest;
  int32_t stride;

  ANYORDER_DEVICE explicit RingWindow(const Band& band) : stride(band.stride) {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    const int64_t left = int64_t{band.left} * band.stride;
    const int64_t right = int64_t{band.right} * band.stride;
    highest = static_cast<int32_t>(band.left < 0 || left > kMost ? kMost : left);
    lowest = static_cast<int32_t>(band.right < 0 || right > kMost ? -kMost : -right);
  }
  ANYORDER_DEVICE bool Contains(int32_t distance) const {
    return distance >= lowest && distance <= highest && (stride == 1 || distance % stride == 0);
  }
};

// One block of kThreads threads: a tile of rows and a head. Its copies go over 16-byte chunks, 8 of
// a row of an operand; a thread's chunk and the last bits of its rows are the same in every turn.
template <typename Tile, int kThreads>
struct RingBlock {
  static constexpr int kRowsOfTurn = kThreads / kChunk;
  static_assert(kRowsOfTurn % 8 == 0);

  const AttentionProblem<BFloat16>& in;
  const AttentionPrepared& prepared;
  const RingPlan& plan;
  // In shared memory, behind the first barrier: it leaves no registers. What the copies of a step
  // need of it is kept beside it, for behind every copy and barrier memory would be read again.
  const RingRowTile& tile;
  int lane;
  int table;  // of `relative`; the lane's
  int32_t first_pos;
  int32_t origin;
  int head;

  ANYORDER_DEVICE RingBlock(const AttentionProblem<BFloat16>& problem,
                            const AttentionPrepared& before, const RingPlan& the_plan,
                            const RingRowTile& the_tile, int the_head, RingRowTile* copy)
      : in(problem),
        prepared(before),
        plan(the_plan),
        tile(*copy),
        lane(the_tile.lane),
        table(problem.TableOf(the_tile.lane)),
        first_pos(the_tile.first_pos),
        origin(the_tile.origin),
        head(the_head) {
    // Not the first, which runs ahead of the others in the emulation: so a missing barrier is
    // found.
    if (Thread() == kThreads - 1) *copy = the_tile;
  }

  ANYORDER_DEVICE int64_t Width() const { return int64_t{in.num_heads} * kRingHeadDim; }
  ANYORDER_DEVICE bool HasRow(int slot) const { return RowOfSlot<Tile>(slot) < tile.num_rows; }
  ANYORDER_DEVICE int64_t RowOf(int slot) const { return tile.first_row + RowOfSlot<Tile>(slot); }
  ANYORDER_DEVICE int64_t StatisticOf(int slot) const { return RowOf(slot) * in.num_heads + head; }

  ANYORDER_DEVICE RowRecord RecordOf(int slot) const {
    if (!HasRow(slot))
      return {std::numeric_limits<int32_t>::min(), 0, 0.0f, 0, first_pos, -1, kDocPad, 0};
    const int64_t row = RowOf(slot);
    const float difference = prepared.segment_difference == nullptr
                                 ? 0.0f
                                 : prepared.segment_difference[StatisticOf(slot)];
    const auto row_id = static_cast<uint32_t>(in.dropout.enabled() ? in.row_ids[row] : 0);
    return {in.rows.lim[row], in.rows.seg[row], difference,       row_id,
            in.rows.pos[row], in.rows.grp[row], in.rows.doc[row], in.rows.glob[row]};
  }
  ANYORDER_DEVICE void FillRecords(RowRecord* records) const {
    for (int slot = Thread(); slot < Tile::kRows; slot += kThreads) records[slot] = RecordOf(slot);
  }

  // Of every key tile, into `views`. Then by one thread, behind a barrier: ListSteps.
  ANYORDER_DEVICE void FillViews(uint8_t* views) const {
    const Band band = in.BandOf(head);
    const SlotSummary* const keys = plan.keys + int64_t{lane} * plan.key_tiles;
    for (int n = Thread(); n < plan.key_tiles; n += kThreads) {
      const uint32_t view =
          ViewOfTile(tile.rows, keys[n], band, prepared.segment_difference != nullptr);
      views[n] = static_cast<uint8_t>(view | (keys[n].pads > 0 ? kHasPads : 0));
    }
  }

  // Rows of q or dout with `bias` added where there is one, rounded to bf16. Zeros where there is
  // no row, and where `lse` is given and says that a row sees nothing: its memory may hold
  // anything.
  ANYORDER_DEVICE void FillOperand(unsigned char* operand, const BFloat16* from,
                                   const BFloat16* bias, const float* lse) const {
    const int chunk = Thread() % kChunk;
    Vector8 added = {};
    if (bias != nullptr) added = LoadVector(bias + head * kRingHeadDim + chunk * kChunk);
    for (int slot = Thread() / kChunk; slot < Tile::kRows; slot += kRowsOfTurn) {
      Vector8 x = {};
      if (HasRow(slot) && (lse == nullptr || lse[StatisticOf(slot)] != -INFINITY))
        x = LoadVector(from + RowOf(slot) * Width() + head * kRingHeadDim + chunk * kChunk);
      ANYORDER_UNROLL
      for (int e = 0; e < kGroup; ++e) x.v[e] += added.v[e];
      StoreVector(reinterpret_cast<BFloat16*>(operand + OperandOffset(slot, chunk)), x);
    }
  }

  // By one thread, before a barrier. Beside the tile, for the same reason.
  template <typename Memory>
  ANYORDER_DEVICE void StoreKvHead(unsigned char* shared) const {
    *reinterpret_cast<int32_t*>(shared + Memory::kKvHead) = in.KvHeadOf(head);
  }

  // In the background: keys, values and visibility of the step's key tile, to their places of
  // `stage` in the block's memory. Those of pads are zeros, also behind the last key: a weight of 0
  // hides a number, but not a NaN.
  template <typename Memory>
  ANYORDER_DEVICE void CopyKeys(unsigned char* shared, int stage, const RingStep& step) const {
    unsigned char* const keys = shared + Memory::kKeys + stage * Memory::kOperand;
    unsigned char* const values = shared + Memory::kValues + stage * Memory::kOperand;
    unsigned char* const orders = shared + Memory::kOrders + stage * Memory::kOrdersBytes;
    unsigned char* const rules = shared + Memory::kRules + stage * Memory::kRulesBytes;
    const int n = step.step() - Tile::kAhead;
    const int row = Thread() / kChunk;
    const int chunk = Thread() % kChunk;
    const int slot = n * kKeyTile + row;
    const int64_t width = int64_t{in.num_kv_heads} * kRingHeadDim;
    const int kv_head = *reinterpret_cast<const int32_t*>(shared + Memory::kKvHead);
    const int64_t at =
        (int64_t{lane} * in.num_keys + slot) * width + kv_head * kRingHeadDim + chunk * kChunk;
    const int64_t first = (int64_t{lane} * plan.key_tiles + n) * kKeyTile;
    ANYORDER_UNROLL
    for (int more = 0; more < kKeyTile; more += kRowsOfTurn) {
      const bool exists = !step.has_pads() || plan.rules[first + row + more].doc != kDocPad;
      const int64_t from = exists ? at + more * width : 0;
      CopyAsync16(keys + OperandOffset(row + more, chunk), in.k + from, exists);
      CopyAsync16(values + OperandOffset(row + more, chunk), in.v + from, exists);
    }
    constexpr int kOrderCopies = kKeyTile * static_cast<int>(sizeof(RingKeyOrder)) / 16;
    const int i = Thread();
    if (i < kOrderCopies) CopyAsync16(orders + 16 * i, plan.orders + first + 2 * i, true);
    static_assert(kThreads >= kKeyTile);
    if (i < kKeyTile) CopyAsync16(rules + 16 * i, plan.rules + first + i, true);
  }

  // Row of `relative` at column y of the band; out of the table: nobody's pair.
  ANYORDER_DEVICE int RelativeRow(int y) const { return origin - y; }
  ANYORDER_DEVICE bool IsInTable(int row) const { return row >= 0 && row < in.num_distances; }

  // In the background: the rows of chunk k and those behind that a content tile's warps may start
  // at.
  ANYORDER_DEVICE void CopyRelative(unsigned char* operand, int k) const {
    const int row = Thread() / kChunk;
    const int chunk = Thread() % kChunk;
    const int r = RelativeRow(k * kKeyTile + row);
    const int64_t at =
        (int64_t{table} * in.num_distances + r) * Width() + head * kRingHeadDim + chunk * kChunk;
    ANYORDER_UNROLL
    for (int more = 0; more < Tile::kRelativeRows; more += kRowsOfTurn) {
      if (row + more >= Tile::kRelativeRows) break;
      const bool exists = IsInTable(r - more);
      CopyAsync16(operand + OperandOffset(row + more, chunk),
                  in.relative + (exists ? at - more * Width() : 0), exists);
    }
  }
  // This thread's term of chunk k, for column Thread(); 0 where there is none.
  ANYORDER_DEVICE float TermOf(int k) const {
    if (prepared.distance_terms == nullptr || Thread() >= Tile::kRelativeRows) return 0.0f;
    const int r = RelativeRow(k * kKeyTile + Thread());
    if (!IsInTable(r)) return 0.0f;
    const int64_t at = int64_t{table} * in.num_heads + head;
    return prepared.distance_terms[at * in.num_distances + r];
  }
};

// Row slots of a warp, and what its lanes know of them.
template <typename Tile>
struct RingRows {
  static constexpr int kHalves = Tile::kHalves;
  static constexpr int kLaneRows = 2 * kHalves;  // (half, part) = (i / 2, i % 2)

  int first_slot;  // of the warp
  const RowRecord* records;

  ANYORDER_DEVICE int SlotOf(int half, int part) const {
    return first_slot + 16 * half + 8 * part + Lane() / 4;
  }
  ANYORDER_DEVICE const RowRecord& RecordOf(int half, int part) const {
    return records[SlotOf(half, part)];
  }
  // Column of the band that row and key column 0 of the key tile at column 0 meet at.
  ANYORDER_DEVICE int ShiftOf(int half, int part, int first_pos) const {
    return Tile::kSpan - 1 - (RecordOf(half, part).pos - first_pos);
  }

  // Products of the 16 columns of the band from `column` of chunk k on into the ring. `left(half,
  // kk)` is a fragment of the rows.
  template <typename Left>
  ANYORDER_DEVICE void ComputeBand(unsigned char* ring, const unsigned char* relative,
                                   const float* terms, int k, int column, Left&& left) const {
    const int shift = Tile::kTable ? 0 : ContentOperandShift(first_slot / Tile::kWarpRows);
    SyncWarp();  // matrices are loaded by whole warps
    float product[kHalves][2][4];
    ANYORDER_UNROLL
    for (int u = 0; u < 2; ++u) {
      const float* const term = terms + shift + column + 8 * u + 2 * (Lane() % 4);
      ANYORDER_UNROLL
      for (int i = 0; i < 4 * kHalves; ++i) product[i / 4][u][i % 4] = term[i % 2];
    }
    const OperandRows rows(relative, shift + ColumnRow());
    ANYORDER_UNROLL
    for (int kk = 0; kk < kRingHeadDim / 16; ++kk) {
      uint32_t right[4];
      LoadMatrices(right, rows.At(column, 2 * kk + ColumnChunk()));
      ANYORDER_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        uint32_t a[4];
        left(half, kk, a);
        MultiplyAccumulate(product[half][0], a, right[0], right[1]);
        MultiplyAccumulate(product[half][1], a, right[2], right[3]);
      }
    }
    StoreBand(ring, k, column, product);
  }

  // A content tile's half 0 lies 4 columns to the left.
  ANYORDER_DEVICE void StoreBand(unsigned char* ring, int k, int column,
                                 const float (&product)[kHalves][2][4]) const {
    const int spread = RingSpread(Lane() / 4);
    ANYORDER_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      const int left = Tile::kTable ? 0 : ContentStoreShift(half);
      ANYORDER_UNROLL
      for (int u = 0; u < 2; ++u) {
        const int z = WrapColumn(RingBase<Tile>(k) + column + 8 * u + 2 * (Lane() % 4) - left,
                                 Tile::kColumns);
        ANYORDER_UNROLL
        for (int part = 0; part < 2; ++part) {
          unsigned char* const at = ring + RingRow(Tile::kColumns, SlotOf(half, part));
          *reinterpret_cast<uint32_t*>(at + RingColumn(z, spread)) =
              PackBf16(product[half][u][2 * part], product[half][u][2 * part + 1]);
        }
      }
    }
  }

  // Adds the skewed band to scores of the kColumnsOf keys from `column` of key tile n on.
  template <int kColumnsOf>
  ANYORDER_DEVICE void AddBand(float (&scores)[kHalves][kColumnsOf / 8][4],
                               const unsigned char* ring, int n, int column, int first_pos) const {
    if constexpr (Tile::kTable)
      AddTableBand<kColumnsOf>(scores, ring, n, column, first_pos);
    else
      AddContentBand<kColumnsOf>(scores, ring, n, column);
  }

  template <int kColumnsOf>
  ANYORDER_DEVICE void AddContentBand(float (&scores)[kHalves][kColumnsOf / 8][4],
                                      const unsigned char* ring, int n, int column) const {
    constexpr int kChunks = Tile::kColumns / kChunk;
    const int spread = RingSpread(Lane() % 8);
    const int first =
        (RingBase<Tile>(n) + column) / kChunk + ContentShiftChunks(InnerRow()) + InnerChunk();
    ANYORDER_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      const unsigned char* const row =
          ring + RingRow(Tile::kColumns, first_slot + 16 * half + InnerRow());
      ANYORDER_UNROLL
      for (int m = 0; m < kColumnsOf / 16; ++m) {
        const int chunk = WrapColumn(first + 2 * m, kChunks);
        uint32_t band[4];
        LoadMatrices(band, row + ((chunk ^ spread) << 4));
        ANYORDER_UNROLL
        for (int i = 0; i < 4; ++i) {
          scores[half][2 * m + i / 2][2 * (i % 2)] += LowBf16(band[i]);
          scores[half][2 * m + i / 2][2 * (i % 2) + 1] += HighBf16(band[i]);
        }
      }
    }
  }

  template <int kColumnsOf>
  ANYORDER_DEVICE void AddTableBand(float (&scores)[kHalves][kColumnsOf / 8][4],
                                    const unsigned char* ring, int n, int column,
                                    int first_pos) const {
    constexpr int kChunks = Tile::kColumns / kChunk;
    const int spread = RingSpread(Lane() / 4);
    ANYORDER_UNROLL
    for (int i = 0; i < 4 * kHalves; ++i) {
      const int half = i / 4;
      const int part = i / 2 % 2;
      // Eight columns on is a chunk on, at the same place in it.
      const int z = WrapColumn(
          RingBase<Tile>(n) + column + ShiftOf(half, part, first_pos) + 2 * (Lane() % 4) + i % 2,
          Tile::kColumns);
      const unsigned char* const place =
          ring + RingRow(Tile::kColumns, SlotOf(half, part)) + RingColumn(z & (kChunk - 1), 0);
      const int first = z >> 3;
      ANYORDER_UNROLL
      for (int c = 0; c < kColumnsOf / 8; ++c) {
        const int chunk = first + c < kChunks ? first + c : first + c - kChunks;
        const auto bits = *reinterpret_cast<const uint16_t*>(place + ((chunk ^ spread) << 4));
        scores[half][c][2 * part + i % 2] += LowBf16(bits);
      }
    }
  }

  // Which of the lane's scores of the kColumnsOf keys that `orders` and `rules` begin at are
  // visible by the whole rule (kernels/visibility.h): bit part * kColumnsOf / 4 + column of each
  // half. In rolled loops and before there are scores, for these leave no registers.
  template <int kColumnsOf>
  ANYORDER_DEVICE void FindVisible(const RingKeyOrder* orders, const RingKeyRule* rules,
                                   const RingWindow& window, uint32_t (&visible)[kHalves]) const {
    ANYORDER_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      visible[half] = 0;
      ANYORDER_ROLLED
      for (int i = 0; i < kColumnsOf / 2; ++i) {
        const RowRecord& row = RecordOf(half, i / (kColumnsOf / 4));
        const int c = i % (kColumnsOf / 4);
        const int column = c / 2 * 8 + 2 * (Lane() % 4) + c % 2;
        const RingKeyRule& rule = rules[column];
        const bool same_doc = rule.doc != kDocPad && (rule.doc == kDocAny || rule.doc == row.doc);
        const bool in_order =
            orders[column].key <= row.lim || (row.grp >= 0 && row.grp == rule.grp);
        const bool in_window = (row.glob | rule.glob) != 0 || window.Contains(row.pos - rule.pos);
        if (same_doc && in_order && in_window) visible[half] |= 1u << i;
      }
    }
  }

  // Adds the segments' term to the scores of the kColumnsOf keys that `orders` begins at, and hides
  // what is not visible.
  template <int kColumnsOf>
  ANYORDER_DEVICE void ApplyView(float (&scores)[kHalves][kColumnsOf / 8][4], const RingStep& step,
                                 const RingKeyOrder* orders,
                                 const uint32_t (&visible)[kHalves]) const {
    if (step.view() == kSeesByRule) {
      Hide<kColumnsOf>(scores, orders, [&](int i, int c, int32_t) {
        return (visible[i / 2] >> (i % 2 * (kColumnsOf / 4) + c) & 1u) != 0;
      });
    } else if (step.view() == kSeesByOrder) {
      int32_t lim[kLaneRows];
      ANYORDER_UNROLL
      for (int i = 0; i < kLaneRows; ++i) lim[i] = RecordOf(i / 2, i % 2).lim;
      Hide<kColumnsOf>(scores, orders, [&](int i, int, int32_t key) { return key <= lim[i]; });
    } else if (step.is_other_segment()) {
      AddDifference<kColumnsOf>(scores);
    }
  }

  template <int kColumnsOf>
  ANYORDER_DEVICE void AddDifference(float (&scores)[kHalves][kColumnsOf / 8][4]) const {
    ANYORDER_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      const float difference = RecordOf(i / 2, i % 2).difference;
      ANYORDER_UNROLL
      for (int c = 0; c < kColumnsOf / 4; ++c)
        scores[i / 2][c / 2][2 * (i % 2) + c % 2] += difference;
    }
  }

  // Adds the segments' term to each score, and hides it unless sees(row of the lane, column, key's
  // order).
  template <int kColumnsOf, typename Sees>
  ANYORDER_DEVICE void Hide(float (&scores)[kHalves][kColumnsOf / 8][4], const RingKeyOrder* orders,
                            Sees&& sees) const {
    int32_t seg[kLaneRows];
    float difference[kLaneRows];
    ANYORDER_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      seg[i] = RecordOf(i / 2, i % 2).seg;
      difference[i] = RecordOf(i / 2, i % 2).difference;
    }
    ANYORDER_UNROLL
    for (int c = 0; c < kColumnsOf / 4; ++c) {
      const RingKeyOrder key = orders[c / 2 * 8 + 2 * (Lane() % 4) + c % 2];
      ANYORDER_UNROLL
      for (int i = 0; i < kLaneRows; ++i) {
        float& score = scores[i / 2][c / 2][2 * (i % 2) + c % 2];
        if (key.seg != seg[i]) score += difference[i];
        score = sees(i, c, key.key) ? score : -INFINITY;
      }
    }
  }
};

}  // namespace anyorder::kernels::cuda
