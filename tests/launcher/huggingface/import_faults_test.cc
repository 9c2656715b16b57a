// One spoilt thing a case: what `anyorder import` says about it, also of a checkpoint whose table
// of parameters lies; it writes nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
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

constexpr char kQuery[] = "transformer.layer.1.rel_attn.q";

TEST(ImportFaultTest, OtherFunctionsAreRefused) {
  ExpectPatchesRefused(
      HfDirectory().config,
      {{R"({"n_layer": null})", "'n_layer' is missing"},
       {R"({"vocab_size": null})", "'vocab_size' is missing"},
       {R"({"d_model": "8"})", "'d_model' is \"8\" but must be a whole number"},
       {R"({"n_head": 2.5})", "'n_head' is 2.5 but must be a whole number from 1"},
       {R"({"d_inner": -1})", "'d_inner' is -1"},
       {R"({"n_layer": 1e18})", "'n_layer' is 1e+18"},
       {R"({"mem_len": 9223372036854775808})", "'mem_len' is 9223372036854775808"},
       {R"({"untie_r": 1})", "'untie_r' is 1 but must be true or false"},
       {R"({"dropout": "a lot"})", "'dropout' is \"a lot\" but must be a number"},
       {R"({"d_head": 3})", "'d_head' is 3, not 4: 'n_head' of them must be 'd_model'"},
       {R"({"n_head": 3})", "'n_head' is 3 but must divide 'd_model' = 8"},
       {R"({"n_token": 15})", "'n_token' is 15 but 'vocab_size' is 14"},
       {R"({"same_length": true})", "'same_length' is true"},
       {R"({"tie_word_embeddings": false})", "'tie_word_embeddings' is false"},
       {R"({"model_type": "t5"})", "'model_type' is \"t5\", not \"xlnet\", \"bert\""},
       {R"({"model_type": null})", "'model_type' is \"(none)\""},
       {R"({"ff_activation": "silu"})", "'ff_activation' is \"silu\" but must be \"gelu_new\""}});
}

class ModelFaultTest : public ::testing::Test, protected ExchangeDirectory {};

TEST_F(ModelFaultTest, IsToldInOneLineAndNothingIsWritten) {
  struct Fault {
    std::function<void(HfDirectory&)> spoil;
    std::vector<std::string> parts;  // of the message
  };
  const auto patch = [](const char* text) {
    return [text](HfDirectory& model) { model.config.merge_patch(Json::parse(text)); };
  };
  const auto with_value = [](float value) {
    return [value](HfDirectory& model) {
      model.Tensor(kQuery).bytes.replace(4 * 33, 4, BytesOf(std::vector<float>{value}));
    };
  };
  const Fault faults[] = {
      {patch(R"({"attn_type": "uni"})"), {"'attn_type' is \"uni\"", "set it to \"bi\""}},
      // Sizes that are fine by themselves, but not those of the weights.
      {patch(R"({"n_layer": 3})"),
       {"model.safetensors", "no tensor 'transformer.layer.2.rel_attn.q' [8, 2, 4]"}},
      {patch(R"({"n_layer": 1})"), {"model.safetensors", "'transformer.layer.1.", "is unknown"}},
      {patch(R"({"d_inner": 16})"),
       {"'transformer.layer.0.ff.layer_1.weight' is [12, 8] but config.json makes it [16, 8]"}},
      {patch(R"({"vocab_size": 13})"),
       {"'transformer.word_embedding.weight' is [14, 8] but config.json makes it [13, 8]"}},
      {[](HfDirectory& model) { model.Remove(kQuery); },
       {"model.safetensors", "no tensor 'transformer.layer.1.rel_attn.q' [8, 2, 4]"}},
      {[](HfDirectory& model) { model.Remove("lm_loss.bias"); },
       {"no tensor 'lm_loss.bias' [14]", "save an XLNetLMHeadModel"}},
      {[](HfDirectory& model) {
         for (HfTensor& tensor : model.tensors)
           if (tensor.entry.name.rfind("transformer.", 0) == 0) tensor.entry.name.erase(0, 12);
       },
       {"without 'transformer.': it is an XLNetModel"}},
      {[](HfDirectory& model) { model.Add("transformer.adapter", {3}, 0); },
       {"model.safetensors", "'transformer.adapter' [3] is unknown"}},
      {[](HfDirectory& model) {
         model.Tensor(kQuery).entry.shape = Shape{8, 4, 2};
       },
       {"'transformer.layer.1.rel_attn.q' is [8, 4, 2] but config.json makes it [8, 2, 4]"}},
      {[](HfDirectory& model) { model.Tensor(kQuery).entry.dtype = DType::kInt32; },
       {"'transformer.layer.1.rel_attn.q' is I32 but must be F32, F16 or BF16"}},
      {with_value(NAN), {"'transformer.layer.1.rel_attn.q' holds nan as element 33"}},
      {with_value(-INFINITY), {"'transformer.layer.1.rel_attn.q' holds -inf as element 33"}},
      {[](HfDirectory& model) { model.pieces.pop_back(); },
       {"spiece.model", "has 13 pieces but config.json says 'vocab_size' 14"}},
      {[](HfDirectory& model) { std::swap(model.pieces[3], model.pieces[4]); },
       {"spiece.model", "<cls> has id 4, not 3", "<sep> has id 3, not 4"}},
      {[](HfDirectory& model) { model.pieces[6].first = "[MASK]"; }, {"<mask> is missing"}},
      {[](HfDirectory& model) { model.pieces[7].second = 1; },
       {"<eod> is not a control piece, text could produce it"}},
  };
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.parts.back());
    HfDirectory model;
    fault.spoil(model);
    ExpectModelRefused(model, fault.parts);
  }
}

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
  const auto set = [](const char* place, const Json& value) {
    return [=](Json& table) { table[Json::json_pointer(place)] = value; };
  };
  const std::function<void(Json&)> faults[] = {
      set("/0/shape/0", -8),
      set("/0/shape/0", 0),
      set("/0/shape/0", std::numeric_limits<int64_t>::max()),
      set("/0/shape/0", std::numeric_limits<uint64_t>::max()),
      // A product of 2^64, which is 0, and one more parameter than there is.
      set("/1/shape", {int64_t{1} << 32, int64_t{1} << 32}),
      [](Json& table) { table.back()["shape"][0] = table.back()["shape"][0].get<int64_t>() + 1; },
      [](Json& table) { table.erase(table.size() - 1); },
      set("/1/offset", -1),
      set("/1/shape", Json::array()),
      set("/1/shape", {1, 1, 1, 8}),
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
