// A tensor of a model file as blocks of our parameters. Both ways go by it: an export gathers the
// blocks (weight_files.h), an import scatters them (hf_model.h).

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
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
  // Where an element is in the flat space.
  int64_t Place(int64_t row, int64_t column) const {
    return offset + (transposed ? column * rows + row : row * columns + column);
  }
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

// Calls visit(block, at, width) for each block that we have: `at` is the place of its first element
// in the tensor, whose rows are `width` wide.
void ForEachBlock(const FileTensor& tensor, const auto& visit) {
  int64_t width = 0;
  for (const TensorBlock& block : tensor.blocks)
    width = tensor.side_by_side ? width + block.columns : block.columns;
  int64_t at = 0;
  for (const TensorBlock& block : tensor.blocks) {
    if (block.offset >= 0) visit(block, at, width);
    at += tensor.side_by_side ? block.columns : block.num_elements();
  }
}

// Elements [begin, end) of the flat space, which lie at `values`. A model is imported in such
// pieces, since a large one does not fit into memory.
struct FlatPiece {
  int64_t begin = 0;
  int64_t end = 0;
  float* values = nullptr;

  // Calls visit(i, value) for the elements that it has of a parameter, which is a float&.
  void ForEachOf(const ParameterInfo& parameter, const auto& visit) const {
    const int64_t last = std::min(end, parameter.end());
    for (int64_t i = std::max(begin, parameter.offset); i < last; ++i)
      visit(i - parameter.offset, values[i - begin]);
  }
};

// Collects the tensors of a family by our names and theirs.
class TensorList {
 public:
  using Names = std::vector<std::string>;

  explicit TensorList(const ParameterLayout& layout) : layout_(layout) {}

  bool Contains(absl::string_view ours) const { return layout_.Contains(ours); }
  void Add(FileTensor tensor) { tensors_.push_back(std::move(tensor)); }
  // The parameter as it is.
  void Plain(absl::string_view ours, absl::string_view theirs) {
    Add(PlainTensor(layout_.Find(ours), theirs));
  }
  // ".weight" and ".bias" of both names.
  void Pair(const std::string& ours, const std::string& theirs) {
    for (const char* part : {".weight", ".bias"}) Plain(ours + part, theirs + part);
  }
  // Another name of what is in the list already; `why` they are equal, for messages.
  void Alias(absl::string_view ours, absl::string_view theirs, const char* why) {
    Plain(ours, theirs);
    MakeAlias(why);
  }
  // A softmax weight that is the word embedding.
  void TiedOutput(absl::string_view theirs) {
    Alias("transformer.word_embedding.weight", theirs,
          "it must be the word embedding, an output of its own is not supported; save the model "
          "with tied embeddings");
  }
  // These set, of the newest tensor, FileTensor::is_exported, is_folded.
  void ExportAlias() { tensors_.back().is_exported = true; }
  void MarkFolded() { tensors_.back().is_folded = true; }
  // A buffer that some versions of transformers write beside the weights. An import accepts any
  // values in it.
  void Buffer(absl::string_view theirs, const Shape& shape);
  // Parameters below one another, each as a matrix [rows, rest], or as a vector.
  void Below(const Names& ours, absl::string_view theirs, const char* alias_why = nullptr) {
    Stack(ours, theirs, &TensorBlock::Of);
    if (alias_why != nullptr) MakeAlias(alias_why);
  }
  // Such blocks of [rest, rows] each.
  void Turned(const Names& ours, absl::string_view theirs) {
    Stack(ours, theirs, &TensorBlock::Transposed);
  }
  // Matrices [rows, rest] side by side.
  void SideBySide(const Names& ours, absl::string_view theirs);

  TensorTable Take() { return std::move(tensors_); }

 private:
  // Blocks below one another, each as `block_of` makes it.
  void Stack(const Names& ours, absl::string_view theirs,
             TensorBlock (*block_of)(const ParameterInfo&));
  void MakeAlias(const char* why) {
    tensors_.back().is_alias = true;
    tensors_.back().repeats = why;
  }

  const ParameterLayout& layout_;
  TensorTable tensors_;
};

}  // namespace anyorder::launcher
