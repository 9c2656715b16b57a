// Which keys of [model] the config.json of each family can say: changed, they come back by a file
// that is written and read, or the export is refused by their name. A key that a family does not
// know is refused without a line here. The test asks, too, of which family an unchanged run is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/train/run/field_text.h"
#include "launcher/huggingface/hf_model.h"
#include "tests/launcher/huggingface/exchange_directory.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

std::set<std::string> Words(const std::string& text) {
  return absl::StrSplit(text, ' ', absl::SkipEmpty());
}

// By class. Sizes and LayerNorm's epsilon are apart: all can say them but for those named here.
const std::map<std::string, std::string> kSaid = {
    {"XLNetLMHeadModel",
     "ffn_dim layer_norm_epsilon activation untie_r clamp_len segments mem_len"},
    {"BertForMaskedLM",
     "ffn_dim layer_norm_epsilon activation max_positions segments num_segments"},
    {"RobertaForMaskedLM", "ffn_dim layer_norm_epsilon max_positions segments num_segments"},
    {"LongformerForMaskedLM",
     "ffn_dim layer_norm_epsilon max_positions segments num_segments attention_windows "
     "global_projections"},
    {"OpenAIGPTLMHeadModel", "layer_norm_epsilon activation max_positions"},
    {"GPT2LMHeadModel", "ffn_dim layer_norm_epsilon activation max_positions"},
    {"TransfoXLLMHeadModel",
     "ffn_dim layer_norm_epsilon head_dim untie_r clamp_len mem_len same_length softmax cutoffs "
     "div_val tie_projections projection_init_range"},
    {"LLaDAModelLM",
     "ffn_dim layer_norm_epsilon num_kv_heads rope_base attention_biases tie_embeddings"},
    {"LlamaForCausalLM",
     "ffn_dim layer_norm_epsilon num_kv_heads head_dim rope_base rope_scaling attention_biases "
     "ffn_biases tie_embeddings"},
    {"LlamaTwoStreamForCausalLM",
     "ffn_dim layer_norm_epsilon num_kv_heads rope_base rope_scaling attention_biases ffn_biases "
     "tie_embeddings ffn_residual"},
    {"Qwen2ForCausalLM",
     "ffn_dim layer_norm_epsilon num_kv_heads head_dim rope_base rope_scaling tie_embeddings"},
    {"Qwen3ForCausalLM",
     "ffn_dim layer_norm_epsilon num_kv_heads head_dim rope_base rope_scaling attention_biases "
     "tie_embeddings"},
    {"DreamModel",
     "ffn_dim layer_norm_epsilon num_kv_heads head_dim rope_base rope_scaling tie_embeddings"},
    {"MDLM", ""},
    {"BD3LM", ""}};

// Of parts that no run here has unless its family says them, but for the base of rotary positions.
const char* const kUnused =
    "untie_r max_positions rope_base rope_factor rope_low_freq_factor rope_high_freq_factor "
    "rope_original_positions position_buckets position_bias_max_distance num_segments "
    "tie_projections projection_init_range";

// What is written as another value of the same function.
const char* const kReplaced = "segments num_segments global_projections";

// A small run of the family.
RunConfig RunOf(const HfFamily& family) {
  const Json json = SmallConfig(family);
  const auto parsed = ParseHfConfig(json.dump(), "made");
  EXPECT_TRUE(parsed.ok() && parsed->family == &family) << parsed.status();
  RunConfig run;
  run.model = parsed->model;
  family.SetDefaults(*parsed, run);
  EXPECT_EQ(CheckFamily(family, run), absl::OkStatus());
  // What its own config.json says is read as the same network.
  RunConfig again = run;
  again.model =
      ParseHfConfig(HfConfigText(family, run, 300, DType::kFloat32, {}), "written").value().model;
  EXPECT_EQ(again.ToText(), run.ToText());
  return run;
}

// Other values of a field, as text.
template <typename T>
std::vector<std::string> OthersOf(const T& value) {
  std::vector<std::string> texts;
  if constexpr (std::is_same_v<T, bool>) texts = {value ? "false" : "true"};
  if constexpr (std::is_same_v<T, double>) texts = {absl::StrCat(value * 3)};
  if constexpr (std::is_same_v<T, int64_t>) texts = {"1", "2", "6", "8"};
  if constexpr (std::is_same_v<T, std::string>) texts = {"5, 9", "2:2", "2:4"};
  if constexpr (std::is_enum_v<T>)
    for (const auto& [other, name] : kEnumNames<T>) texts.push_back(name);
  const std::string now = field_text::Format(value);
  std::erase_if(texts, [&](const std::string& text) {
    return text == now || absl::StrCat("\"", text, "\"") == now;
  });
  return texts;
}

// What goes with a key.
void Follow(const std::string& key, ModelConfig& model) {
  if (key == "model_dim") model.num_heads = 2;
  if (key == "model_dim" || key == "num_heads") model.head_dim = model.model_dim / model.num_heads;
  if (key == "model_dim") model.ffn_dim = 4 * model.model_dim;
  if (key == "attention_biases") model.attention_output_bias = true;
  if (key == "softmax") model.cutoffs = model.adaptive() ? "4, 7" : "";
  if (key == "softmax") model.div_val = 1;
  if (key != "rope_scaling") return;
  model.rope_factor = 3.5;
  model.rope_low_freq_factor = 1.5;
  model.rope_high_freq_factor = 5.5;
  model.rope_original_positions = 77;
}

// Each valid run with another value of a key of [model], with the key.
std::vector<std::pair<std::string, RunConfig>> Changed(const RunConfig& run) {
  std::vector<std::pair<std::string, RunConfig>> changed;
  auto change = [&](const char* key, const auto& value, auto&&...) {
    for (const std::string& text : OthersOf(value)) {
      RunConfig other = run;
      auto set = [&](const char* name, auto& field, auto&&...) {
        if (name == std::string(key)) field_text::ParseWord(text, field);
      };
      ModelConfig::VisitFields(other.model, set);
      Follow(key, other.model);
      for (const bool output_bias : {other.model.attention_output_bias, false}) {
        other.model.attention_output_bias = output_bias;
        if (other.model.Validate().empty()) changed.emplace_back(key, other);
        if (key != std::string("attention_biases")) break;
      }
    }
  };
  ModelConfig::VisitFields(run.model, change);
  return changed;
}

// What an export computes by: "key = value" by key of [model].
std::map<std::string, std::string> FunctionOf(const RunConfig& run) {
  std::map<std::string, std::string> keys = {{"mem_len", absl::StrCat(run.model.mem_len)},
                                             {"attention_windows", run.model.attention_windows},
                                             {"same_length", EnumName(run.model.same_length)}};
  for (const std::string& line : FunctionLines(run)) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(absl::ByAnyChar(". "), 2));
    if (parts[0] == "model") keys[parts[1]] = parts[2];
  }
  return keys;
}

TEST(SaidKeysTest, EveryKeyComesBackOrIsRefused) {
  std::set<std::string> untried;
  for (const auto& [key, value] : FunctionOf(RunConfig())) untried.insert(key);
  const std::set<std::string> deciding = untried;
  for (const HfFamily* const family : HfFamilies()) {
    const std::string name = family->names().architecture;
    ASSERT_TRUE(kSaid.contains(name)) << name << ": say here what the family can say";
    std::set<std::string> said = Words(kSaid.at(name) + " num_layers model_dim num_heads");
    std::set<std::string> unused = Words(kUnused), missing = said;
    if (absl::StrContains(name, "LM") && kSaid.at(name).empty()) unused.erase("rope_base");
    for (const std::string& key : said) unused.erase(key);
    const RunConfig own = RunOf(*family);
    // RoBERTa's network is also BERT's, and Dream's is LLaDA's.
    const bool is_twin = family == &RobertaFamily() || family == &DreamFamily();
    EXPECT_EQ(&FamilyOfRun(own) == family, !is_twin) << name;
    for (const auto& [key, run] : Changed(own)) {
      if (deciding.count(key) == 0) continue;
      SCOPED_TRACE(absl::StrCat(name, " ", key, "\n", run.ToText()));
      const absl::Status status = CheckFamily(*family, run);
      if (unused.count(key) == 0) untried.erase(key);
      if (unused.count(key) != 0) {
        EXPECT_EQ(status, absl::OkStatus());
      } else if (said.count(key) == 0) {
        EXPECT_THAT(status, Says(absl::StrCat("model.", key, " is ")));
      } else if (status.ok()) {
        missing.erase(key);
        const std::string text = HfConfigText(*family, run, 300, DType::kFloat32, {});
        const auto read = ParseHfConfig(text, "written").value();
        RunConfig again = run;
        again.model = read.model;
        if (read.gelu_is_open) again.model.activation = run.model.activation;
        std::map<std::string, std::string> came = FunctionOf(again), went = FunctionOf(run);
        for (const std::string& apart : unused) went[apart] = came[apart];
        for (const std::string& apart : Words(kReplaced)) went[apart] = came[apart];
        EXPECT_EQ(came, went);
      }
    }
    EXPECT_THAT(missing, ::testing::IsEmpty()) << name << " cannot say them";
  }
  // These need another key, and belong to it.
  for (const std::string& key :
       Words("rope_factor rope_low_freq_factor rope_high_freq_factor rope_original_positions "
             "position_buckets position_bias_max_distance"))
    untried.erase(key);
  EXPECT_THAT(untried, ::testing::IsEmpty());
}

// The file of an imported model says what the run's weights are, or is not written.
TEST(SaidKeysTest, AFileThatSaysAnotherFunctionIsRefused) {
  const RunConfig run = RunOf(Qwen2Family());
  RunConfig other = run;
  other.model.rope_base = 7;
  other.model.num_kv_heads = 2;
  const auto read =
      ParseHfConfig(HfConfigText(Qwen2Family(), other, 30, DType::kFloat32, {}), "written").value();
  EXPECT_EQ(CheckSays(read, other, /*trained=*/true), absl::OkStatus());
  EXPECT_THAT(CheckSays(read, run, /*trained=*/true),
              Says("model.num_kv_heads is 0, not 2; ", "model.rope_base is 1e+04, not 7.0; "));
}

// Windows that training has widened are written, and stay as they were said where they are the
// same.
TEST(SaidKeysTest, WindowsOfAnImportedModelAreThoseOfTheRun) {
  RunConfig run = RunOf(LongformerFamily());
  const std::string original = R"({"model_type": "longformer", "attention_window": 512})";
  const auto window = [&](bool trained) {
    const std::string text =
        UpdatedHfConfigText(LongformerFamily(), original, run, 30, std::nullopt, trained);
    return Json::parse(text)["attention_window"];
  };
  EXPECT_EQ(window(/*trained=*/true), 512);
  run.model.attention_windows = "3:3; 4:4";
  EXPECT_EQ(window(/*trained=*/true), Json({6, 8}));
  EXPECT_EQ(window(/*trained=*/false), 512);
}

}  // namespace
}  // namespace anyorder::launcher
