// Where the ring kernels of attention put things, as pure functions of indices that host and device
// share; tests/kernels/cuda/attention checks them exhaustively where that can be done.
//
// The relative shift. A tile has rows whose positions lie in a span of S, and takes keys in tiles
// of kKeyTile. With keys affine in their slots, row a and key slot j meet at band column y = j + S
// - 1 - (pos_a - pos_0), which is one row of `relative` for all rows: relative row = origin - y. So
// the products of all rows with `relative` form a band, and a key tile n reads its columns [n
// kKeyTile, n kKeyTile + S + kKeyTile). Neighbouring key tiles share S of them: a ring of S +
// kKeyTile columns in shared memory keeps these, and each step computes one chunk of kKeyTile new
// columns.
//
// Making the skew cheap. In a content tile row a sits at position pos_0 + a. A warp has the rows a
// = 8t + warp + 4 half (t = 0..15, half = 0, 1): their shifts S - 1 - a are 8 (15 - t) + (3 - warp)
// + 4 (1 - half). The warp takes up its 3 - warp by starting its operand that many rows of
// `relative` later, half 0 its 4 by storing that many columns to the left; what is left is whole
// 16-byte chunks, and one ldmatrix with an address for each row reads the skewed band in the layout
// of a product's accumulators. Rows of a table tile have any positions in their span; they are read
// from the band one by one.

#pragma once

#include <cstdint>
#include <limits>

#include "kernels/cuda/attention/attention_types.h"
#include "kernels/visibility.h"

namespace anyorder::kernels::cuda {

inline constexpr int kRingHeadDim = 64;
inline constexpr int kKeyTile = kScoreTile;  // key slots of a step, columns of a chunk of the band
inline constexpr int kChunk = 8;             // bf16 elements in 16 bytes, the unit of ldmatrix
inline constexpr int kOperandBytes = 2 * kRingHeadDim;
inline constexpr int kMostKeyTiles = 1024;  // a tile's steps lie in shared memory
// Rows of `relative` behind a chunk that a content tile's warps may start at.
inline constexpr int kShiftRows = 8;

// Warps that a tile's rows are divided among. Backward has two for each share, and each takes half
// the keys.
inline constexpr int kRingWarps = 4;

// A kind of tile. kSpanOf 0: there is no position term, and no band.
template <int kRowsOf, int kSpanOf, bool kIsTable>
struct RingTileForm {
  static constexpr int kRows = kRowsOf;
  static constexpr int kWarpRows = kRows / kRingWarps;
  static constexpr int kHalves = kWarpRows / 16;  // products have 16 rows
  static constexpr int kSpan = kSpanOf;
  static constexpr bool kHasBand = kSpan > 0;
  static constexpr bool kTable = kIsTable;           // slots hold rows in order
  static constexpr int kAhead = kSpan / kKeyTile;    // chunks behind its own that a key tile reads
  static constexpr int kColumns = kSpan + kKeyTile;  // of the ring
  static constexpr int kRelativeRows = kHasBand ? kKeyTile + (kTable ? 0 : kShiftRows) : 0;
};
using ContentTile = RingTileForm<128, 128, false>;
using TableTile = RingTileForm<64, 256, true>;
using UnplacedTile = RingTileForm<128, 0, true>;  // of either stream

// The row of the tile that slot kWarpRows warp + 16 half + t holds.
template <typename Tile>
constexpr int RowOfSlot(int slot) {
  if constexpr (Tile::kTable) return slot;
  return 8 * (slot % 16) + slot / 32 + 4 * (slot / 16 % 2);
}
// For a content tile, which column its row a and the key at column 0 meet at: in 16-byte chunks,
// and the rest that moves the operand and what is stored.
constexpr int ContentShiftChunks(int slot) { return 15 - slot % 16; }
constexpr int ContentOperandShift(int warp) { return 3 - warp; }
constexpr int ContentStoreShift(int half) { return 4 * (1 - half); }

// Byte of 16-byte chunk `chunk` of row `row` of an operand of 64 columns.
constexpr int OperandOffset(int row, int chunk) {
  return row * kOperandBytes + ((chunk ^ (row & 7)) << 4);
}

// The ring's chunks are spread by an exclusive or with this, found by search: stores are free of
// bank conflicts and skewed reads at most two-way. None is free of both, for the skew is a
// subtraction.
constexpr int RingSpread(int row) { return static_cast<int>(0x53672410u >> (4 * (row & 7)) & 7u); }
constexpr int RingRow(int columns, int slot) { return slot * columns * 2; }
// Byte, in a row of the ring, of column z.
constexpr int RingColumn(int z, int spread) { return (((z >> 3) ^ spread) << 4) + ((z & 7) << 1); }
// The ring's first column of chunk (or key tile) k.
template <typename Tile>
constexpr int RingBase(int k) {
  return k % (Tile::kAhead + 1) * kKeyTile;
}
constexpr int WrapColumn(int z, int columns) {
  return z < 0 ? z + columns : z >= columns ? z - columns : z;
}

// Smallest and largest value of some slots.
struct SlotRange {
  int32_t low = std::numeric_limits<int32_t>::max();
  int32_t high = std::numeric_limits<int32_t>::min();

  constexpr bool empty() const { return low > high; }
  constexpr void Add(int32_t value) {
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  constexpr bool Meets(const SlotRange& other) const {
    return !empty() && !other.empty() && low <= other.high && other.low <= high;
  }
  // Every value is the other's only one.
  constexpr bool IsOnly(const SlotRange& other) const {
    return low == high && other.low == other.high && low == other.low;
  }
};

// What is known of the rows of a tile, or of kKeyTile key slots. Pads are counted and left out.
struct SlotSummary {
  SlotRange pos;
  SlotRange order;  // lim or key
  SlotRange grp;    // of the slots that have one
  SlotRange doc;    // of the slots that are not kDocAny
  SlotRange seg;
  int32_t slots = 0;
  int32_t pads = 0;  // also the slots behind the last key
  int32_t globals = 0;
  int32_t any_docs = 0;

  constexpr void Add(int32_t position, int32_t ord, int32_t group, int32_t document,
                     int32_t segment, bool glob) {
    ++slots;
    pos.Add(position);
    order.Add(ord);
    seg.Add(segment);
    if (group >= 0) grp.Add(group);
    if (document == kDocAny) ++any_docs;
    if (document != kDocAny) doc.Add(document);
    if (glob) ++globals;
  }
};

// How a tile of rows sees a tile of keys.
enum TileView : uint32_t {
  kSeesNone = 0,
  kSeesAll = 1,
  kSeesByOrder = 2,  // key <= lim decides, for pads too (their key is kKeyNever)
  kSeesByRule = 3,   // the whole rule of kernels/visibility.h
};
inline constexpr uint32_t kTileViewMask = 3;
// With kSeesAll: every pair is of different segments (else none is). The other views look at each
// pair's segments.
inline constexpr uint32_t kOtherSegment = 4;
// With any view: some key slots are pads, whose keys and values must not be read.
inline constexpr uint32_t kHasPads = 8;

constexpr bool BandIsWhole(const SlotSummary& rows, const SlotSummary& keys, const Band& band) {
  if (rows.globals == rows.slots || keys.globals == keys.slots) return true;
  const int64_t low = int64_t{rows.pos.low} - keys.pos.high;
  const int64_t high = int64_t{rows.pos.high} - keys.pos.low;
  return band.stride == 1 && (band.left < 0 || high <= band.left) &&
         (band.right < 0 || low >= -int64_t{band.right});
}
constexpr bool BandIsPossible(const SlotSummary& rows, const SlotSummary& keys, const Band& band) {
  if (rows.globals > 0 || keys.globals > 0) return true;
  const int64_t low = int64_t{rows.pos.low} - keys.pos.high;
  const int64_t high = int64_t{rows.pos.high} - keys.pos.low;
  return (band.left < 0 || low <= int64_t{band.left} * band.stride) &&
         (band.right < 0 || high >= -int64_t{band.right} * band.stride);
}

// A TileView, with kOtherSegment or without. Exact where it says none or all, never too strict
// elsewhere.
constexpr uint32_t ViewOfTile(const SlotSummary& rows, const SlotSummary& keys, const Band& band,
                              bool has_segments) {
  if (rows.slots == 0 || keys.slots == 0) return kSeesNone;
  const bool may_meet = rows.grp.Meets(keys.grp);
  // Rows of kDocAny see keys of kDocAny, whose documents are not in the ranges.
  if (keys.any_docs == 0 && !rows.doc.Meets(keys.doc)) return kSeesNone;
  if (keys.order.low > rows.order.high && !may_meet) return kSeesNone;
  if (!BandIsPossible(rows, keys, band)) return kSeesNone;

  const bool docs_agree =
      keys.any_docs == keys.slots || (rows.any_docs == 0 && rows.doc.IsOnly(keys.doc));
  const bool order_agrees = keys.order.high <= rows.order.low;
  const bool order_hides_pads =
      keys.pads == 0 || rows.order.high < std::numeric_limits<int32_t>::max();
  if (!docs_agree || !BandIsWhole(rows, keys, band) || !order_hides_pads ||
      (may_meet && !order_agrees))
    return kSeesByRule;
  if (!order_agrees || keys.pads > 0) return kSeesByOrder;
  if (!has_segments || rows.seg.IsOnly(keys.seg)) return kSeesAll;
  return rows.seg.Meets(keys.seg) ? kSeesByOrder : kSeesAll | kOtherSegment;
}

// A step of a tile: chunk `step` of the band is computed, key tile step - kAhead is attended to,
// and in backward chunk step - kAhead is used up.
struct RingStep {
  static constexpr uint32_t kBand = 16;  // the chunk is needed
  static constexpr uint32_t kFinished =
      32;  // the chunk behind was needed, and nobody will touch it again
  static constexpr int kFlagBits = 6;

  uint32_t bits;

  constexpr int step() const { return static_cast<int>(bits >> kFlagBits); }
  constexpr uint32_t view() const { return bits & kTileViewMask; }
  constexpr bool is_other_segment() const { return (bits & kOtherSegment) != 0; }
  constexpr bool has_pads() const { return (bits & kHasPads) != 0; }
  constexpr bool has_band() const { return (bits & kBand) != 0; }
  constexpr bool is_finished() const { return (bits & kFinished) != 0; }
};

// The most steps that a tile can have.
template <typename Tile>
constexpr int MaxSteps(int key_tiles) {
  return key_tiles + 2 * Tile::kAhead;
}

// Writes the steps that the views of `key_tiles` key tiles ask for, in order, and returns how many.
// Forward takes those whose chunk some visible tile reads; backward also those where a tile that is
// not visible shares a chunk with one that is, for its zeros.
template <typename Tile, bool kBackward>
constexpr int ListSteps(const uint8_t* views, int key_tiles, uint32_t* steps) {
  constexpr int kFar = -1000;
  constexpr int kReach = kBackward ? 2 * Tile::kAhead : Tile::kAhead;
  int count = 0;
  int last = kFar;    // visible tile at or before the chunk
  int behind = kFar;  // the same, of the chunk that is used up
  for (int k = 0; k < key_tiles + kReach; ++k) {
    const int tile = k - Tile::kAhead;
    if (k < key_tiles && (views[k] & kTileViewMask) != kSeesNone) last = k;
    if (tile >= 0 && tile < key_tiles && (views[tile] & kTileViewMask) != kSeesNone) behind = tile;
    if (k > last + kReach) continue;
    uint32_t bits = static_cast<uint32_t>(k) << RingStep::kFlagBits;
    if (tile >= 0 && tile < key_tiles) bits |= views[tile];
    if (k <= last + Tile::kAhead) bits |= RingStep::kBand;
    if (tile >= 0 && tile <= behind + Tile::kAhead) bits |= RingStep::kFinished;
    steps[count++] = bits;
  }
  return count;
}

}  // namespace anyorder::kernels::cuda
