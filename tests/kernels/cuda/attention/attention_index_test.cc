// What results do not show of the ring kernels' index functions: bank conflicts, steps for every
// set of visible tiles, tile views against the rule itself. Where rows and columns lie,
// attention_dispatch_test.cc shows.

#include "kernels/cuda/attention/attention_index.h"

#include <gtest/gtest.h>

#include <array>

#include "core/base/philox.h"
#include "tests/kernels/attention_case.h"

namespace anyorder::kernels::cuda {
namespace {

// Each chunk of an operand has its own 16 bytes, and the 8 rows of one matrix lie in different
// banks wherever they begin.
constexpr bool OperandsAreSound() {
  constexpr int kRows = 72;
  std::array<bool, kRows * kOperandBytes / 16> taken{};
  for (int row = 0; row < kRows; ++row) {
    for (int chunk = 0; chunk < kOperandBytes / 16; ++chunk) {
      const int at = OperandOffset(row, chunk);
      if (at % 16 != 0 || taken[at / 16]) return false;
      taken[at / 16] = true;
    }
  }
  for (int first = 0; first + 8 <= kRows; ++first) {
    unsigned banks = 0;
    for (int row = first; row < first + 8; ++row) banks |= 1u << OperandOffset(row, 3) / 16 % 8;
    if (banks != 0xffu) return false;
  }
  return true;
}
static_assert(OperandsAreSound());

template <typename Tile>
constexpr bool RingColumnsAreSound() {
  for (int spread = 0; spread < 8; ++spread) {
    std::array<bool, static_cast<size_t>(Tile::kColumns)> taken{};
    for (int z = 0; z < Tile::kColumns; ++z) {
      const int at = RingColumn(z, spread);
      if (at < 0 || at >= 2 * Tile::kColumns || taken[at / 2]) return false;
      if (z % kChunk == 0 && at % 16 != 0) return false;
      taken[at / 2] = true;
    }
  }
  return RingRow(Tile::kColumns, 1) % 128 == 0;  // rows begin at the same bank
}
static_assert(RingColumnsAreSound<ContentTile>() && RingColumnsAreSound<TableTile>());

// The most lanes that meet in one bank when a warp stores a product's 32 words into the ring.
template <typename Tile>
constexpr int StoreConflicts() {
  int most = 0;
  for (int first = -4; first + 8 <= Tile::kColumns; first += 4) {
    std::array<int, 32> count{};
    for (int lane = 0; lane < 32; ++lane) {
      const int z = WrapColumn(first + 2 * (lane % 4), Tile::kColumns);
      const int at = RingRow(Tile::kColumns, lane / 4) + RingColumn(z, RingSpread(lane / 4));
      most = std::max(most, ++count[at / 4 % 32]);
    }
  }
  return most;
}
static_assert(StoreConflicts<ContentTile>() == 1 && StoreConflicts<TableTile>() == 1);

// The same for the 8 rows of one matrix of a skewed read.
constexpr int SkewedReadConflicts() {
  constexpr int kChunks = ContentTile::kColumns / kChunk;
  int most = 0;
  for (int first = 0; first < kChunks; ++first) {
    for (int half = 0; half < 16; half += 8) {
      std::array<int, 8> count{};
      for (int row = half; row < half + 8; ++row) {
        const int chunk = WrapColumn(first + ContentShiftChunks(row), kChunks);
        most = std::max(most, ++count[(chunk ^ RingSpread(row)) % 8]);
      }
    }
  }
  return most;
}
static_assert(SkewedReadConflicts() == 2);

// The steps for one set of visible key tiles (bits of `seen`).
template <typename Tile, bool kBackward>
constexpr bool StepsAreSound(unsigned seen) {
  constexpr int kTiles = 8;
  constexpr int kMost = MaxSteps<Tile>(kTiles);
  std::array<uint8_t, kTiles> views{};
  for (int n = 0; n < kTiles; ++n) views[n] = (seen >> n & 1u) != 0 ? kSeesByRule : kSeesNone;
  std::array<uint32_t, kMost> steps{};
  const int count = ListSteps<Tile, kBackward>(views.data(), kTiles, steps.data());
  // By number of step: 1 listed, 2 with its chunk, 4 attended to, 8 with the chunk behind used up.
  std::array<int, kMost> done{};
  for (int i = 0; i < count; ++i) {
    const RingStep step{steps[i]};
    if (i > 0 && step.step() <= RingStep{steps[i - 1]}.step()) return false;
    done[step.step()] = 1 + (step.has_band() ? 2 : 0) + (step.view() != kSeesNone ? 4 : 0) +
                        (step.is_finished() ? 8 : 0);
  }
  for (int n = 0; n < kTiles; ++n) {
    const bool is_seen = (seen >> n & 1u) != 0;
    if (((done[n + Tile::kAhead] & 4) != 0) != is_seen) return false;
    for (int k = n; is_seen && k <= n + Tile::kAhead; ++k) {
      if ((done[k] & 2) == 0) return false;
    }
  }
  for (int c = 0; kBackward && c < kTiles + Tile::kAhead; ++c) {
    const bool has_band = (done[c] & 2) != 0;
    if (((done[c + Tile::kAhead] & 8) != 0) != has_band) return false;
    // Every key tile that shares columns with the chunk has its step, be it for zeros.
    for (int k = c; has_band && k <= c + Tile::kAhead; ++k) {
      if (done[k] == 0) return false;
    }
  }
  return true;
}
template <typename Tile>
constexpr bool StepsAreSound() {
  for (unsigned seen = 0; seen < 256; ++seen) {
    if (!StepsAreSound<Tile, false>(seen) || !StepsAreSound<Tile, true>(seen)) return false;
  }
  return true;
}
static_assert(StepsAreSound<ContentTile>() && StepsAreSound<TableTile>());
static_assert(StepsAreSound<UnplacedTile>());

// Twelve rows and twelve keys of few values, so that every view comes up.
struct Sample {
  testing::Slots rows, keys;
  Band band;

  explicit Sample(uint64_t seed) {
    RandomStream random(seed, RandomPurpose::kCorruption, 2, 0);
    const auto below = [&](uint32_t bound) { return static_cast<int32_t>(random.Below(bound)); };
    const int32_t variety = 1 + below(3);
    const auto fill = [&](testing::Slots* slots, bool is_key) {
      const int32_t order = below(8);
      const int32_t doc = below(4) == 0 ? kDocAny : below(2);
      const int32_t seg = below(2);
      const bool has_one_document = below(3) != 0;
      const bool has_one_segment = below(2) != 0;
      const bool has_groups = below(3) == 0;
      const bool has_globals = below(3) == 0;
      for (int i = 0; i < 12; ++i) {
        const bool is_pad = is_key && variety > 1 && below(15) == 0;
        slots->Add(below(20), order + below(2 * variety), has_groups ? below(5) - 2 : -1,
                   is_pad             ? kDocPad
                   : has_one_document ? doc
                   : below(2) == 0    ? doc
                                      : below(variety),
                   has_one_segment ? seg : below(variety), has_globals && below(9) == 0);
      }
    };
    fill(&rows, false);
    fill(&keys, true);
    if (below(2) == 0) band = {below(30) - 1, below(30) - 1, 1 + below(2)};
  }
  static SlotSummary Summary(const testing::Slots& slots, bool are_keys) {
    SlotSummary summary;
    for (size_t i = 0; i < slots.pos.size(); ++i) {
      if (are_keys && slots.doc[i] == kDocPad) {
        ++summary.pads;
      } else {
        summary.Add(slots.pos[i], slots.order[i], slots.grp[i], slots.doc[i], slots.seg[i],
                    slots.glob[i] != 0);
      }
    }
    return summary;
  }
};

TEST(AttentionIndexTest, ViewsOfTilesAgreeWithTheRule) {
  std::array<int, 8> times{};
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    const Sample s(seed);
    const uint32_t view =
        ViewOfTile(Sample::Summary(s.rows, false), Sample::Summary(s.keys, true), s.band, true);
    ++times[view];
    for (size_t i = 0; i < s.rows.pos.size(); ++i) {
      for (size_t j = 0; j < s.keys.pos.size(); ++j) {
        const bool visible = IsVisible(s.rows.As<RowVisibility>(), static_cast<int64_t>(i),
                                       s.keys.As<KeyVisibility>(), static_cast<int64_t>(j), s.band);
        const int32_t key = s.keys.doc[j] == kDocPad ? kKeyNever : s.keys.order[j];
        switch (view & kTileViewMask) {
          case kSeesNone: ASSERT_FALSE(visible) << seed; break;
          case kSeesAll:
            ASSERT_TRUE(visible) << seed;
            ASSERT_EQ(s.rows.seg[i] != s.keys.seg[j], (view & kOtherSegment) != 0) << seed;
            break;
          case kSeesByOrder: ASSERT_EQ(visible, key <= s.rows.order[i]) << seed; break;
          default: break;
        }
      }
    }
  }
  for (const uint32_t view : {0u, 1u, 2u, 3u, 5u}) EXPECT_GT(times[view], 10) << "view " << view;
}

TEST(AttentionIndexTest, PadsAreHiddenFromARowOfAnyOrder) {
  SlotSummary rows;
  rows.Add(0, std::numeric_limits<int32_t>::max(), -1, 0, 0, false);
  SlotSummary keys;
  keys.Add(0, 0, -1, 0, 0, false);
  EXPECT_EQ(ViewOfTile(rows, keys, {}, false), kSeesAll);
  keys.pads = 1;
  EXPECT_EQ(ViewOfTile(rows, keys, {}, false), kSeesByRule);
}

}  // namespace
}  // namespace anyorder::kernels::cuda
