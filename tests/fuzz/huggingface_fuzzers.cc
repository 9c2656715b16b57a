// The files of an imported model beside its weights: config.json, spiece.model and
// model.safetensors.index.json.

#include "absl/strings/str_cat.h"

#include "ckpt/safetensors.h"
#include "data/prep/model_pieces.h"
#include "launcher/huggingface/hf_model.h"
#include "tests/fuzz/fuzz_target.h"

namespace anyorder::fuzz {
namespace {

std::vector<std::string> ConfigSeeds() {
  std::vector<std::string> seeds;
  for (const launcher::HfFamily* const family : launcher::HfFamilies()) {
    seeds.push_back(launcher::HfConfigText(*family, RunConfig(), 100, DType::kFloat32,
                                           {0, 1, 2, 3, 4, 5, 6, 7, 8}));
  }
  return seeds;
}

void UseConfig(absl::string_view text) {
  const auto parsed = launcher::ParseHfConfig(text, "c");
  if (!parsed.ok()) return;
  RunConfig config;
  config.model = parsed->model;
  const std::string updated = launcher::UpdatedHfConfigText(
      *parsed->family, std::string(text), config, parsed->vocab_size, DType::kBFloat16, true);
  ANYORDER_CHECK_OK(launcher::ParseHfConfig(updated, "updated").status());
}

// A field of a protobuf message shorter than 128 bytes.
std::string Field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

// By hand: under libFuzzer there is no library that writes such files.
std::vector<std::string> VocabularySeeds() {
  std::string model;
  for (const char* text : {"<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>"})
    model += Field(1, Field(1, text) + std::string("\x15\0\0\x80\x3f\x18\x03", 7));
  model += Field(2, std::string("\x18\x01\x98\x02\x01", 5));            // kind; byte_fallback
  return {model + Field(3, std::string("\x12\x02mm\x18\0\x28\1", 8))};  // normalisation
}

void UseVocabulary(absl::string_view text) {
  const std::string model(text);
  const data::ModelRules rules = data::ReadModelRules(model);
  ANYORDER_CHECK(rules.charsmap.size() <= model.size());
  ANYORDER_CHECK(data::NumPieces(model) <= model.size());
}

// Two sound files of weights, a [2, 3] tensor of zeros in each, and an index beside them.
class TwoFiles {
 public:
  TwoFiles() {
    for (const char* name : {"a", "b"}) {
      const auto layout = ValueOrDie(
          ckpt::LayOutSafetensors({{name, DType::kFloat32, {2, 3}}}, {{"format", "pt"}}));
      scratch_.Store(absl::StrCat("model-", name, ".safetensors"),
                     layout.header + std::string(layout.file_bytes - layout.header.size(), '\0'));
    }
  }
  absl::StatusOr<launcher::HfWeights> Open(absl::string_view index) const {
    scratch_.Store("model.safetensors.index.json", index);
    return launcher::HfWeights::Open(scratch_.path());
  }

 private:
  ScratchDirectory scratch_;
};

std::vector<std::string> WeightsIndexSeeds() {
  const std::string seed =
      "{\"metadata\": {\"total_size\": 48}, \"weight_map\": {\"a\": \"model-a.safetensors\", "
      "\"b\": \"model-b.safetensors\"}}";
  ANYORDER_CHECK_OK(TwoFiles().Open(seed).status());
  return {seed};
}

void UseWeightsIndex(absl::string_view text) {
  static const TwoFiles files;
  const auto weights = files.Open(text);
  if (!weights.ok()) return;
  RunConfig config;
  config.Resolve();
  const ModelConfig& model = config.model;
  // Models of other tensors: it has to say so.
  for (const launcher::HfFamily* const family : launcher::HfFamilies()) {
    if (!launcher::CheckFamily(*family, config).ok()) continue;
    const auto tensors = family->Tensors(model, ParameterLayout(model, 10));
    ANYORDER_CHECK(!weights->Check(*family, tensors).ok());
  }
}

const bool registered[] = {
    Register({"hf_config", ConfigSeeds, UseConfig}),
    Register({"spiece", VocabularySeeds, UseVocabulary}),
    Register({"weights_index", WeightsIndexSeeds, UseWeightsIndex}),
};

}  // namespace
}  // namespace anyorder::fuzz
