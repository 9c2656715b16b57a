// A tensor of a model file as blocks of our parameters. Both ways go by it: an export gathers the
// blocks (weight_files.h), an import scatters them (hf_model.h).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/base/tensor.h"
#include "core/network/tensors/parameters.h"

namespace anyorder::launcher {

struct HfHead;

// A matrix [rows, columns]. In the flat space of parameters it is contiguous, row by row; or, if
// `transposed`, as [columns, rows].
struct TensorBlock {
  int64_t offset = -1;  // of its first element; -1: we have none, an export writes `fill` and an
                        // import ignores the values
  int64_t rows = 0;
  int64_t columns = 0;
  bool transposed = false;
  float fill = 0;

  // [2, H, D] is [2, H D], and [n] is [n, 1].
  static TensorBlock Of(const ParameterInfo& parameter);
  static TensorBlock Transposed(const ParameterInfo& parameter);
  static TensorBlock Zeros(int64_t rows, int64_t columns) { return {-1, rows, columns}; }
  // Rows [begin, begin + count) of one that is not transposed.
  TensorBlock Rows(int64_t begin, int64_t count) const;

  int64_t num_elements() const { return rows * columns; }
  friend bool operator==(const TensorBlock&, const TensorBlock&) = default;
};

struct FileTensor {
  std::string name;
  Shape shape;
  std::vector<TensorBlock> blocks;  // below one another
  bool side_by_side = false;        // or side by side; then all have as many rows
  // Why other tensors hold the same values, or null. An import takes the first of them that is
  // there and requires the others to be equal.
  const char* repeats = nullptr;
  // Whether it is only another name of what others hold: it may be missing, and no export has it,
  // but where is_exported says so: transformers 4.46, unlike 4.41, leaves what is tied as it was
  // drawn unless the file has every name of it, where no method of the model ties it again.
  bool is_alias = false;
  bool is_exported = false;
  const HfHead* head = nullptr;  // the head that it is part of, if any (hf_family.h)
  // Its values, if no parameter decides them: an export writes them, an import takes any. Its block
  // is Zeros then.
  std::vector<float> constants = {};
  // Whether HfFamily::Fold reads it, or changes the parameters that hold it: it must be there, and
  // the parameters alone do not tell its values again.
  bool is_folded = false;

  // Whether any of its values are ours.
  bool holds_ours() const;
  // Whether the parameters hold its values in its own order.
  bool is_plain() const { return blocks.size() == 1 && !blocks[0].transposed; }
};
using TensorTable = std::vector<FileTensor>;

// The parameter as it is, under `name`, or under its own.
FileTensor PlainTensor(const ParameterInfo& parameter, absl::string_view name);
TensorTable PlainTensors(const std::vector<ParameterInfo>& parameters);

// Copies between a tensor's values, in its own order, and the flat space. `visit(at, element)` is
// called for each element that we have: its place in the tensor and in the flat space.
template <typename Visit>
void ForEachElement(const FileTensor& tensor, const Visit& visit) {
  int64_t width = 0;
  for (const TensorBlock& block : tensor.blocks)
    width = tensor.side_by_side ? width + block.columns : block.columns;
  int64_t begin = 0;
  for (const TensorBlock& block : tensor.blocks) {
    const int64_t row_step = block.transposed ? 1 : block.columns;
    const int64_t column_step = block.transposed ? block.rows : 1;
    for (int64_t row = 0; row < block.rows && block.offset >= 0; ++row) {
      for (int64_t column = 0; column < block.columns; ++column) {
        visit(begin + row * width + column, block.offset + row * row_step + column * column_step);
      }
    }
    begin += tensor.side_by_side ? block.columns : block.num_elements();
  }
}

}  // namespace anyorder::launcher
