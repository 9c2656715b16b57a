// model.safetensors.index.json of an imported model, beside two sound files of weights.

#include "absl/strings/str_cat.h"

#include "ckpt/safetensors.h"
#include "core/base/check.h"
#include "launcher/huggingface/hf_weights.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_directory.h"

namespace anyorder::fuzz {
namespace {

constexpr char kIndex[] = "model.safetensors.index.json";

// Holds tensor `name`, [2, 3] zeros.
std::string WeightsWith(const std::string& name) {
  const auto layout =
      ckpt::LayOutSafetensors({{name, DType::kFloat32, {2, 3}}}, {{"format", "pt"}});
  ANYORDER_CHECK_OK(layout.status());
  return layout->header + std::string(layout->file_bytes - layout->header.size(), '\0');
}

// Its tensors are those that the files hold.
class TwoFiles {
 public:
  TwoFiles() {
    for (const char* name : {"a", "b"})
      scratch_.Store(absl::StrCat("model-", name, ".safetensors"), WeightsWith(name));
  }
  absl::StatusOr<launcher::HfWeights> Open(absl::string_view index) const {
    scratch_.Store(kIndex, index);
    return launcher::HfWeights::Open(scratch_.path());
  }

 private:
  ScratchDirectory scratch_;
};

std::vector<std::string> Seeds() {
  const std::string seed =
      "{\"metadata\": {\"total_size\": 48}, \"weight_map\": {\"a\": \"model-a.safetensors\", "
      "\"b\": \"model-b.safetensors\"}}";
  ANYORDER_CHECK_OK(TwoFiles().Open(seed).status());
  return {seed};
}

void Run(absl::string_view text) {
  static const TwoFiles files;
  const auto weights = files.Open(text);
  if (!weights.ok()) return;
  weights->HasNextSentenceHead();
  std::vector<std::string> left_out;
  // A model of other tensors: it has to say so.
  const absl::Status status = weights->Check(ParameterLayout(ModelConfig(), 10), left_out);
  ANYORDER_CHECK(!status.ok());
}

const bool registered = Register({"weights_index", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
