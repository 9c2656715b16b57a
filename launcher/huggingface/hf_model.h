// What a Hugging Face model directory says and holds.
//
// config.json both ways: what it says about a model, and what it says about a run. The weights: one
// safetensors file, or several with an index. What is looked for, under which names, is for the
// model's family to say (families/hf_family.h).

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "ckpt/safetensors.h"
#include "core/base/dtype.h"
#include "core/train/run/run_config.h"
#include "data/dataset/dataset_index.h"
#include "launcher/huggingface/families/hf_family.h"

namespace anyorder::launcher {

// `path` names the text in messages. Errors, each listing all faults with key, value found and
// values expected:
//   DataLoss: no JSON, keys missing or of the wrong type, sizes that do not fit together;
//   FailedPrecondition: no family of the table, or another function than ours.
absl::StatusOr<HfConfig> ParseHfConfig(absl::string_view text, absl::string_view path);

// The config.json of a model of the family with this run's weights, stored as `dtype`. `classes`:
// the names of a classifier's labels, if they are known.
std::string HfConfigText(const HfFamily& family, const RunConfig& config, int64_t vocab_size,
                         DType dtype, const data::VocabIds& ids,
                         const std::vector<std::string>& classes = {});

// The config.json of a run that was imported: `original` with every key it has, known to us or not.
// Changed are the architecture's name and the element type, which describe the weights file of the
// export; and what HfFamily::UpdateConfig says. Without `dtype` the type stays, too, and with
// HfFamily::Names::keeps_storage a name that is there and of this family.
std::string UpdatedHfConfigText(const HfFamily& family, const std::string& original,
                                const RunConfig& config, int64_t vocab_size,
                                std::optional<DType> dtype, bool trained,
                                const std::vector<std::string>& classes = {});

// The family that an export of a run is of: that of the weights it was imported from, or the one of
// its type that the run has turned it into (VariantOfRun), else the one that its network comes
// closest to.
absl::StatusOr<const HfFamily*> FamilyOfExport(const std::string& run_dir, const RunConfig& config);

class HfWeights {
 public:
  // Reads the headers only. Errors: FailedPrecondition if there are no weights, or PyTorch's only,
  // with the command that converts them; DataLoss naming file and tensor for a damaged file, or an
  // index that does not fit its files.
  static absl::StatusOr<HfWeights> Open(const std::string& directory);

  // Whether the names lack the family's prefix, as those of a model without heads do.
  bool IsBare(const HfFamily& family) const;

  struct Findings {
    std::vector<std::string> left_out;  // tensors of heads that the run does not have
    std::vector<const HfHead*> taken;   // heads of the run that the files have
    std::vector<const HfHead*> drawn;   // heads of the run of which they have nothing
  };
  // Whether the files hold each of `tensors`, with its shape and a type that can be read (F32, F16,
  // BF16), and nothing else but heads of other tasks.
  // FailedPrecondition naming file and tensor, what was expected and what to do.
  absl::StatusOr<Findings> Check(const HfFamily& family, const TensorTable& tensors) const;

  struct Totals {
    int64_t files = 0;
    int64_t tensors = 0;
    int64_t elements = 0;
    int64_t bytes = 0;                // of the tensors
    std::vector<std::string> dtypes;  // as safetensors spells them, each once
  };
  Totals totals() const;
  // The tensors in the order of the files.
  std::vector<ckpt::SafetensorsEntry> entries() const;
  // Reads every value of floating-point tensors. DataLoss naming the first that is not finite; the
  // format has no checksums.
  absl::Status CheckValues() const;

  // Where in the flat space the blocks of `tensors` begin that the files have.
  std::set<int64_t> OffsetsIn(const TensorTable& tensors) const;

  // Writes what the files have of a piece of the flat space, converted to fp32, and leaves the rest
  // as it is. Of a tensor that is stored transposed it reads all for each piece.
  // REQUIRES: Check of the same tensors was OK.
  // Errors: DataLoss for a value that is not finite; FailedPrecondition where two tensors would
  // have to be equal (FileTensor::repeats) and are not; I/O.
  absl::Status Read(const TensorTable& tensors, const FlatPiece& piece) const;

  // One tensor as fp32. Errors: NotFound; DataLoss for a value that is not finite; I/O.
  absl::StatusOr<std::vector<float>> Values(absl::string_view name) const;
  // The file that holds a tensor, as it is stored; null if none does.
  const ckpt::SafetensorsReader* ReaderOf(absl::string_view name) const;

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
  absl::Status AddFile(const std::string& directory, const std::string& name);
  absl::Status AddIndexed(const std::string& directory);
  const Tensor* Find(absl::string_view name) const;
  // "'file': tensor 'name'"
  std::string Where(const Tensor& tensor) const;
  absl::Status Missing(const HfFamily& family, const FileTensor& tensor) const;
  // The fault of tensors that no table has; at least one.
  absl::Status Unknown(const std::vector<const Tensor*>& tensors) const;
  absl::Status CheckTensors(const HfFamily& family, const TensorTable& tensors,
                            const HfHead* head) const;
  // Whether another name of what `tensor` holds is there.
  bool HasAlias(const TensorTable& tensors, const FileTensor& tensor) const;
  absl::Status CheckTensor(const Tensor& tensor, const FileTensor& expected) const;
  // Elements [begin, begin + count) as fp32.
  absl::Status ReadPiece(const Tensor& tensor, int64_t begin, int64_t count, float* out) const;
  // What the piece has of a block (ForEachBlock): copied to it, or, with `repeats`, compared.
  absl::Status ReadBlock(const Tensor& tensor, const TensorBlock& block, int64_t at, int64_t width,
                         const char* repeats, const FlatPiece& piece) const;

  std::vector<File> files_;
  std::vector<Tensor> tensors_;
  absl::flat_hash_map<std::string, size_t> places_;  // in tensors_, by name
};

}  // namespace anyorder::launcher
