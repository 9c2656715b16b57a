#include "tests/gpu/attention_switches.h"

#include <array>

#include "absl/strings/str_cat.h"

#include "kernels/cuda/attention/attention_index.h"
#include "tests/kernels/attention_scenarios.h"

namespace anyorder::testing {
namespace {

using kernels::testing::AttentionCase;

constexpr std::array<const char*, kBf16 + 1> kLevelNames = {"one tile",
                                                            "+tiles and heads",
                                                            "+mixed visibility",
                                                            "+position",
                                                            "+biases",
                                                            "+segments",
                                                            "+memory",
                                                            "+queries",
                                                            "+lanes",
                                                            "+XLNet's orders and directions",
                                                            "+dropout",
                                                            "+bf16"};

constexpr int32_t kLength = 136;
constexpr int32_t kMemoryLength = 40;

// One stream, and the query stream of every sixth slot on its level.
AttentionCase PlainCase(Level level) {
  const int32_t length = level >= kSeveralTiles ? kLength : 64;
  AttentionCase c = kernels::testing::OneStreamCase(
      "", level >= kMemory ? kMemoryLength : 0, length,
      [level](int32_t i) { return level >= kMixedVisibility ? i : 0; });
  for (size_t lane = 0; lane < c.keys.size(); ++lane) {
    const size_t memory = c.keys[lane].pos.size() - static_cast<size_t>(length);
    for (int32_t i = 0; i < length; ++i) {
      const int32_t segment = level >= kSegments && i >= length / 3 ? 1 : 0;
      c.content[lane].seg[static_cast<size_t>(i)] = segment;
      c.keys[lane].seg[memory + static_cast<size_t>(i)] = segment;
      if (level >= kQueries && i % 6 == 1) c.query[lane].Add(i, i - 1, -1, 0, segment);
    }
  }
  for (auto* slots : {&c.content, &c.query, &c.keys}) slots->resize(level >= kLanes ? 2 : 1);
  c.Finish(level >= kSeveralTiles ? 2 : 1, kernels::cuda::kRingHeadDim, level >= kPosition ? 1 : 0);
  c.biases = level >= kBiases;
  c.segments = level >= kSegments;
  return c;
}

// Four warps share the rows of a tile.
void Place(int64_t lane, int64_t row, int64_t length, int64_t first_tile, int64_t tile_rows,
           CheckedElement* element) {
  element->lane = static_cast<int>(lane);
  element->tile = static_cast<int>(first_tile + row / tile_rows);
  element->row_of_tile = static_cast<int>(row % tile_rows);
  element->warp = static_cast<int>(element->row_of_tile * 4 / tile_rows);
  element->is_edge = row >= length / tile_rows * tile_rows;
}

}  // namespace

std::string AttentionSwitch::name() const {
  return absl::StrCat(is_ring ? "ring " : "general ", is_backward ? "backward, " : "forward, ",
                      kLevelNames[static_cast<size_t>(level)]);
}

std::vector<AttentionSwitch> AllSwitches() {
  std::vector<AttentionSwitch> all;
  for (const bool is_ring : {false, true}) {
    for (const bool is_backward : {false, true}) {
      for (int level = kOneTile; level <= (is_ring ? kDropout : kBf16); ++level)
        all.push_back({static_cast<Level>(level), is_ring, is_backward});
    }
  }
  return all;
}

AttentionCase CaseOf(Level level) {
  if (level < kXlnet) return PlainCase(level);
  AttentionCase c =
      kernels::testing::XlnetCase(kMemoryLength, kLength, /*heads=*/2, kernels::cuda::kRingHeadDim);
  if (level >= kDropout) c.dropout_rate = 0.1;
  // Keys that are not in the order of their slots are the general kernels', in bf16 too.
  for (size_t lane = 0; level == kBf16 && lane < c.keys.size(); ++lane) c.keys[lane].pos[70] += 1;
  return c;
}

void Places::CountVisible(const kernels::AttentionInputs& in) {
  seen_by_row_.resize(static_cast<size_t>(shape_.num_rows()));
  seen_of_key_.resize(static_cast<size_t>(shape_.batch_size * shape_.num_keys));
  for (int64_t row = 0; row < shape_.num_rows(); ++row) {
    const int64_t first = shape_.LaneOfRow(row) * shape_.num_keys;
    for (int64_t key = first; key < first + shape_.num_keys; ++key) {
      if (!IsVisible(in.rows, row, in.keys, key, kernels::Band{})) continue;
      ++seen_by_row_[static_cast<size_t>(row)];
      ++seen_of_key_[static_cast<size_t>(key)];
    }
  }
}

void Places::Locate(Rows rows, int64_t row, CheckedElement* element) const {
  if (rows == Rows::kQueries) return LocateQuery(row, element);
  if (rows == Rows::kNone) return;
  const int64_t length = rows == Rows::kKeys ? shape_.num_keys : shape_.num_distances;
  Place(row / length, row % length, length, 0, is_ring_ ? 64 : 32, element);
  if (rows != Rows::kKeys) return;
  const int64_t seen = seen_of_key_[static_cast<size_t>(row)];
  element->is_mixed = seen > 0 && seen < shape_.content_rows + shape_.query_rows;
}

void Places::LocateQuery(int64_t row, CheckedElement* element) const {
  namespace cuda = kernels::cuda;
  const int64_t lane = shape_.LaneOfRow(row);
  const int64_t content = shape_.batch_size * shape_.content_rows;
  const int64_t content_tile = is_ring_ ? cuda::ContentTile::kRows : 32;
  const int64_t query_tile = !is_ring_       ? 32
                             : has_position_ ? cuda::TableTile::kRows
                                             : cuda::UnplacedTile::kRows;
  if (row < content) {
    Place(lane, row % shape_.content_rows, shape_.content_rows, 0, content_tile, element);
    // Of a content tile with a band each warp has every fourth row (RowOfSlot).
    if (is_ring_ && has_position_) element->warp = element->row_of_tile % cuda::kRingWarps;
  } else {
    const int64_t tiles = (shape_.content_rows + content_tile - 1) / content_tile;
    Place(lane, (row - content) % shape_.query_rows, shape_.query_rows, tiles, query_tile, element);
  }
  const int64_t seen = seen_by_row_[static_cast<size_t>(row)];
  element->is_mixed = seen > 0 && seen < shape_.num_keys;
}

}  // namespace anyorder::testing
