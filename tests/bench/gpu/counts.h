// What XLNet's pretraining needs at least: multiplications, parameters and bytes, counted as the
// speed goals count them.
//
// A flop is one multiplication or one addition of a matrix product. Counted is what the algorithm
// needs: query rows and the softmax at targets alone, attention over pairs of blocks that see each
// other (the first half of a sequence never sees the second), one position product for each visible
// pair, backward twice forward less the gradient of memory's states. Not counted: what is computed
// twice, everything that is no matrix product, and the projection of the relative positions, which
// a step does once for all lanes.

#pragma once

#include <cstdint>

namespace anyorder::bench {

struct XlnetSize {
  const char* name;
  int64_t layers;
  int64_t model_dim;
  int64_t heads;
  int64_t ffn_dim;
  int64_t vocab = 32000;
  int64_t length = 512;  // tokens of a sequence
  int64_t memory = 384;  // states of the text before
  int64_t targets = 85;

  constexpr int64_t rows() const { return length + targets; }
  constexpr int64_t keys() const { return memory + length; }
  constexpr int64_t distances() const { return length + keys() - 1; }
  constexpr int64_t head_dim() const { return model_dim / heads; }
};
inline constexpr XlnetSize kXlnetLarge{"large", 24, 1024, 16, 4096};
inline constexpr XlnetSize kXlnetBase{"base", 12, 768, 12, 3072};

constexpr double VisibleFraction(const XlnetSize& s) {
  const int64_t half = s.length / 2;
  const int64_t hidden = half * (s.length - half);
  return 1.0 - static_cast<double>(hidden) / static_cast<double>(s.length * s.keys());
}

// One product of rows and visible keys over a head's width, all heads of one layer and sequence.
// Attention needs three forward (content, position, values) and six backward.
constexpr double AttentionUnit(const XlnetSize& s) {
  return 2.0 * static_cast<double>(s.rows() * s.keys() * s.model_dim) * VisibleFraction(s);
}
// Attention without a position term needs two (scores, values) and, as its implementations count
// backward, five: the scores are computed again.
inline constexpr double kPlainForwardProducts = 2;
inline constexpr double kPlainBackwardProducts = 5;
inline constexpr double kForwardUnits = 3;
inline constexpr double kBackwardUnits = 6;

// Of one sequence, all layers, forward and backward.
constexpr double CountFlops(const XlnetSize& s) {
  const auto d = static_cast<double>(s.model_dim);
  const auto rows = static_cast<double>(s.rows());
  const double queries_and_outputs = 2 * 2 * rows * d * d;
  const double keys_and_values = 2 * 2 * static_cast<double>(s.keys()) * d * d;
  const double feed_forward = 2 * 2 * rows * d * static_cast<double>(s.ffn_dim);
  const double of_memory = 2 * 2 * static_cast<double>(s.memory) * d * d;
  const double products = 3 * (queries_and_outputs + keys_and_values + feed_forward) - of_memory;
  const double attention = (kForwardUnits + kBackwardUnits) * AttentionUnit(s);
  const double loss = 3 * 2 * static_cast<double>(s.targets * s.vocab) * d;
  return static_cast<double>(s.layers) * (products + attention) + loss;
}

// Five projections, feed-forward with biases, two LayerNorms, three biases and two segment vectors
// a layer; embeddings, the query stream's first vector, the softmax's bias.
constexpr int64_t CountParameters(const XlnetSize& s) {
  const int64_t d = s.model_dim;
  const int64_t layer = 5 * d * d + 2 * d * s.ffn_dim + s.ffn_dim + d + 4 * d + 3 * d + 2 * d;
  return s.layers * layer + s.vocab * d + d + s.vocab;
}

// Bytes that must pass through memory once, T being bf16.
inline constexpr double kBytesOfBf16 = 2;
// A row-wise operation reads and writes whole matrices.
constexpr double MatrixBytes(int64_t matrices, int64_t rows, int64_t columns) {
  return kBytesOfBf16 * static_cast<double>(matrices * rows * columns);
}
// Four fp32 arrays read and three written, and the bf16 weights.
constexpr double AdamWBytes(int64_t parameters) { return 30.0 * static_cast<double>(parameters); }

// The datasheet's dense bf16 peak of an H100 or H200 (SXM), and what large products reach there,
// FLOP/s. Shares are given of both.
inline constexpr double kPeak = 989.4e12;
inline constexpr double kReachable = 790e12;

}  // namespace anyorder::bench
