// Visibility by tiles of 64 keys: what minima and maxima of the integers of kernels/visibility.h
// say about a block of rows and a tile of keys, and the bits of single pairs where they do not say
// enough.

#pragma once

#include "kernels/cpu/attention/attention_problem.h"
#include "kernels/cpu/attention/attention_simd.h"

namespace anyorder::kernels::cpu::ANYORDER_ISA {

inline constexpr int64_t kTileKeys = 64;
inline constexpr int64_t kChunkTiles = 8;
inline constexpr int64_t kChunkKeys = kTileKeys * kChunkTiles;

inline constexpr int32_t kIntMin = -2147483647 - 1;
inline constexpr int32_t kIntMax = 2147483647;

struct Range {
  int64_t min = int64_t{1} << 40;
  int64_t max = -(int64_t{1} << 40);
  void Include(int64_t a) {
    min = Min(min, a);
    max = Max(max, a);
  }
  void Include(const Range& other) {
    min = Min(min, other.min);
    max = Max(max, other.max);
  }
  bool empty() const { return min > max; }
  bool Meets(const Range& other) const { return min <= other.max && other.min <= max; }
};

// One lane's keys, padded to whole tiles with slots that nobody sees.
struct LaneKeys {
  int64_t count = 0;
  int64_t num_tiles = 0;
  int32_t* pos = nullptr;
  int32_t* key = nullptr;
  int32_t* grp = nullptr;
  int32_t* doc = nullptr;
  int32_t* seg = nullptr;
  int32_t* glob = nullptr;
};

struct KeyTile {
  Range key, pos, grp, doc;  // grp: of those >= 0; doc: of real documents
  bool any_doc = false;      // some slot is kDocAny
  bool any_pad = false;      // some slot is kDocPad or past the end
  bool any_glob = false;
  bool contiguous = false;  // pos rises by one from slot to slot
};

struct RowStats {
  Range lim, pos, grp, doc;
  bool any_glob = false;
};

enum class TileView : uint8_t { kSkip, kFull, kPartial };

inline void LoadLaneKeys(const AttentionProblem& p, int64_t lane, LaneKeys* keys) {
  const int64_t begin = lane * p.num_keys;
  for (int64_t j = 0; j < p.num_keys; ++j) {
    keys->pos[j] = p.keys.pos[begin + j];
    keys->key[j] = p.keys.key[begin + j];
    keys->grp[j] = p.keys.grp[begin + j];
    keys->doc[j] = p.keys.doc[begin + j];
    keys->seg[j] = p.keys.seg[begin + j];
    keys->glob[j] = p.keys.glob[begin + j];
  }
  for (int64_t j = p.num_keys; j < keys->num_tiles * kTileKeys; ++j) {
    keys->pos[j] = 0;
    keys->key[j] = kKeyNever;
    keys->grp[j] = -1;
    keys->doc[j] = kDocPad;
    keys->seg[j] = 0;
    keys->glob[j] = 0;
  }
}

inline KeyTile MakeKeyTile(const LaneKeys& keys, int64_t tile) {
  KeyTile stats;
  const int64_t begin = tile * kTileKeys;
  const int64_t end = Min(begin + kTileKeys, keys.count);
  stats.contiguous = true;
  stats.any_pad = end < begin + kTileKeys;
  for (int64_t j = begin; j < end; ++j) {
    stats.key.Include(keys.key[j]);
    stats.pos.Include(keys.pos[j]);
    if (keys.grp[j] >= 0) stats.grp.Include(keys.grp[j]);
    if (keys.doc[j] == kDocAny)
      stats.any_doc = true;
    else if (keys.doc[j] == kDocPad)
      stats.any_pad = true;
    else
      stats.doc.Include(keys.doc[j]);
    stats.any_glob |= keys.glob[j] != 0;
    if (j > begin && int64_t{keys.pos[j]} != int64_t{keys.pos[j - 1]} + 1) stats.contiguous = false;
  }
  return stats;
}

inline RowStats MakeRowStats(const AttentionProblem& p, int64_t row, int64_t count) {
  RowStats stats;
  for (int64_t i = row; i < row + count; ++i) {
    stats.lim.Include(p.rows.lim[i]);
    stats.pos.Include(p.rows.pos[i]);
    if (p.rows.grp[i] >= 0) stats.grp.Include(p.rows.grp[i]);
    stats.doc.Include(p.rows.doc[i]);
    stats.any_glob |= p.rows.glob[i] != 0;
  }
  return stats;
}

inline TileView Classify(const RowStats& rows, const KeyTile& keys, const Band& band) {
  const Range distance{rows.pos.min - keys.pos.max, rows.pos.max - keys.pos.min};
  const bool glob = rows.any_glob || keys.any_glob;
  const bool docs_meet = keys.any_doc || rows.doc.Meets(keys.doc);
  const bool groups_meet = rows.grp.Meets(keys.grp);
  if (!docs_meet || (rows.lim.max < keys.key.min && !groups_meet)) return TileView::kSkip;
  const int64_t farthest_left = int64_t{band.left} * band.stride;
  const int64_t farthest_right = -int64_t{band.right} * band.stride;
  if (!glob && band.left >= 0 && distance.min > farthest_left) return TileView::kSkip;
  if (!glob && band.right >= 0 && distance.max < farthest_right) return TileView::kSkip;

  const bool one_doc =
      keys.doc.empty() || (keys.doc.min == keys.doc.max && rows.doc.min == keys.doc.min &&
                           rows.doc.max == keys.doc.min);
  const bool in_band = band.stride == 1 && (band.left < 0 || distance.max <= farthest_left) &&
                       (band.right < 0 || distance.min >= farthest_right);
  const bool full = !keys.any_pad && one_doc && rows.lim.min >= keys.key.max && in_band;
  return full ? TileView::kFull : TileView::kPartial;
}

// The band test of 64 keys one by one: strides, and positions whose difference might overflow 32
// bits.
inline uint64_t BandBitsSlowly(int32_t pos, const int32_t* key_pos, const Band& band) {
  uint64_t bits = 0;
  for (int64_t j = 0; j < kTileKeys; ++j) {
    const int64_t distance = int64_t{pos} - key_pos[j];
    const bool inside = (band.left < 0 || distance <= int64_t{band.left} * band.stride) &&
                        (band.right < 0 || distance >= -int64_t{band.right} * band.stride) &&
                        distance % band.stride == 0;
    bits |= static_cast<uint64_t>(inside) << j;
  }
  return bits;
}

// Band tests that hold for a whole (row block, key tile) pair.
struct BandTest {
  bool needed = false;
  bool fast = false;
  int32_t low = kIntMin;  // low <= pos_i - pos_j <= high
  int32_t high = kIntMax;
};

inline BandTest MakeBandTest(const RowStats& rows, const KeyTile& keys, const Band& band) {
  BandTest test;
  test.needed = band.left >= 0 || band.right >= 0 || band.stride != 1;
  test.fast = band.stride == 1 && rows.pos.max - keys.pos.min <= kIntMax &&
              rows.pos.min - keys.pos.max >= kIntMin;
  if (band.left >= 0) test.high = band.left;
  if (band.right >= 0) test.low = -band.right;
  return test;
}

// Bit j of the result: row `row` sees key `begin + j` of its lane.
inline uint64_t VisibleBits(const AttentionProblem& p, int64_t row, const LaneKeys& keys,
                            int64_t begin, const BandTest& test, const Band& band) {
  const Ints any = Set(kDocAny);
  // A row in the padding document matches kDocAny only, never other padding.
  const int32_t row_doc = p.rows.doc[row] == kDocPad ? kDocAny : p.rows.doc[row];
  const Ints doc = Set(row_doc);
  const Ints lim = Set(p.rows.lim[row]);
  const int32_t row_grp = p.rows.grp[row];
  const Ints grp = Set(row_grp);
  uint64_t bits = 0;
  for (int64_t j = 0; j < kTileKeys; j += kLanes) {
    const int64_t at = begin + j;
    const Ints key_doc = Load(keys.doc + at);
    const Mask same_doc = Or(Equal(key_doc, any), Equal(key_doc, doc));
    Mask allowed = LessEqual(Load(keys.key + at), lim);
    if (row_grp >= 0) allowed = Or(allowed, Equal(Load(keys.grp + at), grp));
    bits |= ToBits(And(same_doc, allowed)) << j;
  }
  if (!test.needed || p.rows.glob[row] != 0 || bits == 0) return bits;
  uint64_t band_bits = 0;
  if (test.fast) {
    const Ints pos = Set(p.rows.pos[row]);
    for (int64_t j = 0; j < kTileKeys; j += kLanes) {
      const Ints distance = Sub(pos, Load(keys.pos + begin + j));
      const Mask inside =
          And(LessEqual(Set(test.low), distance), LessEqual(distance, Set(test.high)));
      band_bits |= ToBits(inside) << j;
    }
  } else {
    band_bits = BandBitsSlowly(p.rows.pos[row], keys.pos + begin, band);
  }
  for (int64_t j = 0; j < kTileKeys && band_bits != ~uint64_t{0}; j += kLanes)
    band_bits |= ToBits(LessEqual(Set(1), Load(keys.glob + begin + j))) << j;
  return bits & band_bits;
}

// `all` becomes that of its own slots and those of `more`.
inline void Merge(const KeyTile& more, KeyTile* all) {
  all->key.Include(more.key);
  all->pos.Include(more.pos);
  all->grp.Include(more.grp);
  all->doc.Include(more.doc);
  all->any_doc |= more.any_doc;
  all->any_pad |= more.any_pad;
  all->any_glob |= more.any_glob;
}

// A run of tiles worked on together: either every tile's positions go on from the last one's (then
// the relative term is a skewed product), or none's do and distances are looked up one by one.
struct KeyChunk {
  int64_t begin_tile = 0;
  int64_t end_tile = 0;
  bool contiguous = true;
  KeyTile all;  // of all its tiles' slots: whoever sees none of these need not look at the tiles
};

// Cuts a lane's tiles into chunks of at most kChunkTiles; returns how many. chunks: [num_tiles].
inline int64_t MakeChunks(const KeyTile* tiles, int64_t num_tiles, bool positions_matter,
                          KeyChunk* chunks) {
  int64_t count = 0;
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const bool contiguous = tiles[tile].contiguous || !positions_matter;
    KeyChunk* last = count > 0 ? &chunks[count - 1] : nullptr;
    const bool joins =
        last != nullptr && last->end_tile - last->begin_tile < kChunkTiles &&
        last->contiguous == contiguous &&
        (!contiguous || !positions_matter || tiles[tile].pos.min == tiles[tile - 1].pos.max + 1);
    if (joins) {
      last->end_tile = tile + 1;
      Merge(tiles[tile], &last->all);
    } else {
      chunks[count++] = {tile, tile + 1, contiguous, tiles[tile]};
    }
  }
  return count;
}

}  // namespace anyorder::kernels::cpu::ANYORDER_ISA
