// The first backward pass of the ring kernels: one block a tile of rows and head. It computes the
// probabilities again from lse, finishes dq in registers, and leaves probabilities and gradients of
// scores in scratch for the passes over keys and distances (attention_types.h).
//
// Two warps share 32 rows and take half the keys each; their parts of dq are added at the end, in a
// fixed order. The gradient of a score replaces its position product in the ring, so that a chunk
// of the band, once no key tile will touch it again, is a left factor: dq gets its product with the
// same rows of `relative`. Every pair has one place there, so gradients are placed and never added.

#pragma once

#include "kernels/cuda/attention/attention_ring.cuh"

namespace anyorder::kernels::cuda {

struct RingBackwardParams {
  AttentionBackwardParams<BFloat16> call;
  RingPlan plan;
};

inline constexpr int kRingBackwardThreads = 2 * kRingWarps * kWarp;

// Of a row slot: lse without the segments' common term, to base 2, and sum over d of dout * out.
struct alignas(8) RowStatistics {
  float lse;
  float delta;
};

template <typename Tile>
struct RingBackwardMemory {
  static constexpr int kOperand = kKeyTile * kOperandBytes;
  static constexpr int kRowsOperand = Tile::kRows * kOperandBytes;
  static constexpr int kRelativeOperand = Tile::kRelativeRows * kOperandBytes;
  // Chunks of `relative` from the one that is used up to the one that is copied.
  static constexpr int kRelativeChunks = Tile::kAhead + 2;

  static constexpr int kQ = 0;
  static constexpr int kDout = kQ + kRowsOperand;
  static constexpr int kKeys = kDout + kRowsOperand;    // pair
  static constexpr int kValues = kKeys + 2 * kOperand;  // pair
  static constexpr int kRelative = kValues + 2 * kOperand;
  static constexpr int kRing = kRelative + kRelativeChunks * kRelativeOperand;
  static constexpr int kTerms = kRing + (Tile::kHasBand ? RingRow(Tile::kColumns, Tile::kRows) : 0);
  static constexpr int kTermsBytes = Tile::kRelativeRows * static_cast<int>(sizeof(float));
  static constexpr int kOrders = kTerms + 2 * kTermsBytes;
  static constexpr int kOrdersBytes = kKeyTile * static_cast<int>(sizeof(RingKeyOrder));
  static constexpr int kRules = kOrders + 2 * kOrdersBytes;
  static constexpr int kRulesBytes = kKeyTile * static_cast<int>(sizeof(RingKeyRule));
  static constexpr int kRecords = kRules + 2 * kRulesBytes;
  static constexpr int kStatistics = kRecords + Tile::kRows * static_cast<int>(sizeof(RowRecord));
  static constexpr int kSums = kStatistics + Tile::kRows * static_cast<int>(sizeof(RowStatistics));
  static constexpr int kCount = kSums + Tile::kRows * static_cast<int>(sizeof(float));
  static constexpr int kKvHead = kCount + 12;
  static constexpr int kTile = kCount + 16;
  static constexpr int kSteps = kTile + static_cast<int>(sizeof(RingRowTile));
  static_assert(kTile % alignof(RingRowTile) == 0);
  static constexpr int kParts = kQ;  // of dq, where q and dout were
  static_assert(2 * kRowsOperand == Tile::kRows * kRingHeadDim * static_cast<int>(sizeof(float)));

  static constexpr int Views(int key_tiles) { return kSteps + 4 * MaxSteps<Tile>(key_tiles); }
  static constexpr int Bytes(int key_tiles) { return Views(key_tiles) + key_tiles; }
  // What a block of sm_80 may have.
  static_assert(Bytes(kMostKeyTiles) <= 163 * 1024);
};

template <typename Tile>
struct RingBackward {
  using Memory = RingBackwardMemory<Tile>;
  static constexpr int kThreads = kRingBackwardThreads;
  static constexpr int kHalves = Tile::kHalves;
  static constexpr int kLaneRows = 2 * kHalves;  // (half, part) = (i / 2, i % 2)
  static constexpr int kHalf = kKeyTile / 2;     // keys of a warp
  using HalfScores = float[kHalves][kHalf / 8][4];
  using Packed =
      uint32_t[kHalves][kHalf / 8][2];  // of each half and 8 columns, a pair for each part

  const RingBackwardParams& p;
  RingBlock<Tile, kThreads> block;
  RingRows<Tile> rows;
  int first_key;  // of the warp, in a key tile
  unsigned char* shared;
  RingWindow window;
  float dq[kHalves][kRingHeadDim / 8][4];
  float other_segment[kHalves][2];  // of this lane's pairs

  ANYORDER_DEVICE RingBackward(const RingBackwardParams& params, const RingRowTile& tile, int head)
      : p(params),
        block{params.call.in, params.call.prepared,
              params.plan,    tile,
              head,           reinterpret_cast<RingRowTile*>(SharedMemory() + Memory::kTile)},
        rows{Thread() / kWarp / 2 * Tile::kWarpRows,
             reinterpret_cast<const RowRecord*>(SharedMemory() + Memory::kRecords)},
        first_key(Thread() / kWarp % 2 * kHalf),
        shared(SharedMemory()),
        window(params.call.in.BandOf(head)) {}

  ANYORDER_DEVICE uint32_t* Steps() const {
    return reinterpret_cast<uint32_t*>(shared + Memory::kSteps);
  }
  // Number of steps, and the hull of visible key tiles.
  ANYORDER_DEVICE int32_t* Count() const {
    return reinterpret_cast<int32_t*>(shared + Memory::kCount);
  }
  ANYORDER_DEVICE uint8_t* Views() const { return shared + Memory::Views(p.plan.key_tiles); }
  ANYORDER_DEVICE float* Terms(int stage) const {
    return reinterpret_cast<float*>(shared + Memory::kTerms + stage * Memory::kTermsBytes);
  }
  ANYORDER_DEVICE const RowStatistics& StatisticsOf(int slot) const {
    return reinterpret_cast<const RowStatistics*>(shared + Memory::kStatistics)[slot];
  }
  ANYORDER_DEVICE unsigned char* RelativeOf(int step) const {
    return shared + Memory::kRelative + step % Memory::kRelativeChunks * Memory::kRelativeOperand;
  }

  ANYORDER_DEVICE int StreamOf() const {
    if constexpr (Tile::kHasBand) return Tile::kTable ? 1 : 0;
    return block.tile.stream;
  }
  // The row of scratch.
  ANYORDER_DEVICE int64_t GroupRow(int slot) const {
    const AttentionProblem<BFloat16>& in = p.call.in;
    const int lane = block.lane;
    const int stream = StreamOf();
    return p.call.scores.group.FirstRow(in, stream, lane) +
           (block.RowOf(slot) - in.FirstRow(stream, lane));
  }

  ANYORDER_DEVICE RowStatistics ReadStatistics(int slot) const {
    if (!block.HasRow(slot)) return {0.0f, 0.0f};
    const int64_t at = block.StatisticOf(slot);
    const float* const same = p.call.prepared.segment_same;
    const float lse = p.call.lse[at];
    // A row that sees nothing has scores of minus infinity only.
    if (lse == -INFINITY) return {0.0f, 0.0f};
    return {(lse - (same == nullptr ? 0.0f : same[at] * p.call.in.scale)) * kLog2E,
            p.call.delta[at]};
  }

  // Operands and what is known of the rows, and the list of steps.
  ANYORDER_DEVICE void Prepare() {
    SyncBlock();  // the tile is there
    block.FillOperand(shared + Memory::kQ, p.call.in.q, p.call.in.content_bias, p.call.lse);
    block.FillOperand(shared + Memory::kDout, p.call.dout, nullptr, p.call.lse);
    block.FillRecords(reinterpret_cast<RowRecord*>(shared + Memory::kRecords));
    for (int slot = Thread(); slot < Tile::kRows; slot += kThreads)
      reinterpret_cast<RowStatistics*>(shared + Memory::kStatistics)[slot] = ReadStatistics(slot);
    block.FillViews(Views());
    ANYORDER_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      other_segment[i / 2][i % 2] = 0.0f;
      ANYORDER_UNROLL
      for (int c = 0; c < kRingHeadDim / 4; ++c) dq[i / 2][c / 2][2 * (i % 2) + c % 2] = 0.0f;
    }
    SyncBlock();
    if (Thread() == 0) {
      block.template StoreKvHead<Memory>(shared);
      Count()[0] = ListSteps<Tile, true>(Views(), p.plan.key_tiles, Steps());
      int first = 0;
      int last = p.plan.key_tiles;
      while (last > 0 && (Views()[last - 1] & kTileViewMask) == kSeesNone) --last;
      while (first < last && (Views()[first] & kTileViewMask) == kSeesNone) ++first;
      Count()[1] = first;
      Count()[2] = last;
    }
    SyncBlock();
  }

  // Hulls of the rows, empty for those that see nothing: the other passes must not read these. And
  // zeros for the key tiles in the hull that nobody sees.
  ANYORDER_DEVICE void StartScratch() const {
    const AttentionScores<BFloat16>& scores = p.call.scores;
    const int first = Count()[1];
    const int last = Count()[2];
    for (int slot = Thread(); slot < Tile::kRows; slot += kThreads) {
      if (!block.HasRow(slot)) continue;
      int32_t* const hull = scores.HullOf(GroupRow(slot), block.head);
      const bool sees = first < last && p.call.lse[block.StatisticOf(slot)] != -INFINITY;
      hull[0] = sees ? first : 0;
      hull[1] = sees ? last : 0;
    }
    for (int n = first; n < last; ++n) {
      if ((Views()[n] & kTileViewMask) != kSeesNone) continue;
      for (int i = Thread(); i < Tile::kRows * kChunk; i += kThreads) {
        const int slot = i / kChunk;
        if (!block.HasRow(slot)) continue;
        const int64_t at =
            scores.Offset(GroupRow(slot), block.head) + n * kKeyTile + i % kChunk * kChunk;
        StoreWords(scores.probabilities + at, {});
        StoreWords(scores.gradients + at, {});
      }
    }
  }

  // In the background, except for the terms, which the caller stores.
  ANYORDER_DEVICE float Copy(int i) const {
    const RingStep step{Steps()[i]};
    const int stage = i % 2;
    if (step.view() != kSeesNone) block.template CopyKeys<Memory>(shared, stage, step);
    if constexpr (Tile::kHasBand) {
      if (step.has_band()) {
        block.CopyRelative(RelativeOf(i), step.step());
        return block.TermOf(step.step());
      }
    }
    return 0.0f;
  }
  ANYORDER_DEVICE void StoreTerm(float term, int stage) const {
    if (Thread() < Tile::kRelativeRows) Terms(stage)[Thread()] = term;
  }

  // A fragment of the warp's rows of q or dout.
  ANYORDER_DEVICE void LoadRows(int operand, int half, int kk, uint32_t (&a)[4]) const {
    const OperandRows left(shared + operand, rows.first_slot + 16 * half + InnerRow());
    LoadMatrices(a, left.At(0, 2 * kk + InnerChunk()));
  }

  // Each of the two warps computes half the columns.
  ANYORDER_DEVICE void ComputeBand(int k, int i) const {
    ANYORDER_UNROLL
    for (int column = 0; column < kHalf; column += 16)
      rows.ComputeBand(
          shared + Memory::kRing, RelativeOf(i), Terms(i % 2), k, first_key + column,
          [&](int half, int kk, uint32_t(&a)[4]) { LoadRows(Memory::kQ, half, kk, a); });
  }

  // scores = q keys^T and dp = dout values^T, for the warp's keys.
  ANYORDER_DEVICE void MultiplyKeys(int stage, HalfScores& scores, HalfScores& dp) const {
    SyncWarp();  // visibility is found by each lane for itself
    ANYORDER_UNROLL
    for (int i = 0; i < 16 * kHalves; ++i) {
      scores[i / 16][i / 4 % 4][i % 4] = 0.0f;
      dp[i / 16][i / 4 % 4][i % 4] = 0.0f;
    }
    const OperandRows keys(shared + Memory::kKeys + stage * Memory::kOperand,
                           first_key + ColumnRow());
    const OperandRows values(shared + Memory::kValues + stage * Memory::kOperand,
                             first_key + ColumnRow());
    ANYORDER_UNROLL
    for (int kk = 0; kk < kRingHeadDim / 16; ++kk) {
      MultiplyRows(Memory::kQ, keys, kk, scores);
      MultiplyRows(Memory::kDout, values, kk, dp);
    }
  }
  ANYORDER_DEVICE void MultiplyRows(int operand, const OperandRows& right_rows, int kk,
                                    HalfScores& product) const {
    uint32_t left[kHalves][4];
    ANYORDER_UNROLL
    for (int half = 0; half < kHalves; ++half) LoadRows(operand, half, kk, left[half]);
    ANYORDER_UNROLL
    for (int m = 0; m < kHalf / 16; ++m) {
      uint32_t right[4];
      LoadMatrices(right, right_rows.At(16 * m, 2 * kk + ColumnChunk()));
      ANYORDER_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        MultiplyAccumulate(product[half][2 * m], left[half], right[0], right[1]);
        MultiplyAccumulate(product[half][2 * m + 1], left[half], right[2], right[3]);
      }
    }
  }

  // Scores become the probabilities after dropout, dp the gradients of the scores, both as they are
  // stored.
  ANYORDER_DEVICE void Differentiate(int n, const RingKeyOrder* orders, HalfScores& scores,
                                     HalfScores& dp, Packed& probabilities, Packed& gradients) {
    const Dropout& dropout = p.call.in.dropout;
    const float scale = p.call.in.scale;
    int32_t key_seg[kHalf / 4];
    ANYORDER_UNROLL
    for (int c = 0; c < kHalf / 4; ++c)
      key_seg[c] = orders[c / 2 * 8 + 2 * (Lane() % 4) + c % 2].seg;
    ANYORDER_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      const int half = i / 2;
      const int part = i % 2;
      const RowRecord& record = rows.RecordOf(half, part);
      const RowStatistics statistics = StatisticsOf(rows.SlotOf(half, part));
      PhiloxBlock draws = {};
      if (dropout.enabled())
        draws = AttentionDropoutBlock(
            dropout, record.row_id, static_cast<uint32_t>(block.head),
            static_cast<uint32_t>(n * kKeyTile + first_key + 2 * (Lane() % 4)));
      float kept[2];
      float ds[2];
      ANYORDER_UNROLL
      for (int c = 0; c < kHalf / 4; ++c) {
        const float probability = Exp2(
            MultiplyAdd(scores[half][c / 2][2 * part + c % 2], scale * kLog2E, -statistics.lse));
        const float factor = Draw16(draws, c) >= dropout.threshold ? dropout.scale() : 0.0f;
        kept[c % 2] = probability * factor;
        ds[c % 2] = probability *
                    MultiplyAdd(dp[half][c / 2][2 * part + c % 2], factor, -statistics.delta) *
                    scale;
        if (key_seg[c] != record.seg) other_segment[half][part] += ds[c % 2];
        if (c % 2 == 0) continue;
        probabilities[half][c / 2][part] = PackBf16(kept[0], kept[1]);
        gradients[half][c / 2][part] = PackBf16(ds[0], ds[1]);
      }
    }
  }

  // The four lanes of a row exchange words, so that each stores eight neighbouring columns at once.
  ANYORDER_DEVICE void StoreScores(int n, const Packed& probabilities,
                                   const Packed& gradients) const {
    const AttentionScores<BFloat16>& scores = p.call.scores;
    ANYORDER_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      const int slot = rows.SlotOf(i / 2, i % 2);
      const Words4 of_probabilities = Neighbours(probabilities, i / 2, i % 2);
      const Words4 of_gradients = Neighbours(gradients, i / 2, i % 2);
      if (!block.HasRow(slot)) continue;
      const int64_t at = scores.Offset(GroupRow(slot), block.head) + n * kKeyTile + first_key +
                         kChunk * (Lane() % 4);
      StoreWords(scores.probabilities + at, of_probabilities);
      StoreWords(scores.gradients + at, of_gradients);
    }
  }
  // Lane t of a row's four has of each 8 columns the t-th pair; it gets all pairs of the t-th 8
  // columns.
  ANYORDER_DEVICE static Words4 Neighbours(const Packed& packed, int half, int part) {
    Words4 pairs;
    ANYORDER_UNROLL
    for (int c = 0; c < kHalf / 8; ++c) pairs.word[c] = packed[half][c][part];
    ANYORDER_UNROLL
    for (int distance = 1; distance <= 2; distance *= 2) {
      const bool is_upper = (Lane() & distance) != 0;
      ANYORDER_UNROLL
      for (int c = 0; c < 4; ++c) {
        if ((c & distance) != 0) continue;
        uint32_t& low = pairs.word[c];
        uint32_t& high = pairs.word[c + distance];
        const uint32_t received = ShuffleXor(is_upper ? low : high, distance);
        low = is_upper ? received : low;
        high = is_upper ? high : received;
      }
    }
    return pairs;
  }

  // Gradients (or zeros) of the warp's keys of the key tile of `step`, where its position products
  // were.
  ANYORDER_DEVICE void PlaceInRing(int step, const Packed& gradients) const {
    // The key tile's number, made positive: some steps come before the first key.
    const int first = RingBase<Tile>(step + 1) + first_key;
    const int spread = RingSpread(Lane() / 4);
    ANYORDER_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      const int slot = rows.SlotOf(i / 2, i % 2);
      unsigned char* const row = shared + Memory::kRing + RingRow(Tile::kColumns, slot);
      const int shift = Tile::kTable ? rows.ShiftOf(i / 2, i % 2, block.first_pos)
                                     : kChunk * ContentShiftChunks(slot);
      ANYORDER_UNROLL
      for (int c = 0; c < kHalf / 8; ++c) {
        const uint32_t pair = gradients[i / 2][c][i % 2];
        const int z = WrapColumn(first + shift + 8 * c + 2 * (Lane() % 4), Tile::kColumns);
        if constexpr (Tile::kTable) {
          const int next = WrapColumn(z + 1, Tile::kColumns);
          *reinterpret_cast<uint16_t*>(row + RingColumn(z, spread)) = static_cast<uint16_t>(pair);
          *reinterpret_cast<uint16_t*>(row + RingColumn(next, spread)) =
              static_cast<uint16_t>(pair >> 16);
        } else {
          *reinterpret_cast<uint32_t*>(row + RingColumn(z, spread)) = pair;
        }
      }
    }
  }

  // dq += left times 16 rows of an operand from this lane's row on.
  ANYORDER_DEVICE void AddProduct(int half, const uint32_t (&left)[4],
                                  const OperandRows& right_rows) {
    ANYORDER_UNROLL
    for (int d = 0; d < kRingHeadDim / 16; ++d) {
      uint32_t right[4];
      LoadMatricesTransposed(right, right_rows.At(0, 2 * d + InnerChunk()));
      MultiplyAccumulate(dq[half][2 * d], left, right[0], right[1]);
      MultiplyAccumulate(dq[half][2 * d + 1], left, right[2], right[3]);
    }
  }

  ANYORDER_DEVICE void AddKeys(const unsigned char* keys, const Packed& gradients) {
    ANYORDER_UNROLL
    for (int m = 0; m < kHalf / 16; ++m) {
      const OperandRows right_rows(keys, first_key + 16 * m + InnerRow());
      ANYORDER_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        const uint32_t left[4] = {gradients[half][2 * m][0], gradients[half][2 * m][1],
                                  gradients[half][2 * m + 1][0], gradients[half][2 * m + 1][1]};
        AddProduct(half, left, right_rows);
      }
    }
  }

  ANYORDER_DEVICE void Attend(const RingStep& step, int stage) {
    const int n = step.step() - Tile::kAhead;
    const auto* const orders = reinterpret_cast<const RingKeyOrder*>(shared + Memory::kOrders +
                                                                     stage * Memory::kOrdersBytes) +
                               first_key;
    uint32_t visible[kHalves] = {};
    if (step.view() == kSeesByRule)
      rows.template FindVisible<kHalf>(orders,
                                       reinterpret_cast<const RingKeyRule*>(
                                           shared + Memory::kRules + stage * Memory::kRulesBytes) +
                                           first_key,
                                       window, visible);
    HalfScores scores;
    HalfScores dp;
    MultiplyKeys(stage, scores, dp);
    if constexpr (Tile::kHasBand)
      rows.template AddBand<kHalf>(scores, shared + Memory::kRing, n, first_key, block.first_pos);
    rows.template ApplyView<kHalf>(scores, step, orders, visible);
    Packed probabilities;
    Packed gradients;
    Differentiate(n, orders, scores, dp, probabilities, gradients);
    StoreScores(n, probabilities, gradients);
    // Other lanes read products where this one writes, and matrices are loaded by whole warps.
    SyncWarp();
    if constexpr (Tile::kHasBand) PlaceInRing(step.step(), gradients);
    AddKeys(shared + Memory::kKeys + stage * Memory::kOperand, gradients);
  }

  // dq += gradients of the chunk that is used up times its rows of `relative`, copied kAhead steps
  // ago.
  ANYORDER_DEVICE void UseUp(const RingStep& step, int i) {
    const int chunk = step.step() - Tile::kAhead;
    const unsigned char* const relative = RelativeOf(i - Tile::kAhead);
    const int spread = RingSpread(Lane() % 8);
    ANYORDER_UNROLL
    for (int m = 0; m < kHalf / 16; ++m) {
      ANYORDER_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        const int shift = Tile::kTable ? 0
                                       : ContentOperandShift(rows.first_slot / Tile::kWarpRows) +
                                             ContentStoreShift(half);
        const int column = first_key + 16 * m;
        const unsigned char* const row =
            shared + Memory::kRing +
            RingRow(Tile::kColumns, rows.first_slot + 16 * half + InnerRow());
        const int at = (RingBase<Tile>(chunk) + column) / kChunk + InnerChunk();
        uint32_t left[4];
        LoadMatrices(left, row + ((at ^ spread) << 4));
        AddProduct(half, left, OperandRows(relative, shift + column + InnerRow()));
      }
    }
  }

  // With the gradients of the key tile, zeros if it is not visible.
  ANYORDER_DEVICE void FillChunk(const RingStep& step, int stage) {
    if (step.view() != kSeesNone) {
      Attend(step, stage);
    } else if constexpr (Tile::kHasBand) {
      const Packed zeros = {};
      PlaceInRing(step.step(), zeros);
    }
  }

  // The band's part of a step goes before and behind the scores'. Rows of the ring are their two
  // warps' own: these meet, and the others are not waited for.
  ANYORDER_DEVICE void Step(int i) {
    const RingStep step{Steps()[i]};
    const bool has_rows = block.HasRow(rows.first_slot);  // warps without only copy
    if constexpr (Tile::kHasBand) {
      if (step.has_band() && has_rows) ComputeBand(step.step(), i);
      SyncPair();
    }
    if (has_rows) FillChunk(step, i % 2);
    if constexpr (Tile::kHasBand) {
      SyncPair();
      if (step.is_finished() && has_rows) UseUp(step, i);
    }
  }

  ANYORDER_DEVICE void Run() {
    Prepare();
    StartScratch();
    const int count = Count()[0];
    if (count > 0) StoreTerm(Copy(0), 0);
    CommitCopies();
    for (int i = 0; i < count; ++i) {
      WaitForCopies<0>();
      SyncBlock();
      float term = 0.0f;
      if (i + 1 < count) term = Copy(i + 1);
      CommitCopies();
      Step(i);
      StoreTerm(term, (i + 1) % 2);
    }
    Finish();
  }

  // The second warp of some rows hands its part to the first, which writes.
  ANYORDER_DEVICE void Finish() {
    SyncBlock();
    auto* const parts = reinterpret_cast<float*>(shared + Memory::kParts);
    auto* const sums = reinterpret_cast<float*>(shared + Memory::kSums);
    const int first = rows.first_slot * kRingHeadDim + Lane();
    ANYORDER_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      float& sum = other_segment[i / 2][i % 2];
      sum += ShuffleXor(sum, 1);
      sum += ShuffleXor(sum, 2);
      if (first_key == 0) continue;
      if (Lane() % 4 == 0) sums[rows.SlotOf(i / 2, i % 2)] = sum;
      ANYORDER_UNROLL
      for (int c = 0; c < kRingHeadDim / 4; ++c)
        parts[first + (16 * i + c) * kWarp] = dq[i / 2][c / 2][2 * (i % 2) + c % 2];
    }
    SyncBlock();
    if (first_key != 0) return;
    ANYORDER_UNROLL
    for (int i = 0; i < kLaneRows; ++i) {
      const int slot = rows.SlotOf(i / 2, i % 2);
      if (!block.HasRow(slot)) continue;
      const float sum = other_segment[i / 2][i % 2] + sums[slot];
      if (p.call.scores.other_segment != nullptr && Lane() % 4 == 0)
        p.call.scores.other_segment[block.StatisticOf(slot)] = sum;
      ANYORDER_UNROLL
      for (int c = 0; c < kRingHeadDim / 4; ++c)
        dq[i / 2][c / 2][2 * (i % 2) + c % 2] += parts[first + (16 * i + c) * kWarp];
      StoreGradient(slot, i / 2, i % 2, sum);
    }
  }

  // Of one row, with the part of the segments.
  ANYORDER_DEVICE void StoreGradient(int slot, int half, int part, float other) const {
    const BFloat16* const same = p.call.in.segment_embedding;
    BFloat16* const to = p.call.dq + block.RowOf(slot) * block.Width();
    ANYORDER_UNROLL
    for (int d = 0; d < kRingHeadDim / 8; ++d) {
      const int64_t column = block.head * kRingHeadDim + 8 * d + 2 * (Lane() % 4);
      float pair[2];
      ANYORDER_UNROLL
      for (int e = 0; e < 2; ++e) {
        pair[e] = dq[half][d][2 * part + e];
        if (same != nullptr)
          pair[e] +=
              other * (ToFloat(same[block.Width() + column + e]) - ToFloat(same[column + e]));
      }
      *reinterpret_cast<uint32_t*>(to + column) = PackBf16(pair[0], pair[1]);
    }
  }
};

template <bool kHasPosition>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kRingBackwardThreads, 1)
    AttentionRingBackwardKernel(RingBackwardParams p) {
  const RingWork work(p.plan, p.call.scores.group);
  if (work.tile.num_rows == 0) return;
  WithTile<kHasPosition>(work.tile, [&]<typename Tile>() {
    RingBackward<Tile> backward(p, work.tile, work.head);
    backward.Run();
  });
}

}  // namespace anyorder::kernels::cuda
