// Forward of one (lane, head): online softmax over chunks of keys, two passes inside a chunk.

#pragma once

#include "kernels/cpu/attention/attention_band.h"
#include "kernels/cpu/attention/attention_bias.h"

namespace anyorder::kernels::cpu::ANYORDER_ISA {

template <class Number, typename T>
class ForwardTask {
 public:
  using Element = typename Number::Element;

  // With null scratch the object only knows how many bytes it needs.
  ForwardTask(const AttentionProblem& p, int64_t lane, int64_t head, void* scratch)
      : p_(p), arena_(scratch) {
    task_.lane = lane;
    task_.kv_head = head / p.heads_per_kv;
    task_.head = head;
    TakeHeadTask<Number>(p, /*backward=*/false, &arena_, &task_);
    TakeRowBlock(task_, &arena_, &block_);
    if constexpr (Number::kPerWord == 2)
      probabilities_ = arena_.template Take<Element>(kRowBlock * kChunkKeys);
    window_ = arena_.template Take<float>(kPanelRows * task_.distance_columns);
    largest_ = arena_.template Take<float>(kRowBlock);
    sum_ = arena_.template Take<float>(kRowBlock);
  }
  int64_t scratch_bytes() const { return arena_.used(); }

  void Run() {
    PackKeys<Number, T>(p_, /*backward=*/false, block_.buffer, &task_);
    PackHead<Number, T>(p_, /*backward=*/false, block_.buffer, &task_);
    RunRows(task_.lane * p_.content_rows, p_.content_rows);
    RunRows(p_.batch_size * p_.content_rows + task_.lane * p_.query_rows, p_.query_rows);
  }

 private:
  void RunRows(int64_t begin, int64_t count) {
    for (int64_t row = begin; row < begin + count; row += kRowBlock)
      RunBlock(row, Min(kRowBlock, begin + count - row));
  }

  void RunBlock(int64_t row, int64_t count) {
    LoadRowBlock<T>(p_, task_, row, count, &block_);
    std::memset(block_.out, 0, static_cast<size_t>(count * task_.padded) * 4);
    for (int64_t r = 0; r < count; ++r) {
      largest_[r] = kNegativeInfinity;
      sum_[r] = 0.0f;
    }
    for (int64_t c = 0; c < task_.num_chunks; ++c) RunChunk(task_.chunks[c]);
    WriteRows();
  }

  void RunChunk(const KeyChunk& chunk) {
    int64_t begin = 0;
    int64_t end = 0;
    if (!ViewChunk(task_, chunk, &block_, &begin, &end)) return;
    PositionScores<Number>(p_, task_, block_, chunk, Range{begin, end - 1}, window_);
    MultiplyTiles<Number>(task_, block_, chunk,
                          {block_.content_query, task_.keys_transposed, block_.ScoreRow(0),
                           /*accumulate=*/p_.num_distances > 0});
    if (p_.num_bias_distances > 0)
      AddByDistance<BiasPass::kForward>(p_, task_, block_, chunk, task_.distance_bias);
    for (int64_t r = 0; r < block_.count; ++r) {
      if (p_.segment_embedding != nullptr)
        SoftmaxRow<true>(chunk, r);
      else
        SoftmaxRow<false>(chunk, r);
    }
    constexpr int64_t kRowElements = Number::kPerWord == 2 ? kChunkKeys : kScoreStride;
    AddKeyProduct<Number>(task_, block_, chunk,
                          {ProbabilityRow(0), kRowElements, task_.values_steps, block_.out});
  }

  Element* ProbabilityRow(int64_t r) const {
    if constexpr (Number::kPerWord == 2)
      return probabilities_ + r * kChunkKeys;
    else
      return block_.ScoreRow(r);  // in place
  }

  template <bool kSegments>
  void SoftmaxRow(const KeyChunk& chunk, int64_t r) {
    float* scores = block_.ScoreRow(r);
    const int64_t row = block_.row + r;
    const int64_t num_tiles = chunk.end_tile - chunk.begin_tile;
    Floats chunk_largest = Set(kNegativeInfinity);
    for (int64_t t = 0; t < num_tiles; ++t) {
      if (block_.views[t] == TileView::kSkip) continue;
      const TileRow tile = MakeTileRow(p_, task_, block_, chunk, t, r);
      chunk_largest = MaskScores<kSegments>(scores + t * kTileKeys, tile, p_.rows.seg[row],
                                            block_.difference[r], chunk_largest);
    }
    const float new_largest = Largest(Larger(chunk_largest, Set(largest_[r])));
    // A row that has seen nothing yet: any finite maximum makes all its probabilities zero.
    const float shift = new_largest == kNegativeInfinity ? 0.0f : new_largest;
    if (largest_[r] < new_largest && sum_[r] > 0.0f) Rescale(r, largest_[r] - new_largest);
    largest_[r] = new_largest;
    Floats sum{};
    for (int64_t t = 0; t < num_tiles; ++t) {
      if (block_.views[t] == TileView::kSkip) continue;
      const int64_t key = (chunk.begin_tile + t) * kTileKeys;
      const uint64_t keep = p_.dropout_threshold == 0
                                ? ~uint64_t{0}
                                : KeepBits(p_, static_cast<uint32_t>(p_.row_ids[row]),
                                           static_cast<uint32_t>(task_.head), key);
      sum = ExpScores(scores + t * kTileKeys, Set(shift), keep, sum,
                      ProbabilityRow(r) + t * kTileKeys);
    }
    sum_[r] += Sum(sum);
  }

  // A larger maximum turned up: what was added so far was too much.
  void Rescale(int64_t r, float log2_factor) {
    const Floats factor = Exp2(Set(log2_factor));
    float one[kLanes];
    Store(one, factor);
    sum_[r] *= one[0];
    float* out = block_.out + r * task_.padded;
    for (int64_t d = 0; d < task_.padded; d += kLanes) Store(out + d, Mul(Load(out + d), factor));
  }

  void WriteRows() {
    for (int64_t r = 0; r < block_.count; ++r) {
      const int64_t row = block_.row + r;
      const bool sees = sum_[r] > 0.0f || sum_[r] != sum_[r];
      const Floats factor = Set(sees ? p_.dropout_scale / sum_[r] : 0.0f);
      float* out = block_.out + r * task_.padded;
      for (int64_t d = 0; d < task_.padded; d += kLanes) Store(out + d, Mul(Load(out + d), factor));
      FromFloatRow(out, p_.head_dim,
                   static_cast<T*>(p_.out) + row * p_.row_stride + task_.head * p_.head_dim);
      p_.lse[row * p_.num_heads + task_.head] =
          sees ? (largest_[r] + block_.same[r]) * kLn2 + __builtin_logf(sum_[r])
               : kNegativeInfinity;
    }
  }

  const AttentionProblem& p_;
  Arena arena_;
  HeadTask task_;
  RowBlock<Element> block_;
  Element* probabilities_ = nullptr;  // [48][kChunkKeys], where scores cannot hold them
  float* window_ = nullptr;
  float* largest_ = nullptr;  // [48] running maximum, log2 domain, without the "same segment" part
  float* sum_ = nullptr;      // [48] running sum of exp2(score - largest)
};

}  // namespace anyorder::kernels::cpu::ANYORDER_ISA
