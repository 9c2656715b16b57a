// XLNet's forward pass written a second time from the paper and the released code's behaviour, in
// the style of those: one example at a time, dense perm_mask, target_mapping over all slots,
// one-hot segments, the position scores shifted by pad-reshape-slice. Nothing is shared with
// core/network but the names of parameters.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/network/tensors/parameters.h"
#include "core/objective/text_sample.h"

namespace anyorder::testing {

// Row-major matrix of doubles.
struct Matrix {
  Matrix() = default;
  Matrix(int64_t num_rows, int64_t num_columns)
      : rows(num_rows),
        columns(num_columns),
        values(static_cast<size_t>(num_rows * num_columns), 0.0) {}
  double& operator()(int64_t i, int64_t j) { return values[i * columns + j]; }
  double operator()(int64_t i, int64_t j) const { return values[i * columns + j]; }

  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> values;
};

// What attention may see by masked and functional flags and the order: the released _local_perm for
// each half, the first blind to the second, the second seeing all of the first.
struct LocalPermutation {
  std::vector<int> is_target;
  Matrix perm_mask;  // (i, j) is 1: row i must not see j
};
LocalPermutation PermuteSequence(const TextSample& sample, int64_t half_len);

struct PlainOutput {
  std::vector<double> losses;                    // of the targets in increasing position
  std::vector<Matrix> memory;                    // per layer [M, d]
  std::array<double, 2> next_sentence_logits{};  // of a model with that head
};

class PlainXlnet {
 public:
  PlainXlnet(const ModelConfig& config, int64_t vocab_size,
             const std::vector<double>& flat_weights);

  // `memory`: per layer [M, d], every row of it visible. No dropout. GELU (tanh) only.
  PlainOutput Run(const TextSample& sample, int64_t half_len,
                  const std::vector<Matrix>& memory) const;

 private:
  const std::vector<double>& Weight(const std::string& name) const { return weights_.at(name); }
  std::vector<double> LayerWeight(int64_t layer, const std::string& name) const;
  Matrix PositionEncodings(int64_t num_rows, int64_t num_keys, bool backward) const;
  // Attention, residual and LayerNorm of one stream. `x` [S, d] queries, `keys` [K, d], mask [S,
  // K].
  Matrix Attend(int64_t layer, const Matrix& x, const Matrix& keys, const Matrix& mask,
                const std::vector<int32_t>& segment, bool backward) const;
  Matrix FeedForward(int64_t layer, const Matrix& x) const;
  // From the last layer's content states.
  std::array<double, 2> NextSentenceLogits(const Matrix& h) const;

  ModelConfig config_;
  std::map<std::string, std::vector<double>> weights_;
};

}  // namespace anyorder::testing
