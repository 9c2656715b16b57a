// Exported weights as safetensors: model.safetensors, or, split as Hugging Face does it,
// model-00001-of-0000N.safetensors and model.safetensors.index.json.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "ckpt/reader.h"
#include "core/base/dtype.h"
#include "launcher/huggingface/families/file_tensor.h"

namespace anyorder::launcher {

struct WeightFileOptions {
  DType dtype = DType::kFloat32;  // or kBFloat16: rounded to nearest even
  bool raw_weights = false;       // not the average of a run that keeps one
  int64_t max_shard_bytes = 0;    // bytes of tensors in a file; 0: no limit
};

// "5GB", "300MB", "64KiB" or a number of bytes, as save_pretrained's max_shard_size: powers of 1000
// or, with an i, of 1024. InvalidArgument naming `option` for any other text, and for 0.
absl::StatusOr<int64_t> ParseByteSize(absl::string_view text, absl::string_view option);

// Writes `tensors` but aliases, gathered from the average of the checkpoint's weights or, where
// there is none or options say so, from the weights, to `directory`. In their order, each in the
// file before unless that would be too large; a larger tensor has a file of its own. Reads and
// writes a piece at a time; a tensor that is not plain is put together in memory. Errors: DataLoss
// of the checkpoint; I/O.
absl::Status WriteWeightFiles(const ckpt::Checkpoint& checkpoint,
                              const std::vector<FileTensor>& tensors,
                              const WeightFileOptions& options, const std::string& directory);

}  // namespace anyorder::launcher
