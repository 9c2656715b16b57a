// What an import keeps of how weights were stored, for families whose export is to be as the source
// was (HfFamily::Names::keeps_storage): the type of every tensor, by which repeated ones are known,
// too; and the bytes of those that our parameters do not tell again, because they were folded into
// others or are buffers that we do not have. Of Llama and its relatives that is a few kilobytes, of
// a diffusion transformer all but embeddings, q, k, v and the first layer of each feed-forward
// block.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "ckpt/safetensors.h"
#include "launcher/huggingface/hf_model.h"
#include "launcher/huggingface/weight_files.h"

namespace anyorder::launcher {

// Writes them to `path`, a safetensors file whose metadata has the types; a piece at a time.
// `tensors`: the table that `weights` was checked by. Errors: I/O.
absl::Status KeepOriginals(const HfWeights& weights, const TensorTable& tensors,
                           const std::string& path);

class Originals {
 public:
  // Nothing if there is no such file. Errors: DataLoss naming it; I/O.
  static absl::StatusOr<std::optional<Originals>> Open(const std::string& path);

  // What an export writes of `tensors`: each in its type, repeated ones again. The bytes that were
  // kept are taken for buffers, and for the others if the parameters are as they were imported.
  // The result points to this object.
  std::vector<WrittenTensor> Choose(const TensorTable& tensors, bool is_untrained) const;

 private:
  Originals() = default;

  std::map<std::string, DType> types_;
  std::optional<ckpt::SafetensorsReader> file_;
};

}  // namespace anyorder::launcher
