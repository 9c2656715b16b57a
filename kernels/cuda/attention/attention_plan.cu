// Plans the ring kernels' work, one block a lane: which form the lane's rows have, their tiles and
// the order of these, and what decides at a glance how a tile of rows sees a tile of keys
// (attention_index.h).

#include "kernels/cuda/attention/attention_ring.h"
#include "kernels/cuda/attention/attention_scratch.h"
#include "kernels/cuda/platform/launch.h"
#include "kernels/cuda/platform/simt.h"

namespace anyorder::kernels::cuda {

inline constexpr int kPlanThreads = 256;
inline constexpr int kStagedRows =
    512;  // positions that thread 0 looks at before the block fetches more

struct AttentionPlanParams {
  AttentionProblem<BFloat16> in;
  RingPlan plan;
};

struct PlanShared {
  int64_t warp_values[kPlanThreads / kWarp];
  int32_t positions[kStagedRows];
  int32_t query_tiles;  // -1: they do not fit
};

ANYORDER_DEVICE SlotRange WarpRange(const SlotRange& range) {
  return {WarpMin(range.low), WarpMax(range.high)};
}
ANYORDER_DEVICE SlotSummary WarpSummary(const SlotSummary& one) {
  SlotSummary all;
  all.pos = WarpRange(one.pos);
  all.order = WarpRange(one.order);
  all.grp = WarpRange(one.grp);
  all.doc = WarpRange(one.doc);
  all.seg = WarpRange(one.seg);
  all.slots = WarpSum(one.slots);
  all.pads = WarpSum(one.pads);
  all.globals = WarpSum(one.globals);
  all.any_docs = WarpSum(one.any_docs);
  return all;
}

// The smallest value of a block's threads, for all of them.
ANYORDER_DEVICE int64_t BlockLow(int64_t value, PlanShared& shared) {
  value = WarpMin(value);
  if (Lane() == 0) shared.warp_values[Thread() / kWarp] = value;
  SyncBlock();
  for (int warp = 0; warp < kPlanThreads / kWarp; ++warp)
    value = shared.warp_values[warp] < value ? shared.warp_values[warp] : value;
  SyncBlock();
  return value;
}
ANYORDER_DEVICE bool BlockAll(bool holds, PlanShared& shared) {
  return BlockLow(holds ? 1 : 0, shared) == 1;
}

struct LanePlanner {
  const AttentionPlanParams& p;
  PlanShared& shared;
  int lane;
  int64_t key_offset = 0;  // pos - slot of every key that is no pad, if keys are affine

  ANYORDER_DEVICE int64_t KeyAt(int slot) const { return int64_t{lane} * p.in.num_keys + slot; }
  ANYORDER_DEVICE RingRowTile& TileAt(int stream, int tile) const {
    return p.plan.tiles[stream][int64_t{lane} * p.plan.capacity[stream] + tile];
  }

  // Whether positions grow with slots, one by one, over all keys that are no pads.
  ANYORDER_DEVICE bool KeysAreAffine() {
    int64_t first = p.in.num_keys;
    for (int j = Thread(); j < p.in.num_keys && first == p.in.num_keys; j += kPlanThreads) {
      if (p.in.keys.doc[KeyAt(j)] != kDocPad) first = j;
    }
    first = BlockLow(first, shared);
    if (first == p.in.num_keys) return true;
    key_offset = p.in.keys.pos[KeyAt(static_cast<int>(first))] - first;
    bool affine = true;
    for (int j = Thread(); j < p.in.num_keys; j += kPlanThreads)
      affine &= p.in.keys.doc[KeyAt(j)] == kDocPad || p.in.keys.pos[KeyAt(j)] == key_offset + j;
    return BlockAll(affine, shared);
  }

  // Whether differences of positions fit in 32 bits.
  ANYORDER_DEVICE bool DistancesFit() {
    int64_t low = std::numeric_limits<int64_t>::max();
    int64_t minus_high = low;
    const auto add = [&](int64_t pos) {
      low = pos < low ? pos : low;
      minus_high = -pos < minus_high ? -pos : minus_high;
    };
    for (int j = Thread(); j < p.in.num_keys; j += kPlanThreads) {
      if (p.in.keys.doc[KeyAt(j)] != kDocPad) add(p.in.keys.pos[KeyAt(j)]);
    }
    for (int stream = 0; stream < 2; ++stream) {
      for (int i = Thread(); i < p.in.RowsOfStream(stream); i += kPlanThreads)
        add(p.in.rows.pos[p.in.FirstRow(stream, lane) + i]);
    }
    low = BlockLow(low, shared);
    minus_high = BlockLow(minus_high, shared);
    return low > -minus_high || -minus_high - low <= std::numeric_limits<int32_t>::max();
  }

  // Whether positions of content rows grow one by one within each tile.
  ANYORDER_DEVICE bool ContentRowsAreAffine() {
    const int32_t* const pos = p.in.rows.pos + p.in.FirstRow(0, lane);
    bool affine = true;
    for (int i = Thread(); i < p.in.content_rows; i += kPlanThreads) {
      const int first = i / ContentTile::kRows * ContentTile::kRows;
      affine &= int64_t{pos[i]} - pos[first] == i - first;
    }
    return BlockAll(affine, shared);
  }

  ANYORDER_DEVICE void SetTile(int stream, int tile, int first, int count, int32_t first_pos) {
    RingRowTile& to = TileAt(stream, tile);
    to.first_row = p.in.FirstRow(stream, lane) + first;
    to.num_rows = count;
    to.lane = lane;
    to.first_pos = first_pos;
    to.stream = stream;
    const int span = stream == 0 ? ContentTile::kSpan : TableTile::kSpan;
    const int64_t origin = first_pos - key_offset - p.in.min_distance + span - 1;
    // Beyond these every column is out of the table.
    const int64_t most =
        int64_t{p.in.num_distances} + int64_t{p.plan.key_tiles} * kKeyTile + 4 * TableTile::kSpan;
    to.origin = static_cast<int32_t>(origin < -1 ? -1 : origin < most ? origin : most);
  }

  // Tiles without rows are written whole, like all others: a compiler may have a kernel load a tile
  // at once. Tiles of `rows` rows in order; without a position term any rows do.
  ANYORDER_DEVICE void SetRegularTiles(int stream, int rows) {
    const int total = p.in.RowsOfStream(stream);
    for (int tile = Thread(); tile < p.plan.capacity[stream]; tile += kPlanThreads) {
      const int first = tile * rows;
      const int left = total - first;
      if (left <= 0) {
        TileAt(stream, tile) = {};
      } else {
        SetTile(stream, tile, first, left < rows ? left : rows,
                p.in.rows.pos[p.in.FirstRow(stream, lane) + first]);
      }
    }
  }

  // Neighbouring query rows as long as their positions lie in the span; whether the tiles suffice.
  // Rows may come in any order, but only sorted ones are sure to fit.
  ANYORDER_DEVICE bool SetTableTiles() {
    const int32_t* const pos = p.in.rows.pos + p.in.FirstRow(1, lane);
    int tiles = 0;
    int first = 0;
    SlotRange span;
    const auto close = [&](int end) {
      if (tiles < p.plan.capacity[1]) SetTile(1, tiles, first, end - first, span.low);
      ++tiles;
      first = end;
      span = SlotRange();
    };
    for (int from = 0; from < p.in.query_rows; from += kStagedRows) {
      const int left = p.in.query_rows - from;
      const int count = left < kStagedRows ? left : kStagedRows;
      for (int i = Thread(); i < count; i += kPlanThreads) shared.positions[i] = pos[from + i];
      SyncBlock();
      for (int i = 0; i < count && Thread() == 0; ++i) {
        SlotRange wider = span;
        wider.Add(shared.positions[i]);
        if (from + i - first == TableTile::kRows ||
            int64_t{wider.high} - wider.low >= TableTile::kSpan) {
          close(from + i);
          wider = SlotRange();
          wider.Add(shared.positions[i]);
        }
        span = wider;
      }
      SyncBlock();
    }
    if (Thread() == 0) {
      if (p.in.query_rows > 0) close(p.in.query_rows);
      shared.query_tiles = tiles <= p.plan.capacity[1] ? tiles : -1;
    }
    SyncBlock();
    const int used = shared.query_tiles < 0 ? 0 : shared.query_tiles;
    for (int tile = used + Thread(); tile < p.plan.capacity[1]; tile += kPlanThreads)
      TileAt(1, tile) = {};
    return shared.query_tiles >= 0;
  }

  // A warp a tile.
  ANYORDER_DEVICE void SummariseRows(int stream) {
    const RowVisibility& rows = p.in.rows;
    for (int tile = Thread() / kWarp; tile < p.plan.capacity[stream];
         tile += kPlanThreads / kWarp) {
      RingRowTile& to = TileAt(stream, tile);
      SlotSummary one;
      for (int i = Lane(); i < to.num_rows; i += kWarp) {
        const int64_t row = to.first_row + i;
        one.Add(rows.pos[row], rows.lim[row], rows.grp[row], rows.doc[row], rows.seg[row],
                rows.glob[row] != 0);
      }
      const SlotSummary all = WarpSummary(one);
      const int visible = CountVisible(all);
      if (Lane() != 0) continue;
      to.rows = all;
      to.cost = to.num_rows == 0 ? 0 : CostOf(stream, visible);
    }
  }
  // Key tiles that a tile with these rows may see in some head, as a warp.
  ANYORDER_DEVICE int CountVisible(const SlotSummary& rows) const {
    const SlotSummary* const keys = p.plan.keys + int64_t{lane} * p.plan.key_tiles;
    int count = 0;
    for (int n = Lane(); n < p.plan.key_tiles; n += kWarp)
      count += ViewOfTile(rows, keys[n], Band{}, false) == kSeesNone ? 0 : 1;
    return WarpSum(count);
  }
  // The block's steps, each as long as it has rows.
  ANYORDER_DEVICE int CostOf(int stream, int visible) const {
    if (!p.in.HasPosition()) return visible * UnplacedTile::kRows;
    return stream == 0 ? (visible + ContentTile::kAhead) * ContentTile::kRows
                       : (visible + TableTile::kAhead) * TableTile::kRows;
  }

  // Copies each tile to its place, behind those that cost more and, of as much, those before it.
  ANYORDER_DEVICE void OrderWork() {
    const int total = p.plan.capacity[0] + p.plan.capacity[1];
    for (int i = Thread(); i < total; i += kPlanThreads) {
      const RingRowTile& tile = AnyTile(i);
      int place = 0;
      for (int j = 0; j < total; ++j) {
        const int32_t other = AnyTile(j).cost;
        place += other > tile.cost || (other == tile.cost && j < i) ? 1 : 0;
      }
      p.plan.work[int64_t{lane} * total + place] = tile;
    }
  }
  // Content tiles, then query tiles.
  ANYORDER_DEVICE const RingRowTile& AnyTile(int i) const {
    return i < p.plan.capacity[0] ? TileAt(0, i) : TileAt(1, i - p.plan.capacity[0]);
  }

  ANYORDER_DEVICE void CopyAndSummariseKeys() {
    const KeyVisibility& keys = p.in.keys;
    for (int tile = Thread() / kWarp; tile < p.plan.key_tiles; tile += kPlanThreads / kWarp) {
      SlotSummary one;
      for (int i = Lane(); i < kKeyTile; i += kWarp) {
        const int slot = tile * kKeyTile + i;
        const int64_t to = int64_t{lane} * p.plan.key_tiles * kKeyTile + slot;
        const int64_t from = KeyAt(slot);
        if (slot >= p.in.num_keys || keys.doc[from] == kDocPad) {
          ++one.pads;
          p.plan.orders[to] = {kKeyNever, 0};
          p.plan.rules[to] = {0, -1, kDocPad, 0};
          continue;
        }
        one.Add(keys.pos[from], keys.key[from], keys.grp[from], keys.doc[from], keys.seg[from],
                keys.glob[from] != 0);
        p.plan.orders[to] = {keys.key[from], keys.seg[from]};
        p.plan.rules[to] = {keys.pos[from], keys.grp[from], keys.doc[from], keys.glob[from]};
      }
      const SlotSummary all = WarpSummary(one);
      if (Lane() == 0) p.plan.keys[int64_t{lane} * p.plan.key_tiles + tile] = all;
    }
  }

  ANYORDER_DEVICE void SetForm(int stream, bool is_ring) {
    if (Thread() == 0)
      p.plan.forms[stream * p.in.batch_size + lane] = is_ring ? kRingForm : kGeneralForm;
    if (is_ring) return;
    for (int tile = Thread(); tile < p.plan.capacity[stream]; tile += kPlanThreads)
      TileAt(stream, tile) = {};
  }

  ANYORDER_DEVICE void Run() {
    CopyAndSummariseKeys();
    bool content_fits = DistancesFit();
    bool query_fits = content_fits;
    if (p.in.HasPosition()) {
      const bool affine = KeysAreAffine();
      content_fits = content_fits && affine && ContentRowsAreAffine();
      query_fits = SetTableTiles() && query_fits && affine;
    } else {
      SetRegularTiles(1, UnplacedTile::kRows);
    }
    static_assert(ContentTile::kRows == UnplacedTile::kRows);
    SetRegularTiles(0, ContentTile::kRows);
    SyncBlock();
    SetForm(0, content_fits);
    SetForm(1, query_fits);
    SyncBlock();
    SummariseRows(0);
    SummariseRows(1);
    SyncBlock();
    OrderWork();
  }
};

ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kPlanThreads, 1)
    AttentionPlanKernel(AttentionPlanParams p) {
  LanePlanner planner{p, *reinterpret_cast<PlanShared*>(SharedMemory()), BlockX()};
  planner.Run();
}

bool RingApplies(const AttentionProblem<BFloat16>& in) {
  return in.head_dim == kRingHeadDim && in.num_bias_distances == 0 && in.is_aligned &&
         CeilDivide(in.num_keys, kKeyTile) <= kMostKeyTiles;
}

void MakeRingPlan(const AttentionProblem<BFloat16>& in, const RingPlan& plan, StreamView stream) {
  Launch(AttentionPlanKernel,
         {.blocks_x = in.batch_size,
          .threads = kPlanThreads,
          .shared_bytes = static_cast<int64_t>(sizeof(PlanShared))},
         AttentionPlanParams{in, plan}, stream);
}

}  // namespace anyorder::kernels::cuda
