// Exported weights as safetensors: model.safetensors, or, split as Hugging Face does it,
// model-00001-of-0000N.safetensors and model.safetensors.index.json.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "ckpt/safetensors.h"
#include "core/base/dtype.h"
#include "core/train/state/weight_reader.h"
#include "launcher/huggingface/families/file_tensor.h"

namespace anyorder::launcher {

struct WeightFileOptions {
  // The type of all tensors: kFloat32 or kBFloat16, rounded to nearest even. Without: as imported
  // weights had each (originals.h), else kFloat32.
  std::optional<DType> dtype;
  int64_t max_shard_bytes = 0;  // bytes of tensors in a file; 0: no limit
};

struct WrittenTensor {
  FileTensor tensor;
  DType dtype = DType::kFloat32;  // kFloat32, kBFloat16 or kFloat16; any, with `original`
  // Has the tensor with these very bytes, which are taken instead of the parameters; or null.
  const ckpt::SafetensorsReader* original = nullptr;
};

// "5GB", "300MB", "64KiB" or a number of bytes, as save_pretrained's max_shard_size: powers of 1000
// or, with an i, of 1024. InvalidArgument naming `option` for any other text, and for 0.
absl::StatusOr<int64_t> ParseByteSize(absl::string_view text, absl::string_view option);

// Copies a tensor's bytes, a piece at a time. Errors: I/O.
absl::Status CopyTensor(const ckpt::SafetensorsReader& reader, const ckpt::SafetensorsEntry& entry,
                        ckpt::SafetensorsWriter& writer);

// `tensors` but aliases, all of type `dtype`.
std::vector<WrittenTensor> WithType(const TensorTable& tensors, DType dtype);

// Tensors, and what they are gathered from.
struct WeightFilePart {
  const WeightReader& source;
  std::vector<WrittenTensor> tensors;
};
// Writes one file. Errors as below.
absl::Status WriteWeightFile(const std::vector<WeightFilePart>& parts, const std::string& path);

// Writes `tensors`, gathered from `source`, to `directory`. In their order, each in the file before
// unless that would make it larger than options.max_shard_bytes; a larger tensor has a file of its
// own. Reads and writes a piece at a time; a tensor that is not plain is put together in memory. Of
// `options` the tensors' types are not read. Errors: DataLoss of the checkpoint; FailedPrecondition
// naming a tensor with a value that its type cannot hold; I/O.
absl::Status WriteWeightFiles(const WeightReader& source, const std::vector<WrittenTensor>& tensors,
                              const WeightFileOptions& options, const std::string& directory);

}  // namespace anyorder::launcher
