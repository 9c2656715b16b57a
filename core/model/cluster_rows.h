// Which rows of a step belong to one cluster of an adaptive softmax, and what each needs there.
//
// How many there are depends on the text. They are filled up to a multiple of kBlock with entries that count nothing, so that
// products have few different shapes, each of which a backend may compile once and keep.

#pragma once

#include <cstdint>
#include <vector>

namespace anyorder {

class ClusterRows {
 public:
  static constexpr int64_t kBlock = 64;
  static int64_t Padded(int64_t rows) { return (rows + kBlock - 1) / kBlock * kBlock; }

  // At most `rows` entries: nothing is allocated later.
  explicit ClusterRows(int64_t rows) {
    rows_.reserve(static_cast<size_t>(Padded(rows)));
    words_.reserve(rows_.capacity());
    weights_.reserve(rows_.capacity());
  }

  void Clear() {
    num_rows_ = 0;
    rows_.clear();
    words_.clear();
    weights_.clear();
  }
  void Add(int32_t row, int32_t word, float weight) {
    rows_.push_back(row);
    words_.push_back(word);
    weights_.push_back(weight);
  }
  // Row 0, word 0, weight 0.
  void Pad() {
    num_rows_ = static_cast<int64_t>(rows_.size());
    const auto padded = static_cast<size_t>(Padded(num_rows_));
    rows_.resize(padded);
    words_.resize(padded);
    weights_.resize(padded);
  }

  // Entries that count, which come first, and all of them.
  int64_t num_rows() const { return num_rows_; }
  int64_t num_padded() const { return static_cast<int64_t>(rows_.size()); }
  const int32_t* rows() const { return rows_.data(); }
  const int32_t* words() const { return words_.data(); }  // counted from the cluster's first
  const float* weights() const { return weights_.data(); }

 private:
  int64_t num_rows_ = 0;
  std::vector<int32_t> rows_;
  std::vector<int32_t> words_;
  std::vector<float> weights_;
};

}  // namespace anyorder
