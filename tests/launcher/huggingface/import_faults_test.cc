// One spoilt thing a case: what `anyorder import` says about it, also of a checkpoint whose table
// of parameters lies; it writes nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/network/tensors/parameters.h"
#include "tests/core/train/state/saved_run.h"
#include "tests/launcher/huggingface/exchange_directory.h"
#include "tests/testing/with_keys.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::Not;

constexpr char kQuery[] = "transformer.layer.1.rel_attn.q";

struct Fault {
  const char* name;
  std::function<void(HfDirectory&)> spoil;
  std::vector<std::string> parts;  // of the message
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

std::vector<Fault> ConfigFaults() {
  const auto set = [](const char* key, const Json& value) {
    return [key, value](HfDirectory& model) { model.config[key] = value; };
  };
  const auto remove = [](const char* key) {
    return [key](HfDirectory& model) { model.config.erase(key); };
  };
  return {
      {"MissingSize", remove("n_layer"), {"config.json", "'n_layer' is missing"}},
      {"MissingVocabulary", remove("vocab_size"), {"config.json", "'vocab_size' is missing"}},
      {"WrongType",
       set("d_model", "8"),
       {"config.json", "'d_model' is \"8\" but must be a whole number"}},
      {"NotWhole", set("n_head", 2.5), {"'n_head' is 2.5 but must be a whole number from 1"}},
      {"Negative", set("d_inner", -1), {"'d_inner' is -1"}},
      {"Enormous", set("n_layer", 1e18), {"'n_layer' is 1e+18"}},
      {"Unsigned", set("mem_len", uint64_t{1} << 63), {"'mem_len' is 9223372036854775808"}},
      {"NotABool", set("untie_r", 1), {"'untie_r' is 1 but must be true or false"}},
      {"NotANumber", set("dropout", "a lot"), {"'dropout' is \"a lot\" but must be a number"}},
      {"HeadsDoNotFit",
       set("d_head", 3),
       {"'d_head' is 3, not 4: 'n_head' of them must be 'd_model'"}},
      {"HeadsDoNotDivide", set("n_head", 3), {"'n_head' is 3 but must divide 'd_model' = 8"}},
      {"TwoVocabularies", set("n_token", 15), {"'n_token' is 15 but 'vocab_size' is 14"}},
      {"OneWayAttention", set("attn_type", "uni"), {"'attn_type' is \"uni\"", "set it to \"bi\""}},
      {"SameLength", set("same_length", true), {"'same_length' is true"}},
      {"Untied", set("tie_word_embeddings", false), {"'tie_word_embeddings' is false"}},
      {"OtherModel", set("model_type", "t5"), {"'model_type' is \"t5\", not \"xlnet\", \"bert\""}},
      {"NoModelType", remove("model_type"), {"'model_type' is \"(none)\""}},
      {"OtherActivation",
       set("ff_activation", "silu"),
       {"'ff_activation' is \"silu\" but must be \"gelu_new\""}},
      // Sizes that are fine by themselves, but not those of the weights.
      {"MoreLayers",
       set("n_layer", 3),
       {"model.safetensors", "no tensor 'transformer.layer.2.rel_attn.q' [8, 2, 4]"}},
      {"FewerLayers",
       set("n_layer", 1),
       {"model.safetensors", "'transformer.layer.1.", "is unknown"}},
      {"WiderFeedForward",
       set("d_inner", 16),
       {"'transformer.layer.0.ff.layer_1.weight' is [12, 8] but config.json makes it [16, 8]"}},
      {"OtherVocabularySize",
       set("vocab_size", 13),
       {"'transformer.word_embedding.weight' is [14, 8] but config.json makes it [13, 8]"}},
  };
}

std::vector<Fault> TensorFaults() {
  const auto with_value = [](float value) {
    return [value](HfDirectory& model) {
      model.Tensor(kQuery).bytes.replace(4 * 33, 4, BytesOf(std::vector<float>{value}));
    };
  };
  return {
      {"MissingTensor",
       [](HfDirectory& model) { model.Remove(kQuery); },
       {"model.safetensors", "no tensor 'transformer.layer.1.rel_attn.q' [8, 2, 4]"}},
      {"MissingOutputBias",
       [](HfDirectory& model) { model.Remove("lm_loss.bias"); },
       {"no tensor 'lm_loss.bias' [14]", "save an XLNetLMHeadModel"}},
      {"BareModel",
       [](HfDirectory& model) {
         for (HfTensor& tensor : model.tensors) {
           if (tensor.entry.name.rfind("transformer.", 0) == 0) tensor.entry.name.erase(0, 12);
         }
       },
       {"without 'transformer.': it is an XLNetModel"}},
      {"UnknownTensor",
       [](HfDirectory& model) { model.Add("transformer.adapter", {3}, 0); },
       {"model.safetensors", "'transformer.adapter' [3] is unknown"}},
      {"WrongShape",
       [](HfDirectory& model) {
         model.Tensor(kQuery).entry.shape = {8, 4, 2};
       },
       {"'transformer.layer.1.rel_attn.q' is [8, 4, 2] but config.json makes it [8, 2, 4]"}},
      {"WrongType",
       [](HfDirectory& model) { model.Tensor(kQuery).entry.dtype = DType::kInt32; },
       {"'transformer.layer.1.rel_attn.q' is I32 but must be F32, F16 or BF16"}},
      {"NotANumber",
       with_value(std::numeric_limits<float>::quiet_NaN()),
       {"'transformer.layer.1.rel_attn.q' holds nan as element 33"}},
      {"Infinity",
       with_value(-std::numeric_limits<float>::infinity()),
       {"'transformer.layer.1.rel_attn.q' holds -inf as element 33"}},
      {"FewerPieces",
       [](HfDirectory& model) { model.pieces.pop_back(); },
       {"spiece.model", "has 13 pieces but config.json says 'vocab_size' 14"}},
      {"SpecialPiecesMoved",
       [](HfDirectory& model) { std::swap(model.pieces[3], model.pieces[4]); },
       {"spiece.model", "<cls> has id 4, not 3", "<sep> has id 3, not 4"}},
      {"SpecialPieceMissing",
       [](HfDirectory& model) { model.pieces[6].first = "[MASK]"; },
       {"<mask> is missing"}},
      {"SpecialPieceOfAnotherKind",
       [](HfDirectory& model) { model.pieces[7].second = 1; },
       {"<eod> is not a control piece, text could produce it"}},
  };
}

class ImportFaultTest : public ::testing::TestWithParam<Fault>, protected ExchangeDirectory {};

TEST_P(ImportFaultTest, IsToldInOneLineAndNothingIsWritten) {
  HfDirectory model;
  GetParam().spoil(model);
  model.Write(At("hf"));
  const absl::Status status = ImportAs("run");
  for (const std::string& part : GetParam().parts) EXPECT_THAT(status, Exits(kExitData, part));
  EXPECT_THAT(status, Not(Says("\n")));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1)
      << "something was left behind";
}

const auto kNameOf = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Config, ImportFaultTest, ::testing::ValuesIn(ConfigFaults()), kNameOf);
INSTANTIATE_TEST_SUITE_P(Tensor, ImportFaultTest, ::testing::ValuesIn(TensorFaults()), kNameOf);

class ImportRunTest : public ::testing::Test, protected ExchangeDirectory {
 protected:
  ImportRunTest() {
    config_.model = testing::With(
        ModelConfig(),
        "num_layers = 1, model_dim = 8, num_heads = 2, head_dim = 4, ffn_dim = 12, mem_len = 0");
    config_.data.shards = "/shards";
    config_.Resolve();
    options_.input = At("old");
    options_.output = At("new");
  }

  // A run whose checkpoint has the table that `spoil` leaves, and then its import.
  absl::Status Import(const std::function<void(Json& parameters)>& spoil) {
    Remove({"old", "new"});
    fs::create_directories(options_.input);
    std::ofstream(RunDirectory(options_.input).config) << config_.ToText();
    const ParameterLayout layout(config_.model, 20);
    const std::vector<float> values(static_cast<size_t>(layout.num_elements()), 0.5f);
    EXPECT_EQ(SaveRun(options_.input, config_, layout, values,
                      [&](const std::string& metadata) {
                        Json json = Json::parse(metadata);
                        spoil(json["parameters"]);
                        return json.dump();
                      }),
              absl::OkStatus());
    return ImportRun(options_);
  }

  RunConfig config_;
  ImportRunOptions options_;
};

TEST_F(ImportRunTest, ATrueTableIsTaken) {
  EXPECT_EQ(Import([](Json&) {}), absl::OkStatus());
}

TEST_F(ImportRunTest, SizesThatTheWeightsCannotHaveAreRefused) {
  const std::function<void(Json&)> faults[] = {
      [](Json& table) { table[0]["shape"][0] = -8; },
      [](Json& table) { table[0]["shape"][0] = 0; },
      [](Json& table) { table[0]["shape"][0] = std::numeric_limits<int64_t>::max(); },
      [](Json& table) { table[0]["shape"][0] = std::numeric_limits<uint64_t>::max(); },
      // A product of 2^64, which is 0, and one more parameter than there is.
      [](Json& table) {
        table[1]["shape"] = {int64_t{1} << 32, int64_t{1} << 32};
      },
      [](Json& table) { table.back()["shape"][0] = table.back()["shape"][0].get<int64_t>() + 1; },
      [](Json& table) { table.erase(table.size() - 1); },
      [](Json& table) { table[1]["offset"] = -1; },
      [](Json& table) { table[1]["shape"] = Json::array(); },
      [](Json& table) {
        table[1]["shape"] = {1, 1, 1, 8};
      },
  };
  for (size_t i = 0; i < std::size(faults); ++i) {
    SCOPED_TRACE(i);
    EXPECT_THAT(Import(faults[i]),
                Exits(kExitData, "no table of parameters that can be read and fits its weights"));
    EXPECT_FALSE(fs::exists(options_.output));
  }
}

}  // namespace
}  // namespace anyorder::launcher
