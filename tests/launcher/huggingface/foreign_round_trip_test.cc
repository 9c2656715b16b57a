// Models of Llama's kind and diffusion transformers: what comes in by `anyorder import` goes out by
// `anyorder export` bit for bit, and after training stored as it was. tests/parity/llama_parity.py
// compares their numbers with other implementations.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "launcher/huggingface/float16.h"
#include "launcher/huggingface/hf_model.h"
#include "tests/core/train/state/saved_run.h"
#include "tests/launcher/huggingface/exchange_directory.h"
#include "tests/launcher/huggingface/foreign_models.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

using enum Storing;

const ForeignShape kShapes[] = {
    {.type = "llama"},
    {.type = "llama", .key_heads = 2, .storing = kTied, .dtype = DType::kBFloat16},
    {.type = "llama", .key_heads = 1, .storing = kTiedStoredTwice, .dtype = DType::kFloat16},
    {.type = "llama", .attention_bias = true, .mlp_bias = true, .has_buffers = true},
    {.type = "llama", .layers = 3, .head_dim = 6},
    // A3
    {.type = "llama", .is_two_stream = true},
    {.type = "llama",
     .layers = 3,
     .key_heads = 2,
     .storing = kTied,
     .is_two_stream = true,
     .dtype = DType::kBFloat16},
    {.type = "llama",
     .attention_bias = true,
     .mlp_bias = true,
     .storing = kTiedStoredTwice,
     .is_two_stream = true},
    {.type = "qwen2", .storing = kTied},
    {.type = "qwen2", .key_heads = 2, .dtype = DType::kBFloat16},
    {.type = "qwen2", .layers = 1, .storing = kTiedStoredTwice, .has_buffers = true},
    {.type = "qwen3", .key_heads = 2, .head_dim = 8},
    {.type = "qwen3",
     .heads = 2,
     .key_heads = 1,
     .head_dim = 16,
     .storing = kTied,
     .dtype = DType::kBFloat16},
    {.type = "qwen3", .attention_bias = true},
    {.type = "Dream"},
    {.type = "Dream", .key_heads = 1, .dtype = DType::kBFloat16},
    {.type = "llada"},
    {.type = "llada", .layers = 3, .dtype = DType::kBFloat16},
    {.type = "llada", .key_heads = 2, .attention_bias = true, .storing = kTied},
    {.type = "mdlm"},
    {.type = "mdlm", .layers = 3, .heads = 2, .dtype = DType::kBFloat16},
    {.type = "bd3lm"},
    {.type = "bd3lm", .is_modulated = false},
};

// Step 7 of the run.
absl::Status SaveForeign(const std::string& run, const RunConfig& config,
                         const ParameterLayout& layout, const std::vector<float>& values) {
  // Imported weights have no tokenizer.
  return SaveRun(run, config, layout, values, [](const std::string& text) {
    Json json = Json::parse(text);
    json["tokenizer_digest"] = "";
    return json.dump();
  });
}

class ForeignRoundTripTest : public ::testing::TestWithParam<ForeignShape>,
                             protected ExchangeDirectory {
 protected:
  // With random weights.
  void Train() {
    const RunConfig config = ConfigOf();
    const ParameterLayout layout(config.model, GetParam().vocab);
    std::mt19937 random(17);
    std::normal_distribution<float> draw(0, 0.3f);
    std::vector<float> values(static_cast<size_t>(layout.num_elements()));
    for (float& value : values) value = draw(random);
    ASSERT_EQ(SaveForeign(At("run"), config, layout, values), absl::OkStatus());
  }
};

TEST_P(ForeignRoundTripTest, AnUntouchedModelComesBackBitForBit) {
  const ForeignModel model(GetParam());
  for (const int num_files : {1, 3}) {
    SCOPED_TRACE(num_files);
    Remove({"hf", "run", "back"});
    model.Write(At("hf"), num_files);
    ASSERT_EQ(ImportAs("run"), absl::OkStatus());
    ExpectSameInAnyPieces(ConfigOf());
    ASSERT_EQ(Export("back", {.max_shard_bytes = num_files == 1 ? 0 : 3000}), absl::OkStatus());
    ExpectIs("back", model.tensors);
    EXPECT_EQ(fs::exists(At("back/model.safetensors.index.json")), num_files > 1);
    EXPECT_EQ(JsonOf("back/config.json"), model.config);
    for (const std::string& name : ForeignFiles()) {
      const auto file = ReadWholeFile(At("back/" + name), kMaxTextBytes);
      EXPECT_TRUE(file.ok() && *file == *ReadWholeFile(At("hf/" + name), kMaxTextBytes)) << name;
    }
  }
}

TEST_P(ForeignRoundTripTest, ATrainedModelIsStoredAsItWasUnlessATypeIsAskedFor) {
  const ForeignShape& shape = GetParam();
  ForeignModel(shape).Write(At("hf"));
  ASSERT_EQ(ImportAs("run"), absl::OkStatus());
  Train();
  ASSERT_EQ(Export("wide", {.dtype = DType::kFloat32}), absl::OkStatus());
  for (const auto& [name, bytes] : TensorsIn("wide")) EXPECT_EQ(bytes.substr(0, 4), "F32[") << name;
  ASSERT_EQ(Export("back"), absl::OkStatus());
  auto before = TensorsIn("hf"), after = TensorsIn("back");
  if (!shape.is_modulated) {
    EXPECT_EQ(after.size(), before.size() + 4 + 2 * (shape.layers + 1)) << "biases are not there";
    EXPECT_TRUE(JsonOf("back/config.json")["adaln"]);
  }
  for (const auto& [name, bytes] : before) {
    ASSERT_EQ(after.count(name), 1u) << name;
    EXPECT_EQ(after[name].substr(0, 5), bytes.substr(0, 5)) << name << " has another type";
  }
  if (shape.storing == Storing::kTiedStoredTwice) {
    EXPECT_EQ(after["lm_head.weight"], after["model.embed_tokens.weight"]);
  }
  // Buffers are no weights.
  for (const char* name : {"model.layers.0.self_attn.rotary_emb.inv_freq", "sampling_eps_max",
                           "backbone.rotary_emb.inv_freq"})
    EXPECT_EQ(after[name], before[name]) << name;
  // What the parameters were is what another import makes of it: in fp32 exactly.
  if (shape.dtype != DType::kFloat32) return;
  ASSERT_EQ(ImportAs("again", "back"), absl::OkStatus());
  ASSERT_EQ(ExportOurs("ours"), absl::OkStatus());
  ASSERT_EQ(ExportOurs("theirs", "again"), absl::OkStatus());
  auto ours = TensorsIn("ours"), theirs = TensorsIn("theirs");
  if (!shape.is_two_stream) {
    ours.erase("transformer.mask_emb");  // of query streams, which such a model lacks
    theirs.erase("transformer.mask_emb");
  }
  EXPECT_TRUE(ours == theirs);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ForeignRoundTripTest, ::testing::ValuesIn(kShapes),
                         [](const auto& info) {
                           return absl::StrCat(info.param.type, "_", info.index);
                         });

class ForeignImportTest : public ::testing::Test, protected ExchangeDirectory {
 protected:
  void ImportAndName(const ForeignModel& model) {
    model.Write(At("hf"));
    ASSERT_EQ(ImportAs("run"), absl::OkStatus());
    ASSERT_EQ(ExportOurs("ours"), absl::OkStatus());
  }
  std::vector<float> Ours(const std::string& name) const {
    return ValuesIn("ours", "transformer.layer.1." + name);
  }
};

TEST_F(ForeignImportTest, ValuesComeToTheirPlaces) {
  ImportAndName(ForeignModel({.type = "llada", .key_heads = 2}));
  const std::string block = "model.transformer.blocks.1.";
  EXPECT_EQ(Ours("rel_attn.q"), Transposed(ValuesIn("hf", block + "q_proj.weight"), 16));
  EXPECT_EQ(Ours("rel_attn.k"), Transposed(ValuesIn("hf", block + "k_proj.weight"), 8));
  EXPECT_EQ(Ours("rel_attn.v"), Transposed(ValuesIn("hf", block + "v_proj.weight"), 8));
  EXPECT_EQ(Ours("rel_attn.o"), ValuesIn("hf", block + "attn_out.weight"));
  EXPECT_EQ(Ours("ff.gate.weight"), ValuesIn("hf", block + "ff_proj.weight"));
  EXPECT_EQ(Ours("ff.layer_1.weight"), ValuesIn("hf", block + "up_proj.weight"));
  EXPECT_EQ(Ours("ff.layer_2.weight"), ValuesIn("hf", block + "ff_out.weight"));
  EXPECT_EQ(Ours("rel_attn.layer_norm.weight"), ValuesIn("hf", block + "attn_norm.weight"));
  EXPECT_EQ(Ours("ff.layer_norm.weight"), ValuesIn("hf", block + "ff_norm.weight"));
  EXPECT_EQ(ValuesIn("ours", "lm_loss.weight"), ValuesIn("hf", "model.transformer.ff_out.weight"));
}

TEST_F(ForeignImportTest, TheQueryEmbeddingOfA3IsOurMaskEmbedding) {
  ImportAndName(ForeignModel({.type = "llama", .is_two_stream = true}));
  EXPECT_EQ(ValuesIn("ours", "transformer.mask_emb"), ValuesIn("hf", "model.query_embed"));
}

// How A3's training begins: Llama's weights with A3's layers, the query embedding new.
TEST_F(ForeignImportTest, ALlamaThatIsTrainedAsA3GoesOutAsA3) {
  const ForeignModel llama({.type = "llama", .key_heads = 2});
  llama.Write(At("hf"));
  for (const char* const form : {"normed", "input"}) {
    SCOPED_TRACE(form);
    Remove({"run", "back", "again"});
    ASSERT_EQ(
        ImportAs("run", "hf", {"objective.name=a3", absl::StrCat("model.ffn_residual=", form)}),
        absl::OkStatus());
    ASSERT_EQ(Export("back"), absl::OkStatus());
    Json expected = llama.config;
    expected["architectures"] = {"LlamaTwoStreamForCausalLM"};
    if (form == std::string("input")) expected["ffn_residual"] = "input";
    EXPECT_EQ(JsonOf("back/config.json"), expected);
    ExpectHas("back", llama.tensors);
    EXPECT_EQ(ValuesIn("back", "model.query_embed").size(), 16u);
    // It comes in again as what it went out, unless that is contradicted.
    ASSERT_EQ(ImportAs("again", "back"), absl::OkStatus());
    const RunConfig again = ConfigOf("again");
    EXPECT_EQ(again.objective.name, "a3");
    EXPECT_EQ(again.model.ffn_residual == FfnResidual::kNormed, form == std::string("normed"));
  }
  EXPECT_THAT(ImportAs("third", "back", {"model.ffn_residual=normed"}),
              Exits(kExitUsage, "have model.ffn_residual = \"input\""));
}

// The modulation at noise level 0 in long double, whose products are exact: what is left is one
// rounding to fp32 and what the sums of the import's doubles do, far less.
class Modulation {
 public:
  using Read = std::function<std::vector<float>(const std::string&)>;
  explicit Modulation(Read read) : read_(std::move(read)) {
    std::vector<long double> level(256, 0.0L);
    std::fill_n(level.begin(), 128, 1.0L);
    level_ = Activated(
        Apply("backbone.sigma_map.mlp.2.", Activated(Apply("backbone.sigma_map.mlp.0.", level))));
  }
  std::vector<long double> Of(const std::string& at) const {
    return Apply(at + "adaLN_modulation.", level_);
  }

 private:
  std::vector<long double> Apply(const std::string& name, const std::vector<long double>& x) const {
    const std::vector<float> weight = read_(name + "weight"), bias = read_(name + "bias");
    std::vector<long double> y(bias.begin(), bias.end());
    for (size_t i = 0; i < y.size(); ++i)
      for (size_t j = 0; j < x.size(); ++j) y[i] += weight[i * x.size() + j] * x[j];
    return y;
  }
  static std::vector<long double> Activated(std::vector<long double> values) {
    for (long double& value : values) value /= 1 + std::exp(-value);
    return values;
  }

  const Read read_;
  std::vector<long double> level_;
};

TEST_F(ForeignImportTest, ModulationOfADiffusionTransformerBecomesPartOfItsWeights) {
  ImportAndName(ForeignModel({.type = "mdlm"}));
  const auto theirs = [this](const std::string& name) { return ValuesIn("hf", name); };
  const Modulation modulation(theirs);
  const std::vector<long double> block = modulation.Of("backbone.blocks.1.");
  const std::vector<long double> last = modulation.Of("backbone.output_layer.");
  constexpr size_t kDim = 16;
  // `ours` is `before`, if there is any, times row r's factor at `part`, plus `addend`.
  const auto expect = [&](const std::vector<float>& ours, const std::vector<float>& before,
                          const std::vector<long double>& values, size_t part, double addend) {
    const size_t columns = ours.size() / kDim;
    for (size_t i = 0; i < ours.size(); ++i) {
      const long double factor = values[part * kDim + i / columns] + addend;
      const long double expected = before.empty() ? factor : factor * before[i];
      EXPECT_NEAR(ours[i], static_cast<double>(expected), 6.1e-8 * std::fabs(expected) + 1e-12);
    }
  };
  const std::string at = "backbone.blocks.1.";
  expect(Ours("rel_attn.layer_norm.bias"), {}, block, 0, 0);
  expect(Ours("rel_attn.layer_norm.weight"), theirs(at + "norm1.weight"), block, 1, 1);
  expect(Ours("rel_attn.o"), theirs(at + "attn_out.weight"), block, 2, 0);
  expect(Ours("ff.layer_norm.bias"), {}, block, 3, 0);
  expect(Ours("ff.layer_norm.weight"), theirs(at + "norm2.weight"), block, 4, 1);
  expect(Ours("ff.layer_2.weight"), theirs(at + "mlp.2.weight"), block, 5, 0);
  expect(Ours("ff.layer_2.bias"), theirs(at + "mlp.2.bias"), block, 5, 0);
  const std::string final_norm = "transformer.layer_norm.";
  expect(ValuesIn("ours", final_norm + "bias"), {}, last, 0, 0);
  expect(ValuesIn("ours", final_norm + "weight"), theirs("backbone.output_layer.norm_final.weight"),
         last, 1, 1);
  // Not touched: q, k and v lie below one another.
  const std::vector<float> all = theirs(at + "attn_qkv.weight");
  const size_t third = kDim * kDim;
  for (const auto& [name, begin] : {std::pair("q", 0 * third), {"k", third}, {"v", 2 * third}}) {
    EXPECT_EQ(Ours(absl::StrCat("rel_attn.", name)),
              Transposed({all.begin() + begin, all.begin() + begin + third}, kDim));
  }
  EXPECT_EQ(Ours("ff.layer_1.bias"), theirs(at + "mlp.0.bias"));
}

TEST_F(ForeignImportTest, AValueThatFp16CannotHoldIsNamed) {
  const ForeignShape shape = {.type = "llama", .dtype = DType::kFloat16};
  ForeignModel(shape).Write(At("hf"));
  ASSERT_EQ(ImportAs("run"), absl::OkStatus());
  const RunConfig config = ConfigOf();
  const ParameterLayout layout(config.model, shape.vocab);
  std::vector<float> values(static_cast<size_t>(layout.num_elements()), 65519.0f);
  values[layout.Find("transformer.layer_norm.weight").offset + 3] = 65520.0f;
  ASSERT_EQ(SaveForeign(At("run"), config, layout, values), absl::OkStatus());
  EXPECT_THAT(Export("back"),
              Exits(kExitData, "tensor 'model.norm.weight' has come to hold 65520, which F16"));
  EXPECT_EQ(Export("back", {.dtype = DType::kBFloat16}), absl::OkStatus());
}

TEST(Float16Test, IsTheCompilersOwn) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const auto value = static_cast<float>(std::bit_cast<_Float16>(half));
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(std::bit_cast<uint32_t>(FromFloat16(half)), std::bit_cast<uint32_t>(value)) << bits;
    EXPECT_EQ(ToFloat16(value), half);
    // Half of a step further, and its neighbours: ties go to even.
    const auto next = static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(half + 1)));
    const float middle = std::isfinite(next) ? value + (next - value) / 2 : value;
    for (const float near : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      EXPECT_EQ(ToFloat16(near), std::bit_cast<uint16_t>(static_cast<_Float16>(near))) << near;
    }
  }
}

}  // namespace
}  // namespace anyorder::launcher
