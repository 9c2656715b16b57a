// Which rows of a step belong to one cluster of an adaptive softmax, and what each needs there.
//
// How many there are depends on the text. They are filled up to a multiple of kBlock with entries
// that count nothing, so that products have few different shapes, each of which a backend may
// compile once and keep.

#pragma once

#include <cstdint>

#include "core/network/tensors/device_inputs.h"

namespace anyorder {

class ClusterRows {
 public:
  static constexpr int64_t kBlock = 64;
  static int64_t Padded(int64_t rows) { return (rows + kBlock - 1) / kBlock * kBlock; }

  // At most `rows` entries: nothing is allocated later.
  ClusterRows(int64_t rows, DeviceInputs& inputs)
      : rows_(Padded(rows), inputs), words_(Padded(rows), inputs), weights_(Padded(rows), inputs) {
    Clear();
  }

  void Clear() {
    num_rows_ = 0;
    rows_.host.clear();
    words_.host.clear();
    weights_.host.clear();
  }
  void Add(int32_t row, int32_t word, float weight) {
    rows_.host.push_back(row);
    words_.host.push_back(word);
    weights_.host.push_back(weight);
  }
  // All are there: pads with row 0, word 0, weight 0, and puts them where operations read them.
  void Finish() {
    num_rows_ = static_cast<int64_t>(rows_.host.size());
    const auto padded = static_cast<size_t>(Padded(num_rows_));
    rows_.host.resize(padded);
    words_.host.resize(padded);
    weights_.host.resize(padded);
    rows_.Set();
    words_.Set();
    weights_.Set();
  }

  // Entries that count, which come first, and all of them.
  int64_t num_rows() const { return num_rows_; }
  int64_t num_padded() const { return static_cast<int64_t>(rows_.host.size()); }
  const int32_t* rows() const { return rows_.data(); }
  const int32_t* words() const { return words_.data(); }  // counted from the cluster's first
  const float* weights() const { return weights_.data(); }

 private:
  int64_t num_rows_ = 0;
  ComputedArray<int32_t> rows_;
  ComputedArray<int32_t> words_;
  ComputedArray<float> weights_;
};

}  // namespace anyorder
