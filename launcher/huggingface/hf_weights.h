// The weights of a Hugging Face model directory: one safetensors file, or several with an index.
//
// Names and shapes are those of our parameters (core/network/tensors/parameters.h), so a layout is
// what is looked for, whatever parameters a model has.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "ckpt/safetensors.h"
#include "core/network/tensors/parameters.h"

namespace anyorder::launcher {

class HfWeights {
 public:
  // Reads the headers only. Errors: FailedPrecondition if there are no weights, or PyTorch's only,
  // with the command that converts them; DataLoss naming file and tensor for a damaged file, or an
  // index that does not fit its files.
  static absl::StatusOr<HfWeights> Open(const std::string& directory);

  // Whether the files hold every tensor that `layout` needs, with its shape and a type that can be
  // read (F32, F16, BF16), and nothing else but heads of other tasks, whose names go to `left_out`.
  // FailedPrecondition naming file and tensor, what was expected and what to do.
  absl::Status Check(const ParameterLayout& layout, std::vector<std::string>& left_out) const;

  // Whether the files hold any part of the next-sentence head (sequence_summary, logits_proj).
  bool HasNextSentenceHead() const;

  // Writes all parameters to `flat` [layout.num_elements()], converted to fp32. REQUIRES: Check was
  // OK.
  // Errors: DataLoss for a value that is not finite; FailedPrecondition where two tensors would
  // have to be equal (an output weight that is not the embedding, biases of layers that share them)
  // and are not; I/O.
  absl::Status Read(const ParameterLayout& layout, float* flat) const;

 private:
  struct Tensor {
    size_t file = 0;
    ckpt::SafetensorsEntry entry;
  };
  struct File {
    std::string path;
    ckpt::SafetensorsReader reader;
  };

  HfWeights() = default;
  absl::Status AddFile(const std::string& path);
  absl::Status AddIndexed(const std::string& directory, const std::string& index_path);
  const Tensor* Find(absl::string_view name) const;
  // Null where no tensor serves the parameter.
  const Tensor* SourceOf(const ParameterInfo& parameter) const;
  // "'file': tensor 'name'"
  std::string Where(const Tensor& tensor) const;
  absl::Status CheckParameter(const ParameterInfo& parameter) const;
  // Elements [begin, begin + count) as fp32.
  absl::Status ReadPiece(const Tensor& tensor, int64_t begin, int64_t count, float* out) const;
  absl::Status ReadTensor(const Tensor& tensor, float* out) const;
  absl::Status RequireEqual(const Tensor& tensor, const float* values, absl::string_view why) const;

  std::vector<File> files_;
  std::vector<Tensor> tensors_;
};

}  // namespace anyorder::launcher
