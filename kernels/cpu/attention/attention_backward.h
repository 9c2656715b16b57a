// Backward of one (lane, key/value head). The task walks the heads that read these keys, and the
// rows of each, in order. It owns their dk and dv, and of each head a slab of relative and bias
// gradients, so nothing is shared and nothing depends on how many threads run.
//
// Per block of rows and chunk of keys: scores again, p = exp(s - lse), dp = dout . v, then with
// delta_i = dout_i . out_i (which holds with dropout too)
//   ds = p * (keep * dp - delta)
//   dv += (keep * p)^T dout     dk += ds^T (q + u)     d(q + u) += ds k
// and through the same band as forward, with Z[i, x] = ds[i, j(i, x)]:
//   d(q + v) += Z relative      drelative += Z^T (q + v)
// Only the segment difference e = different - same enters: with c_i = the sum of ds_i over keys of
// another segment, de = sum_i c_i (q_i + s), and the gradient of "same" is its negative because
// ds_i sums to zero.

#pragma once

#include "kernels/cpu/attention/attention_band.h"
#include "kernels/cpu/attention/attention_bias.h"

namespace anyorder::kernels::cpu::ANYORDER_ISA {

template <class Number, typename T>
class BackwardTask {
 public:
  using Element = typename Number::Element;
  static constexpr int64_t kElementBytes = sizeof(Element);
  static constexpr bool kPairs = Number::kPerWord == 2;

  BackwardTask(const AttentionProblem& p, int64_t lane, int64_t kv_head, void* scratch)
      : p_(p), arena_(scratch), slab_layout_(p.head_dim, p.num_distances, p.num_bias_distances) {
    task_.lane = lane;
    task_.kv_head = kv_head;
    TakeHeadTask<Number>(p, /*backward=*/true, &arena_, &task_);
    TakeRowBlock(task_, &arena_, &block_);
    const int64_t row_floats = kRowBlock * task_.padded;
    dp_ = arena_.template Take<float>(kRowBlock * kScoreStride);
    dout_ = arena_.template Take<Element>(row_floats);
    dq_content_ = arena_.template Take<float>(row_floats);
    dq_position_ = arena_.template Take<float>(row_floats);
    rows_ = arena_.template Take<RowGradient>(kRowBlock);
    other_ = arena_.template Take<float>(kRowBlock);
    window_floats_ = Max(kRowBlock * kWindowStride, kPanelRows * task_.distance_columns);
    window_ = arena_.template Take<float>(window_floats_);
    if constexpr (kPairs) {
      dout_pairs_ = arena_.template Take<float>(row_floats / 2);
      content_pairs_ = arena_.template Take<float>(row_floats / 2);
      position_pairs_ = arena_.template Take<float>(row_floats / 2);
      ds_rows_ = arena_.template Take<Element>(kRowBlock * kScoreStride);
      ds_pairs_ = arena_.template Take<float>(kRowBlock / 2 * kScoreStride);
      probability_pairs_ = arena_.template Take<float>(kRowBlock / 2 * kScoreStride);
      window_rows_ = arena_.template Take<Element>(window_floats_);
      // A group may start and end in the middle of a pair: one pair more than half the rows.
      window_pairs_ = arena_.template Take<float>((kRowBlock / 2 + 1) * (kWindowStride + 16) +
                                                  4 * (task_.distance_columns + 16));
      zeros_ = arena_.template Take<float>(Max(kWindowStride, task_.distance_columns));
    }
  }
  int64_t scratch_bytes() const { return arena_.used(); }

  void Run() {
    PackKeys<Number, T>(p_, /*backward=*/true, block_.buffer, &task_);
    const size_t key_bytes = static_cast<size_t>(task_.key_columns * task_.padded) * 4;
    std::memset(task_.dk, 0, key_bytes);
    std::memset(task_.dv, 0, key_bytes);
    if constexpr (kPairs)
      std::memset(zeros_, 0, static_cast<size_t>(Max(kWindowStride, task_.distance_columns)) * 4);
    const int64_t first_head = task_.kv_head * p_.heads_per_kv;
    for (int64_t i = 0; i < p_.heads_per_kv; ++i) RunHead(first_head + i);
    WriteKeys();
  }

 private:
  void RunHead(int64_t head) {
    task_.head = head;
    PackHead<Number, T>(p_, /*backward=*/true, block_.buffer, &task_);
    slab_ = p_.slabs + (task_.lane * p_.num_heads + task_.head) * slab_layout_.num_floats();
    std::memset(slab_, 0, static_cast<size_t>(slab_layout_.num_floats()) * 4);
    RunRows(task_.lane * p_.content_rows, p_.content_rows);
    RunRows(p_.batch_size * p_.content_rows + task_.lane * p_.query_rows, p_.query_rows);
  }

  void RunRows(int64_t begin, int64_t count) {
    for (int64_t row = begin; row < begin + count; row += kRowBlock) {
      LoadRows(row, Min(kRowBlock, begin + count - row));
      for (int64_t c = 0; c < task_.num_chunks; ++c) RunChunk(task_.chunks[c]);
      WriteRows();
    }
  }

  int64_t HeadOffset(int64_t row) const { return row * p_.row_stride + task_.head * p_.head_dim; }

  void LoadRows(int64_t row, int64_t count) {
    LoadRowBlock<T>(p_, task_, row, count, &block_);
    const int64_t padded = task_.padded;
    float* dout = block_.buffer;
    float* out = block_.buffer + padded;
    for (int64_t r = 0; r < count; ++r) {
      ToFloatRow(static_cast<const T*>(p_.dout) + HeadOffset(row + r), p_.head_dim, padded, dout);
      ToFloatRow(static_cast<const T*>(p_.out) + HeadOffset(row + r), p_.head_dim, padded, out);
      RoundRow(dout, padded, dout_ + r * padded);
      RowGradient& gradient = rows_[r];
      const float lse = p_.lse[(row + r) * p_.num_heads + task_.head];
      // Scores of minus infinity alone have probabilities of 0, not of -inf + inf.
      gradient.lse2 = (lse == kNegativeInfinity ? 0.0f : lse * kLog2E) - block_.same[r];
      gradient.delta = Dot(dout, out, padded);
      gradient.difference = block_.difference[r];
      gradient.keep_scale = p_.dropout_scale;
      gradient.seg = p_.rows.seg[row + r];
      other_[r] = 0.0f;
    }
    const size_t bytes = static_cast<size_t>(count * padded) * 4;
    std::memset(dq_content_, 0, bytes);
    std::memset(dq_position_, 0, bytes);
    if constexpr (kPairs) {
      if (count % 2 == 1)
        std::memset(dout_ + count * padded, 0, static_cast<size_t>(padded) * kElementBytes);
      PairElements(dout_, dout_pairs_);
      PairElements(block_.content_query, content_pairs_);
      PairElements(block_.position_query, position_pairs_);
    }
  }

  // Row form -> step form of the block's rows.
  void PairElements(const Element* rows, float* pairs) const {
    for (int64_t r = 0; r < block_.count; r += 2)
      InterleaveElements<Number>(rows + r * task_.padded, rows + (r + 1) * task_.padded,
                                 task_.padded, pairs + r / 2 * task_.padded);
  }
  const float* Steps(const Element* rows, const float* pairs) const {
    if constexpr (kPairs)
      return pairs;
    else
      return rows;
  }

  float* DpRow(int64_t r) const { return dp_ + r * kScoreStride + kScorePadLeft; }
  int64_t StepRows(int64_t rows) const { return (rows + Number::kPerWord - 1) / Number::kPerWord; }

  void RunChunk(const KeyChunk& chunk) {
    int64_t begin = 0;
    int64_t end = 0;
    if (!ViewChunk(task_, chunk, &block_, &begin, &end)) return;
    const BandPlace place =
        PositionScores<Number>(p_, task_, block_, chunk, Range{begin, end - 1}, window_);
    MultiplyTiles<Number>(task_, block_, chunk,
                          {block_.content_query, task_.keys_transposed, block_.ScoreRow(0),
                           /*accumulate=*/p_.num_distances > 0});
    if (p_.num_bias_distances > 0)
      AddByDistance<BiasPass::kForward>(p_, task_, block_, chunk, task_.distance_bias);
    // dp = dout . v
    MultiplyTiles<Number>(task_, block_, chunk, {dout_, task_.values_transposed, DpRow(0)});
    for (int64_t r = 0; r < block_.count; ++r) {
      if (p_.segment_embedding != nullptr)
        GradientRow<true>(chunk, begin, end, r);
      else
        GradientRow<false>(chunk, begin, end, r);
    }
    if (p_.num_bias_distances > 0)
      AddByDistance<BiasPass::kBackward>(p_, task_, block_, chunk,
                                         slab_ + slab_layout_.distance_bias());
    if constexpr (kPairs) PairScores(begin * kTileKeys, end * kTileKeys);
    AddKeys(chunk);
    // d(q + u) += ds k
    AddKeyProduct<Number>(task_, block_, chunk,
                          {DsRow(0), kScoreStride, task_.keys_steps, dq_content_});
    if (p_.num_distances == 0) return;
    if (chunk.contiguous)
      AddSkewedBand(place);
    else
      AddScatteredBand(place);
  }

  template <bool kSegments>
  void GradientRow(const KeyChunk& chunk, int64_t begin, int64_t end, int64_t r) {
    const int64_t row = block_.row + r;
    float* scores = block_.ScoreRow(r);
    // The band reads beyond both ends.
    std::memset(scores + begin * kTileKeys - kScorePadLeft, 0, kScorePadLeft * 4);
    std::memset(scores + end * kTileKeys, 0, kScorePadRight * 4);
    Floats other{};
    for (int64_t t = begin; t < end; ++t) {
      if (block_.views[t] == TileView::kSkip) {  // the band reads the range as a whole
        std::memset(scores + t * kTileKeys, 0, kTileKeys * 4);
        std::memset(DpRow(r) + t * kTileKeys, 0, kTileKeys * 4);
        continue;
      }
      TileRow tile = MakeTileRow(p_, task_, block_, chunk, t, r);
      tile.keep = p_.dropout_threshold == 0 ? ~uint64_t{0}
                                            : KeepBits(p_, static_cast<uint32_t>(p_.row_ids[row]),
                                                       static_cast<uint32_t>(task_.head),
                                                       (chunk.begin_tile + t) * kTileKeys);
      GradientScores<kSegments>(scores + t * kTileKeys, DpRow(r) + t * kTileKeys, tile, rows_[r],
                                &other);
    }
    other_[r] += Sum(other);
  }

  // bf16 forms of ds and of the dropped probabilities, columns [begin, end) of the chunk; ds with
  // its padding.
  void PairScores(int64_t begin, int64_t end) {
    const int64_t left = begin - kScorePadLeft;
    const int64_t columns = end + kScorePadRight - left;
    if (block_.count % 2 == 1) {
      std::memset(block_.ScoreRow(block_.count) + left, 0, static_cast<size_t>(columns) * 4);
      std::memset(DpRow(block_.count) + begin, 0, static_cast<size_t>(end - begin) * 4);
    }
    for (int64_t r = 0; r < block_.count; r += 2) {
      const float* const ds[2] = {block_.ScoreRow(r) + left, block_.ScoreRow(r + 1) + left};
      Element* const rows[2] = {DsElements(r) + left, DsElements(r + 1) + left};
      const int64_t at = r / 2 * kScoreStride + kScorePadLeft;
      RoundAndInterleave<Number>(ds, columns, rows, ds_pairs_ + at + left);
      InterleaveRows<Number>(DpRow(r) + begin, DpRow(r + 1) + begin, end - begin,
                             probability_pairs_ + at + begin);
    }
  }
  Element* DsElements(int64_t r) const { return ds_rows_ + r * kScoreStride + kScorePadLeft; }

  // dv += p^T dout and dk += ds^T (q + u)
  void AddKeys(const KeyChunk& chunk) {
    GemmOperands x = AddingOperands(task_, 4, kScoreStride * 4);
    x.steps = StepRows(block_.count);
    for (int64_t t = 0; t < chunk.end_tile - chunk.begin_tile; ++t) {
      if (block_.views[t] == TileView::kSkip) continue;
      const int64_t key = (chunk.begin_tile + t) * kTileKeys;
      x.a = (kPairs ? probability_pairs_ + kScorePadLeft : DpRow(0)) + t * kTileKeys;
      x.b = Steps(dout_, dout_pairs_);
      x.c = task_.dv + key * task_.padded;
      Gemm<Number>(kTileKeys, x, task_.padded);
      x.a = (kPairs ? ds_pairs_ + kScorePadLeft : block_.ScoreRow(0)) + t * kTileKeys;
      x.b = Steps(block_.content_query, content_pairs_);
      x.c = task_.dk + key * task_.padded;
      Gemm<Number>(kTileKeys, x, task_.padded);
    }
  }

  const Element* DsRow(int64_t r) const {
    if constexpr (kPairs)
      return DsElements(r);
    else
      return block_.ScoreRow(r);
  }

  // A group of rows laid out by table column: column 0 is column `group.low` of the table, row m's
  // first key stands at shift[m] and `keys` columns from there on can be other than zero.
  struct Window {
    RowGroup group;
    const float* rows = nullptr;        // Z
    const Element* elements = nullptr;  // Z, rounded
    int64_t stride = 0;                 // of both
    int64_t keys = 0;
    int64_t shift[kRowBlock] = {};
    int64_t width() const { return group.high - group.low; }
  };

  void AddSkewedBand(const BandPlace& place) {
    const int32_t* pos = p_.rows.pos + block_.row;
    const int64_t first = task_.keys.pos[place.key];
    RowGroup groups[kRowBlock];
    const int64_t num_groups = MakeRowGroups(p_, pos, block_.count, kRowBlock,
                                             Range{first, first + place.keys - 1}, groups);
    for (int64_t g = 0; g < num_groups; ++g) {
      if (groups[g].low >= groups[g].high) continue;
      Window window;
      window.group = groups[g];
      window.group.low = groups[g].low / 2 * 2;
      window.keys = place.keys;
      bool consecutive = true;
      for (int64_t m = 0; m < window.group.count; ++m) {
        window.shift[m] = first - pos[window.group.row + m] + TableOrigin(p_) - window.group.low;
        consecutive &= window.shift[m] == window.shift[0] - m;
      }
      if (consecutive)
        TakeDiagonals(place, &window);
      else
        CopyShifted(place, &window);
      AddWindow(window);
    }
  }

  // Positions that rise by one: Z is the score buffer itself, read along its diagonals.
  void TakeDiagonals(const BandPlace& place, Window* window) const {
    const int64_t column = place.column - window->shift[0];
    window->rows = block_.ScoreRow(window->group.row) + column;
    window->stride = kScoreStride + 1;
    if constexpr (kPairs) window->elements = DsElements(window->group.row) + column;
  }

  void CopyShifted(const BandPlace& place, Window* window) {
    const int64_t width = window->width();
    const int64_t columns = RoundUpColumns(width);
    for (int64_t m = 0; m < window->group.count; ++m) {
      const int64_t shift = window->shift[m];
      const float* ds = block_.ScoreRow(window->group.row + m) + place.column;
      float* row = window_ + m * kWindowStride;
      const int64_t begin = Min(columns, Max(0, shift));
      const int64_t end = Max(begin, Min(width, shift + place.keys));
      std::memset(row, 0, static_cast<size_t>(begin) * 4);
      std::memcpy(row + begin, ds + (begin - shift), static_cast<size_t>(end - begin) * 4);
      std::memset(row + end, 0, static_cast<size_t>(columns - end) * 4);
    }
    window->rows = window_;
    window->stride = kWindowStride;
  }

  void AddScatteredBand(const BandPlace& place) {
    const int32_t* pos = p_.rows.pos + block_.row;
    const int32_t* key_pos = task_.keys.pos + place.key;
    const Range positions = RangeOf(key_pos, place.keys);
    for (int64_t row = 0; row < block_.count; row += kPanelRows) {
      Window window;
      const int64_t count = Min(kPanelRows, block_.count - row);
      window.group = MakeRowGroup(p_, row, count, RangeOf(pos + row, count), positions);
      window.group.low = window.group.low / 2 * 2;
      const int64_t width = window.group.high - window.group.low;
      if (width <= 0) continue;
      window.rows = window_;
      window.stride = task_.distance_columns;
      window.keys = width;
      for (int64_t m = 0; m < window.group.count; ++m) {
        float* z = window_ + m * window.stride;
        std::memset(z, 0, static_cast<size_t>(RoundUpColumns(width)) * 4);
        const int64_t shift = TableOrigin(p_) - window.group.low - pos[row + m];
        const float* ds = block_.ScoreRow(row + m) + place.column;
        for (int64_t j = 0; j < place.keys; ++j) {
          const int64_t x = key_pos[j] + shift;
          if (x >= 0 && x < width) z[x] += ds[j];
        }
        window.shift[m] = 0;
      }
      AddWindow(window);
    }
  }

  void AddWindow(Window window) {
    if constexpr (kPairs) PairWindow(&window);
    AddPositionQueries(window);
    AddTable(window);
  }

  // bf16 forms of the window. Pairs are those of the block (rows 2i and 2i + 1), as in
  // position_pairs_.
  void PairWindow(Window* window) {
    const int64_t count = window->group.count;
    const int64_t columns = RoundUpColumns(window->width());
    if (window->elements == nullptr) {
      for (int64_t m = 0; m < count; ++m)
        RoundRow(window->rows + m * window->stride, columns, window_rows_ + m * window->stride);
      window->elements = window_rows_;
    }
    pair_stride_ = columns + 16;  // not a power of two
    float* words = window_pairs_;
    for (int64_t m = -(window->group.row % 2); m < count; m += 2) {
      const float* first = m >= 0 ? window->rows + m * window->stride : zeros_;
      const float* second = m + 1 < count ? window->rows + (m + 1) * window->stride : zeros_;
      InterleaveRows<Number>(first, second, columns, words);
      words += pair_stride_;
    }
  }

  // d(q + v) += Z relative: panels of rows, each only where its keys reach, 128 distances at a time
  // so that the table's rows stay in the first-level cache from panel to panel.
  void AddPositionQueries(const Window& window) {
    constexpr int64_t kBlockColumns = 128;
    const int64_t width = window.width();
    const Element* rows = nullptr;
    if constexpr (kPairs)
      rows = window.elements;
    else
      rows = window.rows;
    for (int64_t block = 0; block < width; block += kBlockColumns) {
      for (int64_t m = 0; m < window.group.count; m += kPanelRows) {
        const int64_t count = Min(kPanelRows, window.group.count - m);
        Range shifts;
        for (int64_t i = m; i < m + count; ++i) shifts.Include(window.shift[i]);
        const int64_t begin = Max(block, shifts.min) / 2 * 2;
        const int64_t end = Min(Min(block + kBlockColumns, width), shifts.max + window.keys);
        if (begin >= end) continue;
        GemmOperands x = AddingOperands(task_, window.stride * kElementBytes, 4);
        x.a = rows + m * window.stride + begin;
        x.steps = StepRows(end - begin);
        x.b = task_.relative_steps + (window.group.low + begin) / Number::kPerWord * task_.padded;
        x.c = dq_position_ + (window.group.row + m) * task_.padded;
        Gemm<Number>(count, x, task_.padded);
      }
    }
  }

  // drelative += Z^T (q + v): panels of distances; at the window's ends only the rows that reach
  // them.
  void AddTable(const Window& window) {
    const int64_t width = window.width();
    const float* rows = kPairs ? window_pairs_ : window.rows;
    const int64_t stride = kPairs ? pair_stride_ : window.stride;
    const int64_t offset = kPairs ? window.group.row % 2 : 0;
    GemmOperands x = AddingOperands(task_, 4, stride * 4);
    for (int64_t column = 0; column < width; column += kPanelRows) {
      const int64_t count = Min(kPanelRows, width - column);
      int64_t begin = 0;
      int64_t end = window.group.count;
      const auto reaches = [&](int64_t m) {
        return window.shift[m] < column + count && window.shift[m] + window.keys > column;
      };
      while (begin < end && !reaches(begin)) ++begin;
      while (end > begin && !reaches(end - 1)) --end;
      if (begin == end) continue;
      const int64_t first = (begin + offset) / Number::kPerWord;
      x.steps = StepRows(end + offset) - first;
      x.a = rows + first * stride + column;
      x.b = Steps(block_.position_query, position_pairs_) +
            (window.group.row / Number::kPerWord + first) * task_.padded;
      x.c = slab_ + (window.group.low + column) * task_.padded;
      Gemm<Number>(count, x, task_.padded);
    }
  }

  void WriteRows() {
    const int64_t padded = task_.padded;
    const Floats scale = Set(p_.scale);
    float* dcontent = slab_ + slab_layout_.content_bias();
    float* dposition = slab_ + slab_layout_.position_bias();
    float* dsegment = slab_ + slab_layout_.segment_bias();
    float* dembedding = slab_ + slab_layout_.segment_embedding();
    float* q = block_.buffer;
    float* dq = block_.buffer + padded;
    for (int64_t r = 0; r < block_.count; ++r) {
      const int64_t offset = HeadOffset(block_.row + r);
      ToFloatRow(static_cast<const T*>(p_.q) + offset, p_.head_dim, padded, q);
      const Floats other = Mul(Set(other_[r]), scale);
      for (int64_t d = 0; d < padded; d += kLanes) {
        const Floats content = Mul(Load(dq_content_ + r * padded + d), scale);
        const Floats position = Mul(Load(dq_position_ + r * padded + d), scale);
        const Floats segment = Mul(other, Load(task_.segment_difference + d));
        const Floats biased = Add(Load(q + d), Load(task_.segment_bias + d));
        Store(dcontent + d, Add(Load(dcontent + d), content));
        Store(dposition + d, Add(Load(dposition + d), position));
        Store(dsegment + d, Add(Load(dsegment + d), segment));
        Store(dembedding + d, Fma(other, biased, Load(dembedding + d)));
        Store(dq + d, Add(Add(content, position), segment));
      }
      FromFloatRow(dq, p_.head_dim, static_cast<T*>(p_.dq) + offset);
    }
  }

  // Queries were packed with log2(e): ds is of natural scores, hence the ln 2 on dk.
  void WriteKeys() {
    const int64_t padded = task_.padded;
    for (int64_t j = 0; j < p_.num_keys; ++j) {
      const int64_t offset =
          (task_.lane * p_.num_keys + j) * p_.key_stride + task_.kv_head * p_.head_dim;
      float* dk = task_.dk + j * padded;
      for (int64_t d = 0; d < padded; d += kLanes) Store(dk + d, Mul(Load(dk + d), Set(kLn2)));
      FromFloatRow(dk, p_.head_dim, static_cast<T*>(p_.dk) + offset);
      FromFloatRow(task_.dv + j * padded, p_.head_dim, static_cast<T*>(p_.dv) + offset);
    }
  }

  const AttentionProblem& p_;
  Arena arena_;
  SlabLayout slab_layout_;
  HeadTask task_;
  RowBlock<Element> block_;
  float* slab_ = nullptr;
  float* dp_ = nullptr;          // [48][kScoreStride]
  Element* dout_ = nullptr;      // [48][padded]
  float* dq_content_ = nullptr;  // [48][padded], of q + u, without scale; likewise of q + v
  float* dq_position_ = nullptr;
  RowGradient* rows_ = nullptr;  // [48]
  float* other_ = nullptr;       // [48] sum of ds over keys of another segment
  int64_t window_floats_ = 0;
  float* window_ = nullptr;      // Z, or the window of a gathered band
  float* dout_pairs_ = nullptr;  // [24][padded] words; the rest are bf16 only, too
  float* content_pairs_ = nullptr;
  float* position_pairs_ = nullptr;
  Element* ds_rows_ = nullptr;  // [48][kScoreStride], as the scores
  float* ds_pairs_ = nullptr;   // [24][kScoreStride]
  float* probability_pairs_ = nullptr;
  Element* window_rows_ = nullptr;
  float* window_pairs_ = nullptr;
  int64_t pair_stride_ = 0;  // of window_pairs_
  float* zeros_ = nullptr;
};

}  // namespace anyorder::kernels::cpu::ANYORDER_ISA
