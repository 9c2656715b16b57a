// Forward of the ring kernels: one block a tile of rows and head, which walks over the key tiles
// that its rows see, with the softmax updated as it goes (exponents to base 2, all statistics in
// fp32). Keys, values and rows of `relative` of the next step are copied while this one computes. A
// warp's rows are its own: between its part of the band and its scores there is no barrier of the
// block.

#pragma once

#include "kernels/cuda/attention/attention_ring.cuh"

namespace anyorder::kernels::cuda {

struct RingForwardParams {
  AttentionForwardParams<BFloat16> call;
  RingPlan plan;
};

inline constexpr int kRingForwardThreads = kRingWarps * kWarp;

// Places in shared memory; a pair is one for each step under way.
template <typename Tile>
struct RingForwardMemory {
  static constexpr int kOperand = kKeyTile * kOperandBytes;
  static constexpr int kRelativeOperand = Tile::kRelativeRows * kOperandBytes;

  static constexpr int kKeys = 0;  // pair; before it, the rows of q
  static constexpr int kValues = kKeys + 2 * kOperand;
  static constexpr int kRelative = kValues + 2 * kOperand;
  static constexpr int kRing = kRelative + 2 * kRelativeOperand;
  static constexpr int kTerms = kRing + (Tile::kHasBand ? RingRow(Tile::kColumns, Tile::kRows) : 0);
  static constexpr int kTermsBytes = Tile::kRelativeRows * static_cast<int>(sizeof(float));
  static constexpr int kOrders = kTerms + 2 * kTermsBytes;
  static constexpr int kOrdersBytes = kKeyTile * static_cast<int>(sizeof(RingKeyOrder));
  static constexpr int kRules = kOrders + 2 * kOrdersBytes;
  static constexpr int kRulesBytes = kKeyTile * static_cast<int>(sizeof(RingKeyRule));
  static constexpr int kRecords = kRules + 2 * kRulesBytes;
  static constexpr int kCount = kRecords + Tile::kRows * static_cast<int>(sizeof(RowRecord));
  static constexpr int kKvHead = kCount + 4;
  static constexpr int kTile = kCount + 16;
  static constexpr int kSteps = kTile + static_cast<int>(sizeof(RingRowTile));
  static_assert(kTile % alignof(RingRowTile) == 0);

  static_assert(Tile::kRows * kOperandBytes <= 2 * kOperand, "q is staged where keys come");

  // The steps and views behind the rest.
  static constexpr int Views(int key_tiles) { return kSteps + 4 * MaxSteps<Tile>(key_tiles); }
  static constexpr int Bytes(int key_tiles) { return Views(key_tiles) + key_tiles; }
};

template <typename Tile>
struct RingForward {
  using Memory = RingForwardMemory<Tile>;
  static constexpr int kThreads = kRingForwardThreads;
  static constexpr int kHalves = Tile::kHalves;
  static constexpr int kLaneRows = 2 * kHalves;  // (half, part) = (i / 2, i % 2)
  using Scores = cuda::Scores<Tile>;

  const RingForwardParams& p;
  RingBlock<Tile, kThreads> block;
  RingRows<Tile> rows;
  unsigned char* shared;
  RingWindow window;
  uint32_t q[kHalves][kRingHeadDim / 16][4];
  float out[kHalves][kRingHeadDim / 8][4];
  float top[kHalves][2];  // largest score so far, in units of log 2
  float sum[kHalves][2];  // of this lane's exponentials, relative to 2^top

  ANYORDER_DEVICE RingForward(const RingForwardParams& params, const RingRowTile& tile, int head)
      : p(params),
        block{params.call.in, params.call.prepared,
              params.plan,    tile,
              head,           reinterpret_cast<RingRowTile*>(SharedMemory() + Memory::kTile)},
        rows{Thread() / kWarp * Tile::kWarpRows,
             reinterpret_cast<const RowRecord*>(SharedMemory() + Memory::kRecords)},
        shared(SharedMemory()),
        window(params.call.in.BandOf(head)) {}

  ANYORDER_DEVICE const uint32_t* Steps() const {
    return reinterpret_cast<const uint32_t*>(shared + Memory::kSteps);
  }
  ANYORDER_DEVICE int NumSteps() const {
    return *reinterpret_cast<const int32_t*>(shared + Memory::kCount);
  }
  ANYORDER_DEVICE float* Terms(int stage) const {
    return reinterpret_cast<float*>(shared + Memory::kTerms + stage * Memory::kTermsBytes);
  }

  // q, what is known of the rows, and the list of steps.
  ANYORDER_DEVICE void Prepare() {
    SyncBlock();  // the tile is there
    block.FillOperand(shared + Memory::kKeys, p.call.in.q, p.call.in.content_bias, nullptr);
    block.FillRecords(reinterpret_cast<RowRecord*>(shared + Memory::kRecords));
    uint8_t* const views = shared + Memory::Views(p.plan.key_tiles);
    block.FillViews(views);
    SyncBlock();
    if (Thread() == 0) {
      block.template StoreKvHead<Memory>(shared);
      *reinterpret_cast<int32_t*>(shared + Memory::kCount) = ListSteps<Tile, false>(
          views, p.plan.key_tiles, reinterpret_cast<uint32_t*>(shared + Memory::kSteps));
    }
    SyncWarp();  // matrices are loaded by whole warps
    ANYORDER_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      const OperandRows left(shared + Memory::kKeys, rows.first_slot + 16 * half + InnerRow());
      ANYORDER_UNROLL
      for (int kk = 0; kk < kRingHeadDim / 16; ++kk)
        LoadMatrices(q[half][kk], left.At(0, 2 * kk + InnerChunk()));
    }
    ANYORDER_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      top[i / 2][i % 2] = -INFINITY;
      sum[i / 2][i % 2] = 0.0f;
      ANYORDER_UNROLL
      for (int c = 0; c < kRingHeadDim / 4; ++c) out[i / 2][c / 2][2 * (i % 2) + c % 2] = 0.0f;
    }
    SyncBlock();
  }

  // In the background, except for the terms, which the caller stores.
  ANYORDER_DEVICE float Copy(const RingStep& step, int stage) const {
    if (step.view() != kSeesNone) block.template CopyKeys<Memory>(shared, stage, step);
    if constexpr (Tile::kHasBand) {
      block.CopyRelative(shared + Memory::kRelative + stage * Memory::kRelativeOperand,
                         step.step());
      return block.TermOf(step.step());
    }
    return 0.0f;
  }
  ANYORDER_DEVICE void StoreTerm(float term, int stage) const {
    if (Thread() < Tile::kRelativeRows) Terms(stage)[Thread()] = term;
  }

  ANYORDER_DEVICE void ComputeBand(int k, int stage) const {
    const unsigned char* const relative =
        shared + Memory::kRelative + stage * Memory::kRelativeOperand;
    ANYORDER_UNROLL
    for (int column = 0; column < kKeyTile; column += 16)
      rows.ComputeBand(shared + Memory::kRing, relative, Terms(stage), k, column,
                       [&](int half, int kk, uint32_t(&a)[4]) {
                         ANYORDER_UNROLL
                         for (int i = 0; i < 4; ++i) a[i] = q[half][kk][i];
                       });
    SyncWarp();
  }

  ANYORDER_DEVICE void MultiplyKeys(const unsigned char* keys, Scores& scores) const {
    SyncWarp();  // visibility is found by each lane for itself
    const OperandRows right_rows(keys, ColumnRow());
    ANYORDER_UNROLL
    for (int m = 0; m < kKeyTile / 16; ++m) {
      ANYORDER_UNROLL
      for (int i = 0; i < 8 * kHalves; ++i) scores[i / 8][2 * m + i / 4 % 2][i % 4] = 0.0f;
      ANYORDER_UNROLL
      for (int kk = 0; kk < kRingHeadDim / 16; ++kk) {
        uint32_t right[4];
        LoadMatrices(right, right_rows.At(16 * m, 2 * kk + ColumnChunk()));
        ANYORDER_UNROLL
        for (int half = 0; half < kHalves; ++half) {
          MultiplyAccumulate(scores[half][2 * m], q[half][kk], right[0], right[1]);
          MultiplyAccumulate(scores[half][2 * m + 1], q[half][kk], right[2], right[3]);
        }
      }
    }
  }

  // Scores become exponentials relative to the row's largest so far; what was summed before is
  // scaled to it, by exactly 1 where the largest stays: it is kept in the units of the exponent.
  // `offset` is rounded and the multiply-add is not, so that the largest score's exponential can be
  // above 1 by a rounding.
  ANYORDER_DEVICE void UpdateSoftmax(Scores& scores) {
    const float scale = p.call.in.scale * kLog2E;
    ANYORDER_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      const int half = i / 2;
      const int part = i % 2;
      float largest = -INFINITY;
      ANYORDER_UNROLL
      for (int c = 0; c < kKeyTile / 4; ++c)
        largest = fmaxf(largest, scores[half][c / 2][2 * part + c % 2]);
      largest = fmaxf(largest, ShuffleXor(largest, 1));
      largest = fmaxf(largest, ShuffleXor(largest, 2));
      // Where nothing was seen yet, everything stays 0.
      largest = fmaxf(top[half][part], largest * scale);
      const float offset = largest == -INFINITY ? 0.0f : largest;
      const float kept = Exp2(top[half][part] - offset);
      top[half][part] = largest;
      float added = 0.0f;
      ANYORDER_UNROLL
      for (int c = 0; c < kKeyTile / 4; ++c) {
        float& score = scores[half][c / 2][2 * part + c % 2];
        score = Exp2(MultiplyAdd(score, scale, -offset));
        added += score;
      }
      sum[half][part] = sum[half][part] * kept + added;
      ANYORDER_UNROLL
      for (int c = 0; c < kRingHeadDim / 4; ++c) out[half][c / 2][2 * part + c % 2] *= kept;
    }
  }

  // A lane's 8 columns of 32 are one block of draws (kernels/dropout.h).
  ANYORDER_DEVICE void Drop(int first_key, Scores& scores) const {
    const Dropout& dropout = p.call.in.dropout;
    ANYORDER_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      const uint32_t row_id = rows.RecordOf(i / 2, i % 2).row_id;
      ANYORDER_UNROLL
      for (int group = 0; group < kKeyTile / 32; ++group) {
        const PhiloxBlock draws =
            AttentionDropoutBlock(dropout, row_id, static_cast<uint32_t>(block.head),
                                  static_cast<uint32_t>(first_key + 32 * group + 2 * (Lane() % 4)));
        ANYORDER_UNROLL
        for (int c = 0; c < 8; ++c) {
          float& score = scores[i / 2][4 * group + c / 2][2 * (i % 2) + c % 2];
          score = Draw16(draws, c) >= dropout.threshold ? score : 0.0f;
        }
      }
    }
  }

  ANYORDER_DEVICE void AddValues(const unsigned char* values, const Scores& scores) {
    SyncWarp();
    const OperandRows right_rows(values, InnerRow());
    ANYORDER_UNROLL
    for (int m = 0; m < kKeyTile / 16; ++m) {
      uint32_t left[kHalves][4];
      ANYORDER_UNROLL
      for (int i = 0; i < 4 * kHalves; ++i) {
        const float(&pair)[4] = scores[i / 4][2 * m + i % 4 / 2];
        left[i / 4][i % 4] = PackBf16(pair[2 * (i % 2)], pair[2 * (i % 2) + 1]);
      }
      ANYORDER_UNROLL
      for (int d = 0; d < kRingHeadDim / 16; ++d) {
        uint32_t right[4];
        LoadMatricesTransposed(right, right_rows.At(16 * m, 2 * d + InnerChunk()));
        ANYORDER_UNROLL
        for (int half = 0; half < kHalves; ++half) {
          MultiplyAccumulate(out[half][2 * d], left[half], right[0], right[1]);
          MultiplyAccumulate(out[half][2 * d + 1], left[half], right[2], right[3]);
        }
      }
    }
  }

  ANYORDER_DEVICE void Attend(const RingStep& step, int stage) {
    const int n = step.step() - Tile::kAhead;
    const auto* const orders = reinterpret_cast<const RingKeyOrder*>(shared + Memory::kOrders +
                                                                     stage * Memory::kOrdersBytes);
    const auto* const rules =
        reinterpret_cast<const RingKeyRule*>(shared + Memory::kRules + stage * Memory::kRulesBytes);
    uint32_t visible[kHalves] = {};
    if (step.view() == kSeesByRule)
      rows.template FindVisible<kKeyTile>(orders, rules, window, visible);
    Scores scores;
    MultiplyKeys(shared + Memory::kKeys + stage * Memory::kOperand, scores);
    if constexpr (Tile::kHasBand)
      rows.template AddBand<kKeyTile>(scores, shared + Memory::kRing, n, 0, block.first_pos);
    rows.template ApplyView<kKeyTile>(scores, step, orders, visible);
    UpdateSoftmax(scores);
    if (p.call.in.dropout.enabled()) Drop(n * kKeyTile, scores);
    AddValues(shared + Memory::kValues + stage * Memory::kOperand, scores);
  }

  ANYORDER_DEVICE void Run() {
    Prepare();
    const int count = NumSteps();
    if (count > 0) StoreTerm(Copy({Steps()[0]}, 0), 0);
    CommitCopies();
    for (int i = 0; i < count; ++i) {
      const RingStep step{Steps()[i]};
      // Behind the barrier the copies of this step are there for all, and nobody needs those of the
      // last one.
      WaitForCopies<0>();
      SyncBlock();
      float term = 0.0f;
      if (i + 1 < count) term = Copy({Steps()[i + 1]}, (i + 1) % 2);
      CommitCopies();
      // Warps without rows only copy.
      if (block.HasRow(rows.first_slot)) {
        if constexpr (Tile::kHasBand) ComputeBand(step.step(), i % 2);
        if (step.view() != kSeesNone) Attend(step, i % 2);
      }
      StoreTerm(term, (i + 1) % 2);
    }
    Finish();
  }

  ANYORDER_DEVICE void Finish() const {
    ANYORDER_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      const int slot = rows.SlotOf(i / 2, i % 2);
      float total = sum[i / 2][i % 2];
      total += ShuffleXor(total, 1);
      total += ShuffleXor(total, 2);
      if (!block.HasRow(slot)) continue;
      const float kept = p.call.in.dropout.scale();
      // Not a NaN's: that goes on to the results.
      const float factor = total == 0.0f ? 0.0f : kept / total;
      if (Lane() % 4 == 0) StoreStatistic(slot, top[i / 2][i % 2], total);
      BFloat16* const to = p.call.out + block.RowOf(slot) * block.Width() +
                           block.head * kRingHeadDim + 2 * (Lane() % 4);
      ANYORDER_UNROLL
      for (int d = 0; d < kRingHeadDim / 8; ++d)
        *reinterpret_cast<uint32_t*>(to + 8 * d) =
            PackBf16(out[i / 2][d][2 * (i % 2)] * factor, out[i / 2][d][2 * (i % 2) + 1] * factor);
    }
  }
  // Softmax only took the difference of segments; lse has the rest.
  ANYORDER_DEVICE void StoreStatistic(int slot, float largest, float total) const {
    const AttentionPrepared& prepared = p.call.prepared;
    const float same =
        prepared.segment_same == nullptr ? 0.0f : prepared.segment_same[block.StatisticOf(slot)];
    p.call.lse[block.StatisticOf(slot)] =
        total == 0.0f ? -INFINITY : largest * kLn2 + same * p.call.in.scale + logf(total);
  }
};

// Two blocks share a multiprocessor's registers.
template <bool kHasPosition>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kRingForwardThreads, 2)
    AttentionRingForwardKernel(RingForwardParams p) {
  const RingWork work(p.plan, {0, p.call.in.batch_size, 0, p.call.in.num_heads});
  if (work.tile.num_rows == 0) return;
  WithTile<kHasPosition>(work.tile, [&]<typename Tile>() {
    RingForward<Tile> forward(p, work.tile, work.head);
    forward.Run();
  });
}

}  // namespace anyorder::kernels::cuda
