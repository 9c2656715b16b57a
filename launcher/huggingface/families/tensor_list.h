// Collects the tensors of a family by our names and theirs.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/network/tensors/parameters.h"
#include "launcher/huggingface/families/file_tensor.h"

namespace anyorder::launcher {

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
  // A buffer that files of some versions hold beside the weights: an import takes any values.
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
