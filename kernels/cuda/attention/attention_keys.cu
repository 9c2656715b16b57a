// Gradients of keys and values: dv = probabilities^T dout, dk = gradients^T q + (column sums of
// gradients) content_bias, over the content and query rows of a lane. The column sums times k,
// summed, are the gradient of content_bias.
//
// A block has a tile of keys of one lane and key/value head, and one of the two products. It goes
// through the heads that read these keys in order, reads its part of scratch once, and rounds their
// sum once. Where scratch holds only some of these heads, the block leaves its sums in fp32 and the
// block of the next heads begins with them.

#include <type_traits>

#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_product.cuh"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {

// The grid is (tiles of keys; key/value heads of the group; 2 * lanes of the group, dv before dk).
template <typename T>
struct KeyBlock {
  const KeyGradientParams<T>& p;
  bool is_key;  // dk, else dv
  int lane;
  int kv_head;
  int head;   // whose rows are added
  int first;  // key slot
  int count;

  ANYORDER_DEVICE KeyBlock(const KeyGradientParams<T>& params, int keys)
      : p(params),
        is_key(BlockZ() % 2 == 1),
        lane(params.scores.group.first_lane + BlockZ() / 2),
        kv_head(params.in.KvHeadOf(params.scores.group.first_head) + BlockY()),
        head(FirstHead()),
        first(BlockX() * keys),
        count(params.in.num_keys - first < keys ? params.in.num_keys - first : keys) {}

  // The heads that read the keys: those of the group, and all.
  ANYORDER_DEVICE int FirstHead() const {
    const int of_all = FirstOfAll();
    return of_all < p.scores.group.first_head ? p.scores.group.first_head : of_all;
  }
  ANYORDER_DEVICE int EndHead() const {
    const int of_group = p.scores.group.first_head + p.scores.group.num_heads;
    return of_group < EndOfAll() ? of_group : EndOfAll();
  }
  ANYORDER_DEVICE int FirstOfAll() const { return kv_head * p.in.heads_per_kv; }
  ANYORDER_DEVICE int EndOfAll() const { return FirstOfAll() + p.in.heads_per_kv; }
  // Whether an earlier group has left sums of other heads, and whether a later one needs them.
  ANYORDER_DEVICE bool HasEarlierHeads() const { return FirstHead() > FirstOfAll(); }
  ANYORDER_DEVICE bool HasLaterHeads() const { return EndHead() < EndOfAll(); }
  ANYORDER_DEVICE float* KeySums(int key) const {
    const int64_t row = int64_t{is_key ? p.in.batch_size : 0} + lane;
    return p.key_sums + (row * p.in.num_keys + first + key) * p.in.head_dim;
  }

  ANYORDER_DEVICE const T* weights() const {
    return is_key ? p.scores.gradients : p.scores.probabilities;
  }
  ANYORDER_DEVICE const T* rows() const { return is_key ? p.in.q : p.dout; }
  // Element of the block's first key.
  ANYORDER_DEVICE int64_t KeyOffset() const {
    return (int64_t{lane} * p.in.num_keys + first) * p.in.keys_dim() + kv_head * p.in.head_dim;
  }
  ANYORDER_DEVICE T* result() const { return (is_key ? p.dk : p.dv) + KeyOffset(); }
  ANYORDER_DEVICE int head_offset() const { return head * p.in.head_dim; }
  ANYORDER_DEVICE Words2 HullOf(int64_t group_row) const {
    return LoadTwoWords(p.scores.HullOf(group_row, head));
  }
  ANYORDER_DEVICE bool IsIn(const Words2& hull) const {
    const int tile = first / kScoreTile;
    return static_cast<int>(hull.word[0]) <= tile && tile < static_cast<int>(hull.word[1]);
  }
  ANYORDER_DEVICE bool HasContentSums() const { return is_key && p.content_sums != nullptr; }
  ANYORDER_DEVICE float* ContentSums() const {
    return p.content_sums + (int64_t{lane} * GridX() + BlockX()) * p.in.model_dim() + head_offset();
  }
  ANYORDER_DEVICE bool IsPadding(int key) const {
    return key >= count || p.in.keys.doc[int64_t{lane} * p.in.num_keys + first + key] == kDocPad;
  }
};

template <int kGroups>
struct KeyGradientMemory {
  float* weights;  // [32 keys, kScoreStride]
  float* rows;     // [32, stride]
  float* column_sums;
  int32_t* docs;  // kDocPad: a row that the tile of keys does not concern, or a key that is padding

  static constexpr int64_t kFloats =
      kTileKeys * kScoreStride + kTileRows * TileColumns<kGroups>::kStride + kTileKeys + kTileRows;
  static constexpr int64_t kBytes = kFloats * int64_t{sizeof(float)};
  ANYORDER_DEVICE static KeyGradientMemory OfBlock() {
    KeyGradientMemory memory;
    memory.weights = reinterpret_cast<float*>(SharedMemory());
    memory.rows = memory.weights + kTileKeys * kScoreStride;
    memory.column_sums = memory.rows + kTileRows * TileColumns<kGroups>::kStride;
    memory.docs = reinterpret_cast<int32_t*>(memory.column_sums + kTileKeys);
    return memory;
  }
};

// 32 keys a block. Thread rows (attention_general.cuh) are keys here.
template <typename T, int kGroups>
struct GeneralKeyBlock {
  const KeyBlock<T>& block;
  KeyGradientMemory<kGroups> memory;

  // Weights of 32 rows, transposed on the way.
  ANYORDER_DEVICE void LoadWeights(int64_t group_row) const {
    const int row = Thread() / 4;
    const int column = kGroup * (Thread() % 4);
    Vector8 x = {};
    if (memory.docs[row] != kDocPad)
      x = LoadVector(block.weights() + block.p.scores.Offset(group_row + row, block.head) +
                     block.first + column);
    ANYORDER_UNROLL
    for (int i = 0; i < kGroup; ++i) memory.weights[(column + i) * kScoreStride + row] = x.v[i];
  }

  ANYORDER_DEVICE void AddRows(int64_t row, int64_t group_row, int count,
                               float (&sums)[kThreadRows][4 * kGroups],
                               float (&column_sums)[kThreadRows]) const {
    const AttentionProblem<T>& in = block.p.in;
    SyncBlock();
    bool is_concerned = false;
    if (Thread() < kTileRows) {
      is_concerned = Thread() < count && block.IsIn(block.HullOf(group_row + Thread()));
      memory.docs[Thread()] = is_concerned ? 0 : kDocPad;
    }
    if (!SyncBlockOr(is_concerned)) return;
    LoadWeights(group_row);
    LoadTile<kGroups>(memory.rows, block.rows() + row * in.model_dim() + block.head_offset(), in,
                      count, static_cast<const T*>(nullptr), memory.docs);
    SyncBlock();
    AddWeighted<kGroups>(memory.weights, memory.rows, sums);
    if (block.is_key) AddWeights(memory.weights, column_sums);
  }

  // Of block.head.
  ANYORDER_DEVICE void AddHead(float (&sums)[kThreadRows][4 * kGroups],
                               float (&column_sums)[kThreadRows]) const {
    const AttentionProblem<T>& in = block.p.in;
    for (int stream = 0; stream < 2; ++stream) {
      const int rows = in.RowsOfStream(stream);
      const int64_t row = in.FirstRow(stream, block.lane);
      const int64_t group_row = block.p.scores.group.FirstRow(in, stream, block.lane);
      for (int i = 0; i < rows; i += kTileRows) {
        const int count = rows - i < kTileRows ? rows - i : kTileRows;
        AddRows(row + i, group_row + i, count, sums, column_sums);
      }
    }
    if (!block.is_key || in.content_bias == nullptr) return;
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) {
      ANYORDER_UNROLL
      for (int d = 0; d < 4 * kGroups; ++d) {
        const int column = ThreadColumn(d / 4) + d % 4;
        if (column < in.head_dim)
          sums[r][d] = MultiplyAdd(
              column_sums[r], ToFloat(in.content_bias[block.head_offset() + column]), sums[r][d]);
      }
    }
  }

  // visit(r, d, place): of the thread's sums, the places in KeySums.
  template <typename Visitor>
  ANYORDER_DEVICE void ForEachSum(Visitor&& visit) const {
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) {
      const int key = ThreadRow() + r;
      ANYORDER_UNROLL
      for (int d = 0; d < 4 * kGroups; ++d) {
        const int column = ThreadColumn(d / 4) + d % 4;
        if (key < block.count && column < block.p.in.head_dim)
          visit(r, d, block.KeySums(key) + column);
      }
    }
  }

  ANYORDER_DEVICE void StoreContentSums(const float (&column_sums)[kThreadRows]) const {
    const AttentionProblem<T>& in = block.p.in;
    SyncBlock();
    if (ThreadKey(0) == 0) {
      ANYORDER_UNROLL
      for (int r = 0; r < kThreadRows; ++r) memory.column_sums[ThreadRow() + r] = column_sums[r];
    }
    if (Thread() < kTileKeys) memory.docs[Thread()] = block.IsPadding(Thread()) ? kDocPad : 0;
    SyncBlock();
    LoadTile<kGroups, TileOf::kKeys>(memory.rows, in.k + block.KeyOffset(), in, block.count,
                                     static_cast<const T*>(nullptr), memory.docs);
    SyncBlock();
    for (int d = Thread(); d < in.head_dim; d += kTileThreads) {
      float sum = 0;
      for (int key = 0; key < kTileKeys; ++key)
        sum = MultiplyAdd(memory.column_sums[key],
                          memory.rows[key * TileColumns<kGroups>::kStride + d], sum);
      block.ContentSums()[d] = sum;
    }
  }
};

template <typename T, int kGroups>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kTileThreads, kGroups == 4 ? 5 : 3)
    GeneralKeyGradientKernel(KeyGradientParams<T> p) {
  const KeyBlock<T> block(p, kTileKeys);
  const GeneralKeyBlock<T, kGroups> work{block, KeyGradientMemory<kGroups>::OfBlock()};
  float sums[kThreadRows][4 * kGroups] = {};
  float column_sums[kThreadRows] = {};
  work.AddHead(sums, column_sums);
  StoreTile<kGroups, TileOf::kKeys>(block.result(), sums, p.in, block.count, work.memory.rows);
  if (block.HasContentSums()) work.StoreContentSums(column_sums);
}

// The same where several heads read the keys. The loop over these takes a third more registers.
template <typename T, int kGroups>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kTileThreads, 3)
    SharedKeyGradientKernel(KeyGradientParams<T> p) {
  KeyBlock<T> block(p, kTileKeys);
  const GeneralKeyBlock<T, kGroups> work{block, KeyGradientMemory<kGroups>::OfBlock()};
  float sums[kThreadRows][4 * kGroups] = {};
  if (block.HasEarlierHeads())
    work.ForEachSum([&](int r, int d, float* kept) { sums[r][d] = *kept; });
  ANYORDER_ROLLED
  for (; block.head < block.EndHead(); ++block.head) {
    float column_sums[kThreadRows] = {};
    work.AddHead(sums, column_sums);
    if (block.HasContentSums()) work.StoreContentSums(column_sums);
  }
  if (block.HasLaterHeads())
    work.ForEachSum([&](int r, int d, float* kept) { *kept = sums[r][d]; });
  else
    StoreTile<kGroups, TileOf::kKeys>(block.result(), sums, p.in, block.count, work.memory.rows);
}

// 64 keys a block, 16 a warp; bf16 and 64 columns. Two tiles of weights and rows are in flight, and
// the hulls of the rows behind, which say what to copy.
struct MatrixKeyBlock {
  static constexpr int kRowsOfThread = kProductRows / kCopyRows;

  const KeyBlock<BFloat16>& block;
  Words2 hulls[kRowsOfThread] = {};  // of the step that is loaded next; of no row: [0, 0)

  static constexpr int64_t kBytes = 4 * kProductElements * int64_t{sizeof(BFloat16)};

  ANYORDER_DEVICE static BFloat16* Weights(int stage) {
    return reinterpret_cast<BFloat16*>(SharedMemory()) + 2 * stage * kProductElements;
  }
  ANYORDER_DEVICE static BFloat16* Rows(int stage) { return Weights(stage) + kProductElements; }

  ANYORDER_DEVICE RowStep RowsOf(int step) const {
    return RowStep::Of(block.p.in, block.p.scores.group, block.lane, step);
  }
  ANYORDER_DEVICE static int RowOf(int n) {
    return Thread() / (kProductColumns / kGroup) + kCopyRows * n;
  }

  ANYORDER_DEVICE void AskForHulls(int step) {
    const RowStep rows = RowsOf(step);
    ANYORDER_UNROLL
    for (int n = 0; n < kRowsOfThread; ++n) {
      hulls[n] = {};
      if (RowOf(n) < rows.count) hulls[n] = block.HullOf(rows.group_row + RowOf(n));
    }
  }

  // In the background; AskForHulls of this step came before.
  ANYORDER_DEVICE void Load(int step) const {
    const KeyGradientParams<BFloat16>& p = block.p;
    const int stage = step % 2;
    const RowStep rows = RowsOf(step);
    const int column = kGroup * (Thread() % (kProductColumns / kGroup));
    ANYORDER_UNROLL
    for (int n = 0; n < kRowsOfThread; ++n) {
      const int row = RowOf(n);
      const bool is_there = block.IsIn(hulls[n]);
      const int64_t weight =
          is_there ? p.scores.Offset(rows.group_row + row, block.head) + block.first + column : 0;
      const int64_t element =
          is_there ? (rows.row + row) * p.in.model_dim() + block.head_offset() + column : 0;
      const int at = row * kProductStride + column;
      CopyAsync16(Weights(stage) + at, block.weights() + weight, is_there);
      CopyAsync16(Rows(stage) + at, block.rows() + element, is_there);
    }
  }

  // Of block.head.
  ANYORDER_DEVICE void AddHead(TransposedSums& sums) {
    const int steps = RowSteps(block.p.in.content_rows, block.p.in.query_rows);
    AskForHulls(0);
    Load(0);
    CommitCopies();
    if (steps > 1) AskForHulls(1);
    for (int step = 0; step < steps; ++step) {
      if (step + 1 < steps) Load(step + 1);
      CommitCopies();
      if (step + 2 < steps) AskForHulls(step + 2);
      WaitForCopies<1>();
      SyncBlock();
      AddTransposed(Weights(step % 2), Rows(step % 2), 16 * (Thread() / kWarp), sums);
      SyncBlock();
    }
    if (block.is_key && block.p.in.content_bias != nullptr) AddBias(sums);
  }

  ANYORDER_DEVICE void AddBias(TransposedSums& sums) const {
    const BFloat16* const bias = block.p.in.content_bias + block.head_offset();
    ANYORDER_UNROLL
    for (int i = 0; i < 32; ++i) {
      float& sum = sums.sum[i / 4][i % 4];
      const int column = 8 * (i / 4) + 2 * (Lane() % 4) + i % 2;
      sum = MultiplyAdd(sums.weight[i % 4 / 2 * 2], ToFloat(bias[column]), sum);
    }
  }

  // visit(half, n, key): of the thread's sums, sum[n][2 half] and the one behind it.
  template <typename Visitor>
  ANYORDER_DEVICE void ForEachPair(Visitor&& visit) const {
    ANYORDER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int key = 16 * (Thread() / kWarp) + Lane() / 4 + 8 * half;
      if (key >= block.count) continue;
      ANYORDER_UNROLL
      for (int n = 0; n < 8; ++n) visit(half, n, key);
    }
  }
  ANYORDER_DEVICE static int ColumnOf(int n) { return 8 * n + 2 * (Lane() % 4); }

  ANYORDER_DEVICE void TakeSums(TransposedSums& sums) const {
    ForEachPair([&](int half, int n, int key) {
      const float* const kept = block.KeySums(key) + ColumnOf(n);
      sums.sum[n][2 * half] = kept[0];
      sums.sum[n][2 * half + 1] = kept[1];
    });
  }
  ANYORDER_DEVICE void LeaveSums(const TransposedSums& sums) const {
    ForEachPair([&](int half, int n, int key) {
      float* const kept = block.KeySums(key) + ColumnOf(n);
      kept[0] = sums.sum[n][2 * half];
      kept[1] = sums.sum[n][2 * half + 1];
    });
  }
  ANYORDER_DEVICE void Store(const TransposedSums& sums) const {
    ForEachPair([&](int half, int n, int key) {
      BFloat16* const row = block.result() + key * block.p.in.keys_dim();
      *reinterpret_cast<uint32_t*>(row + ColumnOf(n)) =
          PackBf16(sums.sum[n][2 * half], sums.sum[n][2 * half + 1]);
    });
  }

  // Thread t has column t % 64 and one half of the keys.
  ANYORDER_DEVICE void StoreContentSums(const TransposedSums& sums) const {
    const AttentionProblem<BFloat16>& in = block.p.in;
    auto* const column_sums = reinterpret_cast<float*>(SharedMemory());
    float* const parts = column_sums + kScoreTile;
    if (Lane() % 4 == 0) {
      const int key = 16 * (Thread() / kWarp) + Lane() / 4;
      column_sums[key] = sums.weight[0];
      column_sums[key + 8] = sums.weight[2];
    }
    SyncBlock();
    const int column = Thread() % kProductColumns;
    const int half = Thread() / kProductColumns;
    float sum = 0;
    for (int key = 32 * half; key < 32 * (half + 1); ++key) {
      if (!block.IsPadding(key))
        sum = MultiplyAdd(column_sums[key],
                          ToFloat(in.k[block.KeyOffset() + key * in.keys_dim() + column]), sum);
    }
    if (half == 1) parts[column] = sum;
    SyncBlock();
    if (half == 0) block.ContentSums()[column] = sum + parts[column];
  }
};

ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kProductThreads, 4)
    MatrixKeyGradientKernel(KeyGradientParams<BFloat16> p) {
  KeyBlock<BFloat16> block(p, kScoreTile);
  MatrixKeyBlock work{block};
  TransposedSums sums;
  if (block.HasEarlierHeads()) work.TakeSums(sums);
  ANYORDER_ROLLED
  for (; block.head < block.EndHead(); ++block.head) {
    ANYORDER_UNROLL
    for (float& weight : sums.weight) weight = 0.0f;
    work.AddHead(sums);
    if (!block.HasContentSums()) continue;
    work.StoreContentSums(sums);
    SyncBlock();  // the next head's copies come where these sums were
  }
  if (block.HasLaterHeads())
    work.LeaveSums(sums);
  else
    work.Store(sums);
}

template <typename T>
int64_t KeyTiles(const AttentionProblem<T>& in) {
  return CeilDivide(in.num_keys, TakesMatrixForm(in) ? kScoreTile : kTileKeys);
}

template <typename T>
void LaunchKeyGradients(const KeyGradientParams<T>& params, StreamView stream) {
  const AttentionProblem<T>& in = params.in;
  const AttentionGroup& group = params.scores.group;
  const int last_head = group.first_head + group.num_heads - 1;
  LaunchShape shape{.blocks_x = KeyTiles(in),
                    .blocks_y = in.KvHeadOf(last_head) - in.KvHeadOf(group.first_head) + 1,
                    .blocks_z = 2 * group.num_lanes,
                    .threads = kTileThreads};
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (TakesMatrixForm(in)) {
      shape.threads = kProductThreads;
      shape.shared_bytes = MatrixKeyBlock::kBytes;
      return Launch(MatrixKeyGradientKernel, shape, params, stream);
    }
  }
  WithColumns(in.head_dim, [&]<int kGroups>() {
    shape.shared_bytes = KeyGradientMemory<kGroups>::kBytes;
    in.heads_per_kv > 1 ? Launch(SharedKeyGradientKernel<T, kGroups>, shape, params, stream)
                        : Launch(GeneralKeyGradientKernel<T, kGroups>, shape, params, stream);
  });
}

template int64_t KeyTiles(const AttentionProblem<float>&);
template int64_t KeyTiles(const AttentionProblem<BFloat16>&);
template void LaunchKeyGradients(const KeyGradientParams<float>&, StreamView);
template void LaunchKeyGradients(const KeyGradientParams<BFloat16>&, StreamView);

}  // namespace anyorder::kernels::cuda
