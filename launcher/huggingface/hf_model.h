// What a Hugging Face model directory says and holds.
//
// config.json of an XLNet, both ways: what it says about a model, and what it says about a run. The
// weights: one safetensors file, or several with an index. Names and shapes are those of our
// parameters (core/network/tensors/parameters.h), so a layout is what is looked for, whatever
// parameters a model has.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "ckpt/safetensors.h"
#include "core/base/dtype.h"
#include "core/config/model_config.h"
#include "core/network/tensors/parameters.h"
#include "core/train/run/run_config.h"
#include "data/dataset/dataset_index.h"

namespace anyorder::launcher {

struct HfConfig {
  // Architecture, dropout, memory and initial range; what the file leaves open has our default.
  ModelConfig model;
  int64_t vocab_size = 0;
  // ff_activation is "gelu": by name the exact GELU, yet the released models, whose files say so,
  // were trained with the tanh approximation. `model` has the latter; either may be chosen.
  bool gelu_is_open = false;
  // What makes the sequence summary another function than the next-sentence head, "" if nothing
  // does.
  std::string other_summary;
};

// `path` names the text in messages. Errors, each listing all faults with key, value found and
// values expected:
//   DataLoss: no JSON, keys missing or of the wrong type, sizes that do not fit together;
//   FailedPrecondition: another kind of model (model_type, attn_type "uni", same_length, an untied
//   output, another activation).
absl::StatusOr<HfConfig> ParseHfConfig(absl::string_view text, absl::string_view path);

// The name that config.json has for a key of section [model], or "".
absl::string_view HfNameOf(absl::string_view model_key);

// FailedPrecondition, listing every setting that stands in the way, unless an XLNetLMHeadModel can
// be this run's network.
absl::Status CheckIsXlnet(const RunConfig& config);

// The config.json of an XLNetLMHeadModel with this run's weights, stored as `dtype`.
std::string HfConfigText(const RunConfig& config, int64_t vocab_size, DType dtype,
                         const data::VocabIds& ids);

// The same for a run that was imported: `original` with every key it has, known to us or not.
// Changed are the architecture's name and the element type, which describe the weights file of the
// export; and, once `trained`, the run's settings of activation, memory, dropout and initial range.
std::string UpdatedHfConfigText(const std::string& original, const RunConfig& config,
                                int64_t vocab_size, DType dtype, bool trained);

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
