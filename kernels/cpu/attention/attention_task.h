// The working set of one (lane, head): packed operands of the head, and the buffers of a row block.
//
// Scratch of a task: transposed keys and table, values in step form ((2 K + R) * D words; backward
// adds transposed values, keys and table in step form and the fp32 gradients of k and v), 24 K
// bytes of integers, and O(48 * 512) floats of block buffers. Nothing has a size of rows times
// keys.

#pragma once

#include "kernels/cpu/attention/attention_pack.h"
#include "kernels/cpu/attention/attention_softmax.h"

namespace anyorder::kernels::cpu::ANYORDER_ISA {

inline constexpr int64_t kRowBlock = 48;
// Rows whose positions lie this close share one window of the relative table.
inline constexpr int64_t kMaxSpan = 62;
// A score row: room for what a skewed store spills on either side (the span, an even start, a last
// vector), an odd number of cache lines long so that a column of rows spreads over all cache sets.
inline constexpr int64_t kScorePadLeft = 64;
inline constexpr int64_t kScorePadRight = 80;
inline constexpr int64_t kScoreStride = kScorePadLeft + kChunkKeys + kScorePadRight;
inline constexpr int64_t kWindowStride = kChunkKeys + 80;

// Hands out 64-byte aligned pieces of one allocation; with a null base it only counts.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}
  template <typename T>
  T* Take(int64_t count) {
    char* piece = base_ + used_;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(piece);
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

struct HeadTask {
  int64_t lane = 0;
  int64_t kv_head = 0;
  int64_t head = 0;
  int64_t padded = 0;            // head size rounded up to 16
  int64_t key_columns = 0;       // keys rounded up to whole tiles
  int64_t distance_columns = 0;  // distances and spill, an odd number of cache lines
  Band band;
  LaneKeys keys;
  KeyTile* tiles = nullptr;
  KeyChunk* chunks = nullptr;
  int64_t num_chunks = 0;

  float* keys_transposed = nullptr;      // tiles of 64 columns
  float* values_steps = nullptr;         // forward
  float* relative_transposed = nullptr;  // columns run against distance, i.e. along keys
  float* values_transposed = nullptr;    // backward, as are the next four
  float* keys_steps = nullptr;
  float* relative_steps = nullptr;
  float* dk = nullptr;  // [key_columns][padded]
  float* dv = nullptr;

  float* content_bias = nullptr;  // [padded] each, zero where the tensor is null
  float* position_bias = nullptr;
  float* segment_bias = nullptr;
  float* segment_same = nullptr;
  float* segment_difference = nullptr;  // different - same
  float* distance_bias = nullptr;       // attention_bias.h; null without
};

// Buffers of a block of rows. Element: of packed operands (float or bf16 bits).
template <typename Element>
struct RowBlock {
  int64_t row = 0;    // first global row
  int64_t count = 0;  // at most kRowBlock
  RowStats stats;
  Element* content_query = nullptr;   // [48][padded] (q + content_bias) * scale * log2(e)
  Element* position_query = nullptr;  // [48][padded] (q + position_bias) * scale * log2(e)
  float* scores = nullptr;            // [48][kScoreStride], columns from kScorePadLeft on
  float* out = nullptr;               // [48][padded]
  float* same = nullptr;              // [48] (q + segment_bias) . same * scale * log2(e)
  float* difference = nullptr;        // [48] likewise of the difference
  float* buffer = nullptr;            // [16][padded]
  TileView views[kChunkTiles];        // of the current chunk
  BandTest band_tests[kChunkTiles];

  float* ScoreRow(int64_t r) const { return scores + r * kScoreStride + kScorePadLeft; }
};

template <class Number>
inline void TakeHeadTask(const AttentionProblem& p, bool backward, Arena* arena, HeadTask* task) {
  task->padded = (p.head_dim + 15) / 16 * 16;
  task->keys.count = p.num_keys;
  task->keys.num_tiles = (p.num_keys + kTileKeys - 1) / kTileKeys;
  task->key_columns = task->keys.num_tiles * kTileKeys;
  task->distance_columns = p.num_distances > 0 ? ((p.num_distances + 31) / 16 | 1) * 16 : 0;
  const int64_t keys = task->key_columns;
  const int64_t half = task->padded / Number::kPerWord;
  int32_t** const arrays[] = {&task->keys.pos, &task->keys.key, &task->keys.grp,
                              &task->keys.doc, &task->keys.seg, &task->keys.glob};
  for (int32_t** array : arrays) *array = arena->Take<int32_t>(keys);
  task->tiles = arena->Take<KeyTile>(task->keys.num_tiles);
  task->chunks = arena->Take<KeyChunk>(task->keys.num_tiles);
  task->keys_transposed = arena->Take<float>(keys * half);
  task->relative_transposed = arena->Take<float>(task->distance_columns * half);
  if (backward) {
    task->values_transposed = arena->Take<float>(keys * half);
    task->keys_steps = arena->Take<float>(keys / Number::kPerWord * task->padded);
    task->relative_steps =
        arena->Take<float>(task->distance_columns / Number::kPerWord * task->padded);
    task->dk = arena->Take<float>(keys * task->padded);
    task->dv = arena->Take<float>(keys * task->padded);
  } else {
    task->values_steps = arena->Take<float>(keys / Number::kPerWord * task->padded);
  }
  float** const rows[] = {&task->content_bias, &task->position_bias, &task->segment_bias,
                          &task->segment_same, &task->segment_difference};
  for (float** row : rows) *row = arena->Take<float>(task->padded);
  if (p.num_bias_distances > 0)
    task->distance_bias = arena->Take<float>(p.num_bias_distances + 2 * kBiasPad);
}

template <typename Element>
inline void TakeRowBlock(const HeadTask& task, Arena* arena, RowBlock<Element>* block) {
  block->content_query = arena->Take<Element>(kRowBlock * task.padded);
  block->position_query = arena->Take<Element>(kRowBlock * task.padded);
  block->scores = arena->Take<float>(kRowBlock * kScoreStride);
  block->out = arena->Take<float>(kRowBlock * task.padded);
  block->same = arena->Take<float>(kRowBlock);
  block->difference = arena->Take<float>(kRowBlock);
  block->buffer = arena->Take<float>(16 * task.padded);
}

// One head's part of a [columns] vector, or zeros.
template <typename T>
inline void LoadBias(const AttentionProblem& p, const void* bias, int64_t offset, int64_t padded,
                     float* dst) {
  if (bias != nullptr)
    ToFloatRow(static_cast<const T*>(bias) + offset, p.head_dim, padded, dst);
  else
    std::memset(dst, 0, static_cast<size_t>(padded) * 4);
}

// The lane's keys or values.
template <typename T>
inline HeadRows<T> LaneKeyRows(const AttentionProblem& p, const void* tensor,
                               const HeadTask& task) {
  const T* data = static_cast<const T*>(tensor) + task.lane * p.num_keys * p.key_stride +
                  task.kv_head * p.head_dim;
  return {data, p.key_stride, p.num_keys, p.head_dim};
}

// Column x of the packed table holds distance min_distance + R - 1 - x.
template <typename T>
inline HeadRows<T> ReversedTable(const AttentionProblem& p, const HeadTask& task) {
  const int64_t table = p.table_of_lane[task.lane];
  const T* last = static_cast<const T*>(p.relative) +
                  ((table + 1) * p.num_distances - 1) * p.row_stride + task.head * p.head_dim;
  return {last, -p.row_stride, p.num_distances, p.head_dim};
}

// Column c of the packed bias holds column c - kBiasPad of the reversed table, clamped to the
// table.
template <typename T>
inline void PackDistanceBias(const AttentionProblem& p, HeadTask* task) {
  const int64_t last = p.num_bias_distances - 1;
  const T* table = static_cast<const T*>(p.distance_bias) +
                   p.table_of_lane[task->lane] * p.num_bias_distances * p.num_heads + task->head;
  for (int64_t c = 0; c < p.num_bias_distances + 2 * kBiasPad; ++c) {
    const int64_t x = Min(last, Max(0, c - kBiasPad));
    task->distance_bias[c] = kLog2E * Load(table, (last - x) * p.num_heads);
  }
}

// What the heads that read task->kv_head share.
template <class Number, typename T>
inline void PackKeys(const AttentionProblem& p, bool backward, float* buffer, HeadTask* task) {
  const int64_t padded = task->padded;
  LoadLaneKeys(p, task->lane, &task->keys);
  for (int64_t tile = 0; tile < task->keys.num_tiles; ++tile)
    task->tiles[tile] = MakeKeyTile(task->keys, tile);
  task->num_chunks =
      MakeChunks(task->tiles, task->keys.num_tiles, p.num_distances > 0, task->chunks);

  const HeadRows<T> keys = LaneKeyRows<T>(p, p.k, *task);
  const HeadRows<T> values = LaneKeyRows<T>(p, p.v, *task);
  PackTransposed<Number>(keys, padded, task->key_columns, kTileKeys, buffer, task->keys_transposed);
  if (backward) {
    PackTransposed<Number>(values, padded, task->key_columns, kTileKeys, buffer,
                           task->values_transposed);
    PackSteps<Number>(keys, padded, task->key_columns, buffer, task->keys_steps);
  } else {
    PackSteps<Number>(values, padded, task->key_columns, buffer, task->values_steps);
  }
}

// What is the own of task->head.
template <class Number, typename T>
inline void PackHead(const AttentionProblem& p, bool backward, float* buffer, HeadTask* task) {
  const int64_t padded = task->padded;
  if (p.bands != nullptr) task->band = p.bands[task->head];
  if (p.num_distances > 0) {
    const HeadRows<T> table = ReversedTable<T>(p, *task);
    const int64_t columns = task->distance_columns;
    PackTransposed<Number>(table, padded, columns, columns, buffer, task->relative_transposed);
    if (backward) PackSteps<Number>(table, padded, columns, buffer, task->relative_steps);
  }
  const int64_t offset = task->head * p.head_dim;
  LoadBias<T>(p, p.content_bias, offset, padded, task->content_bias);
  LoadBias<T>(p, p.position_bias, offset, padded, task->position_bias);
  LoadBias<T>(p, p.segment_bias, offset, padded, task->segment_bias);
  LoadBias<T>(p, p.segment_embedding, offset, padded, task->segment_same);
  LoadBias<T>(p, p.segment_embedding, p.row_stride + offset, padded, task->segment_difference);
  for (int64_t d = 0; d < padded; ++d) task->segment_difference[d] -= task->segment_same[d];
  if (p.num_bias_distances > 0) PackDistanceBias<T>(p, task);
}

inline float Dot(const float* a, const float* b, int64_t count) {
  Floats sum{};
  for (int64_t i = 0; i < count; i += kLanes) sum = Fma(Load(a + i), Load(b + i), sum);
  return Sum(sum);
}

// Fills the block's queries and segment scalars for rows [row, row + count). Rows up to the next
// even one are zero, so that bf16 pairs of rows need no special case.
template <typename T, typename Element>
inline void LoadRowBlock(const AttentionProblem& p, const HeadTask& task, int64_t row,
                         int64_t count, RowBlock<Element>* block) {
  block->row = row;
  block->count = count;
  block->stats = MakeRowStats(p, row, count);
  const int64_t padded = task.padded;
  const Floats factor = Set(p.scale * kLog2E);
  float* q = block->buffer;
  for (int64_t r = 0; r < count; ++r) {
    const T* src = static_cast<const T*>(p.q) + (row + r) * p.row_stride + task.head * p.head_dim;
    ToFloatRow(src, p.head_dim, padded, q);
    Floats same{};
    Floats difference{};
    for (int64_t d = 0; d < padded; d += kLanes) {
      const Floats x = Load(q + d);
      const auto biased = [&](const float* bias) { return Mul(Add(x, Load(bias + d)), factor); };
      StoreAs(block->content_query + r * padded + d, biased(task.content_bias));
      StoreAs(block->position_query + r * padded + d, biased(task.position_bias));
      const Floats segment = biased(task.segment_bias);
      same = Fma(segment, Load(task.segment_same + d), same);
      difference = Fma(segment, Load(task.segment_difference + d), difference);
    }
    block->same[r] = Sum(same);
    block->difference[r] = Sum(difference);
  }
  if (count % 2 == 1) {
    const size_t bytes = static_cast<size_t>(padded) * sizeof(Element);
    std::memset(block->content_query + count * padded, 0, bytes);
    std::memset(block->position_query + count * padded, 0, bytes);
  }
}

// Looks at a chunk's tiles; false if the block sees none of them. [*begin, *end): tiles, relative
// to the chunk, between the first and the last that is seen.
template <typename Element>
inline bool ViewChunk(const HeadTask& task, const KeyChunk& chunk, RowBlock<Element>* block,
                      int64_t* begin, int64_t* end) {
  *begin = kChunkTiles;
  *end = 0;
  // With windows most chunks end here. Looking at their tiles is what grows as rows times keys: 6 %
  // of a forward pass with 129 keys in each window at 65,536 rows, nothing to be seen at 8192 (Zen
  // 5, 2026-11).
  if (Classify(block->stats, chunk.all, task.band) == TileView::kSkip) return false;
  for (int64_t t = 0; t < chunk.end_tile - chunk.begin_tile; ++t) {
    const KeyTile& tile = task.tiles[chunk.begin_tile + t];
    block->views[t] = Classify(block->stats, tile, task.band);
    block->band_tests[t] = MakeBandTest(block->stats, tile, task.band);
    if (block->views[t] == TileView::kSkip) continue;
    *begin = Min(*begin, t);
    *end = t + 1;
  }
  return *begin < *end;
}

template <typename Element>
inline TileRow MakeTileRow(const AttentionProblem& p, const HeadTask& task,
                           const RowBlock<Element>& block, const KeyChunk& chunk, int64_t tile,
                           int64_t r) {
  const int64_t begin = (chunk.begin_tile + tile) * kTileKeys;
  TileRow row;
  row.seg = task.keys.seg + begin;
  row.visible =
      block.views[tile] == TileView::kFull
          ? ~uint64_t{0}
          : VisibleBits(p, block.row + r, task.keys, begin, block.band_tests[tile], task.band);
  return row;
}

// c += a b with c [*][padded] and b in step form; the rest is the caller's.
inline GemmOperands AddingOperands(const HeadTask& task, int64_t a_row_bytes,
                                   int64_t a_step_bytes) {
  GemmOperands x;
  x.a_row_bytes = a_row_bytes;
  x.a_step_bytes = a_step_bytes;
  x.b_step = task.padded;
  x.c_row = task.padded;
  x.accumulate = true;
  return x;
}

// Tiles from `begin` on that are seen and lie side by side, at most `most`; begin is advanced to
// the first.
template <typename Element>
inline int64_t NextRun(const RowBlock<Element>& block, int64_t end, int64_t most, int64_t* begin) {
  while (*begin < end && block.views[*begin] == TileView::kSkip) ++*begin;
  int64_t count = 0;
  while (*begin + count < end && count < most && block.views[*begin + count] != TileView::kSkip)
    ++count;
  return count;
}

// c += a . b over the keys of a chunk. As many keys at a time as leave b in the first-level cache,
// because each pass loads and stores all of c.
template <typename Element>
struct KeyProduct {
  const Element* rows = nullptr;  // a: score rows or their like
  int64_t row_elements = 0;       // from one to the next
  const float* steps = nullptr;   // b: keys or values of the whole lane in step form
  float* c = nullptr;             // [48][padded]
};

template <class Number>
inline void AddKeyProduct(const HeadTask& task, const RowBlock<typename Number::Element>& block,
                          const KeyChunk& chunk,
                          const KeyProduct<typename Number::Element>& product) {
  constexpr int64_t kElementBytes = sizeof(typename Number::Element);
  GemmOperands x = AddingOperands(task, product.row_elements * kElementBytes, 4);
  x.c = product.c;
  const int64_t end = chunk.end_tile - chunk.begin_tile;
  int64_t t = 0;
  while (const int64_t count = NextRun(block, end, 2 * Number::kPerWord, &t)) {
    x.a = product.rows + t * kTileKeys;
    x.b = product.steps + (chunk.begin_tile + t) * kTileKeys / Number::kPerWord * task.padded;
    x.steps = count * kTileKeys / Number::kPerWord;
    Gemm<Number>(block.count, x, task.padded);
    t += count;
  }
}

// c (+)= a . b for every tile of a chunk that is seen.
template <typename Element>
struct TileProduct {
  const Element* rows = nullptr;      // a: [48][padded]
  const float* transposed = nullptr;  // b: keys or values of the whole lane in transposed form
  float* c = nullptr;                 // score rows or their like
  bool accumulate = false;
};

template <class Number>
inline void MultiplyTiles(const HeadTask& task, const RowBlock<typename Number::Element>& block,
                          const KeyChunk& chunk,
                          const TileProduct<typename Number::Element>& product) {
  GemmOperands x;
  x.a = product.rows;
  x.a_row_bytes = task.padded * static_cast<int64_t>(sizeof(typename Number::Element));
  x.a_step_bytes = 4;
  x.steps = task.padded / Number::kPerWord;
  x.b_step = kTileKeys;
  x.c_row = kScoreStride;
  x.accumulate = product.accumulate;
  for (int64_t t = 0; t < chunk.end_tile - chunk.begin_tile; ++t) {
    if (block.views[t] == TileView::kSkip) continue;
    x.b = product.transposed + (chunk.begin_tile + t) * kTileKeys * x.steps;
    x.c = product.c + t * kTileKeys;
    Gemm<Number>(block.count, x, kTileKeys);
  }
}

}  // namespace anyorder::kernels::cpu::ANYORDER_ISA
