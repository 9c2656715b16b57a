// Import and export of models that are not XLNet's: which tensor becomes which parameter, what may
// be missing, and what is refused. tests/parity/families_parity.py and causal_parity.py compare
// their numbers with transformers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/base/digest.h"
#include "core/base/status.h"
#include "core/objective/objective_traits.h"
#include "data/dataset/dataset_index.h"
#include "launcher/huggingface/hf_model.h"
#include "launcher/run/imported_run.h"
#include "tests/launcher/huggingface/exchange_directory.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kHiddenSize = 8;
constexpr char kQueryTensor[] = "encoder.layer.1.attention.self.query.weight";
constexpr char kPositionTensor[] = "embeddings.position_embeddings.weight";

Json FamilyConfig(const std::string& type) {
  Json json = {{"model_type", type},
               {"vocab_size", 14},
               {"hidden_size", kHiddenSize},
               {"num_hidden_layers", 2},
               {"num_attention_heads", 2},
               {"intermediate_size", 12},
               {"hidden_act", "gelu"},
               {"max_position_embeddings", 20},
               {"type_vocab_size", type == "bert" ? 2 : 1},
               {"pad_token_id", 1},
               {"mine", {{"key", 3}}}};
  if (type == "longformer") json["attention_window"] = {4, 6};
  return json;
}

class FamilyTest : public ::testing::TestWithParam<const char*>, protected MadeModelDirectory {
 protected:
  void Make(const std::string& type) {
    MadeModelDirectory::Make(FamilyConfig(type));
    prefix_ = type + ".";
  }
  // Without a SentencePiece vocabulary.
  absl::Status ImportBare(const std::string& tokenizer_json = "") {
    model_.Write(At("hf"));
    Remove({"hf/spiece.model"});
    if (!tokenizer_json.empty()) WriteFile(At("hf/tokenizer.json"), tokenizer_json);
    return ImportAgain();
  }
  std::string BytesIn(const std::string& directory, const std::string& name) const {
    return StoredBytes(At(directory), name);
  }

  std::string prefix_;
};

// Without a SentencePiece model, as BERT and RoBERTa are published; rows of positions that nobody
// uses are zeros again.
TEST_P(FamilyTest, ComesAndGoesByteForByte) {
  Make(GetParam());
  if (prefix_ != "bert.") {
    std::string& rows = model_.Tensor(prefix_ + kPositionTensor).bytes;
    std::fill(rows.begin(), rows.begin() + 2 * kHiddenSize * 4, '\0');
  }
  ASSERT_EQ(ImportBare(), absl::OkStatus());
  ExpectSameInAnyPieces(ConfigOf());
  ASSERT_TRUE(Export("out").ok());
  ExpectHas("out", model_.tensors);
  Json config = JsonOf("out/config.json");
  EXPECT_TRUE(absl::EndsWith(config["architectures"][0].get<std::string>(), "ForMaskedLM"));
  config.erase("architectures");
  EXPECT_EQ(config, model_.config);
  EXPECT_FALSE(fs::exists(At("out/spiece.model")));
}

TEST_P(FamilyTest, ProjectionsAreTransposedAndPositionsBeginBehindThePadding) {
  Make(GetParam());
  ASSERT_EQ(Import(), absl::OkStatus());
  ASSERT_TRUE(ExportOurs("ours").ok());
  EXPECT_EQ(ValuesIn("ours", "transformer.layer.1.rel_attn.q"),
            Transposed(ValuesIn("hf", prefix_ + kQueryTensor), kHiddenSize));
  const std::vector<float> table = ValuesIn("hf", prefix_ + kPositionTensor);
  const size_t unused = prefix_ == "bert." ? 0 : 2 * kHiddenSize;
  EXPECT_EQ(ValuesIn("ours", "transformer.position_embedding.weight"),
            std::vector<float>(table.begin() + static_cast<std::ptrdiff_t>(unused), table.end()));
  const RunConfig config = ConfigOf();
  EXPECT_EQ(config.objective.name, prefix_ == "bert." ? "bert" : "longformer");
  EXPECT_EQ(config.model.attention_windows, prefix_ == "longformer." ? "2:2; 3:3" : "");
  EXPECT_EQ(config.model.activation, kernels::Activation::kGeluErf);
}

// As of BertModel: the names lack the prefix, and there is no head.
TEST_P(FamilyTest, WithoutHeadItIsDrawnAndThePoolerLeftOut) {
  Make(GetParam());
  std::erase_if(model_.tensors, [this](const HfTensor& tensor) {
    return !absl::StartsWith(tensor.entry.name, prefix_);
  });
  for (HfTensor& tensor : model_.tensors) tensor.entry.name.erase(0, prefix_.size());
  model_.Add("pooler.dense.weight", {kHiddenSize, kHiddenSize}, 0);
  ASSERT_EQ(Import(), absl::OkStatus());
  EXPECT_THAT(said_, AllOf(HasSubstr("the masked language model's head is randomly initialised"),
                           HasSubstr("left out, because pretraining does not use it: pooler.")));
  ASSERT_TRUE(Export("out").ok());
  model_.Remove("pooler.dense.weight");
  for (const HfTensor& tensor : model_.tensors) {
    if (prefix_ != "bert." && tensor.entry.name == kPositionTensor) continue;
    EXPECT_EQ(BytesIn("out", prefix_ + tensor.entry.name), tensor.bytes) << tensor.entry.name;
  }
}

TEST_P(FamilyTest, OldAndRepeatedNamesAreTakenWhereTheyAgree) {
  Make(GetParam());
  const std::string norm = prefix_ + "embeddings.LayerNorm.";
  HfTensor old = model_.Tensor(norm + "weight");
  old.entry.name = norm + "gamma";
  const bool is_bert = prefix_ == "bert.";
  HfTensor output = model_.Tensor(prefix_ + "embeddings.word_embeddings.weight");
  output.entry.name = is_bert ? "cls.predictions.decoder.weight" : "lm_head.decoder.weight";
  HfTensor bias = model_.Tensor(is_bert ? "cls.predictions.bias" : "lm_head.bias");
  const std::string bias_name = bias.entry.name;
  bias.entry.name = is_bert ? "cls.predictions.decoder.bias" : "lm_head.decoder.bias";
  for (const HfTensor& tensor : {old, output, bias}) model_.tensors.push_back(tensor);
  ASSERT_EQ(Import(), absl::OkStatus());
  model_.Remove(norm + "weight");
  model_.Remove(bias_name);
  ASSERT_EQ(Import(), absl::OkStatus());
  ASSERT_TRUE(Export("out").ok());
  EXPECT_EQ(BytesIn("out", norm + "weight"), old.bytes);
  EXPECT_EQ(BytesIn("out", bias_name), bias.bytes);
  model_.Tensor(output.entry.name).bytes[9] ^= 1;
  ExpectModelRefused(model_, {"it must be the word embedding"});
}

TEST_P(FamilyTest, OtherFunctionsAreRefused) {
  const std::string type = GetParam();
  const Json config = FamilyConfig(type);
  ExpectPatchesRefused(
      config, {{R"({"position_embedding_type": "relative_key"})",
                "'position_embedding_type' is \"relative_key\""},
               {R"({"is_decoder": true})", "'is_decoder' is true, not false"},
               {R"({"tie_word_embeddings": false})", "'tie_word_embeddings' is false, not true"},
               {R"({"num_attention_heads": 3})",
                "'num_attention_heads' is 3 but must divide 'hidden_size' = 8"},
               {R"({"hidden_act": "silu"})", "'hidden_act' is \"silu\""}});
  if (type == "bert") return;
  ExpectPatchesRefused(config, {{R"({"hidden_act": "relu"})", "the head has the exact GELU"},
                                {R"({"pad_token_id": 19})", "leaves no position"}});
  if (type != "longformer") return;
  for (const char* windows : {"3", "[4]", "[4, 4, 4]", "\"4\"", "[4, -2]"})
    ExpectPatchesRefused(config, {{absl::StrCat("{\"attention_window\": ", windows, "}").c_str(),
                                   "'attention_window' is"}});
}

TEST_P(FamilyTest, WithoutAVocabularyNoDatasetFits) {
  Make(GetParam());
  ASSERT_EQ(ImportBare(), absl::OkStatus());
  EXPECT_THAT(said_, HasSubstr("came without a SentencePiece vocabulary"));
  const RunConfig config = ConfigOf();
  EXPECT_THAT(CheckFirstStart(At("run"), config, config, data::DatasetIndex()),
              Exits(kExitData, "has no dataset to train on"));
}

TEST_P(FamilyTest, DataOfItsTokenizerJsonFitWhateverIsDeclaredBesides) {
  Make(GetParam());
  const std::string tokenizer = R"({"model": {}})";
  ASSERT_EQ(ImportBare(tokenizer), absl::OkStatus());
  EXPECT_THAT(said_, HasSubstr("anyorder prep --input TEXT... --tokenizer " + At("run/import") +
                               " --output"));
  const RunConfig config = ConfigOf();
  data::DatasetIndex dataset;
  dataset.tokenizer.digest = DigestOf(tokenizer).Hex();
  dataset.tokenizer_digest = data::TokenizerDigest(dataset.tokenizer.digest, "mask=7");
  EXPECT_EQ(CheckFirstStart(At("run"), config, config, dataset), absl::OkStatus());
  dataset.tokenizer.digest = "another";
  EXPECT_THAT(CheckFirstStart(At("run"), config, config, dataset),
              Exits(kExitData, "make it again: anyorder prep --tokenizer " + At("run/import")));
}

INSTANTIATE_TEST_SUITE_P(All, FamilyTest, ::testing::Values("bert", "roberta", "longformer"));

using BertTest = FamilyTest;

// Class 1 of ours, which says that B follows A, is class 0 there.
TEST_F(BertTest, TheNextSentenceHeadComesWithItsClassesTurned) {
  Make("bert");
  model_.Add("bert.pooler.dense.weight", {kHiddenSize, kHiddenSize}, 70);
  model_.Add("bert.pooler.dense.bias", {kHiddenSize}, 71);
  model_.Add("cls.seq_relationship.weight", {2, kHiddenSize}, 72);
  model_.Add("cls.seq_relationship.bias", {2}, 73);
  ASSERT_EQ(Import({"objective.next_sentence=true"}), absl::OkStatus());
  ASSERT_TRUE(ExportOurs("ours").ok());
  std::vector<float> theirs = ValuesIn("hf", "cls.seq_relationship.weight");
  std::rotate(theirs.begin(), theirs.begin() + kHiddenSize, theirs.end());
  EXPECT_EQ(ValuesIn("ours", "logits_proj.weight"), theirs);
  ASSERT_TRUE(Export("out").ok());
  ExpectHas("out", model_.tensors);
  EXPECT_EQ(JsonOf("out/config.json")["architectures"][0], "BertForPreTraining");
  model_.Remove("cls.seq_relationship.bias");
  EXPECT_THAT(
      Import({"objective.next_sentence=true"}),
      Says("no tensor 'cls.seq_relationship.bias' [2]", "or leave out objective.next_sentence"));
}

// Which family a network that was not imported becomes, and what its config.json then says.
TEST(FamilyOfRunTest, IsTheOneThatItsNetworkComesClosestTo) {
  RunConfig config = RunOfModel(FamilyConfig("bert"));
  config.model.segments = Segments::kNone;
  config.model.activation = kernels::Activation::kGeluErf;
  config.model.attention_windows = "2:2; 4:4";
  config.model.global_projections = true;
  EXPECT_STREQ(FamilyOfRun(config).names().model_type, "longformer");
  const data::VocabIds ids{0, 1, 2, 3, 4, 5, 6, 7, 8};
  const auto again =
      ParseHfConfig(HfConfigText(FamilyOfRun(config), config, 14, DType::kFloat32, ids), "written")
          .value();
  EXPECT_EQ(again.first_position, 6);
  EXPECT_EQ(again.model.max_positions, 20);
  EXPECT_EQ(again.model.num_segments, 1);
  EXPECT_EQ(again.model.attention_windows, "2:2; 4:4");
  config.model.attention_windows = "2:4";
  EXPECT_THAT(CheckFamily(FamilyOfRun(config), config),
              Says("model.attention_windows is \"2:4\", not \"256:256\" ('attention_window' is "
                   "\"2:4\" but must be an even number, or one for each layer)"));
}

Json GptConfig() {
  return Json::parse(R"({"model_type": "openai-gpt", "n_layer": 1, "n_embd": 4, "n_head": 2,
      "n_positions": 6, "vocab_size": 10, "afn": "gelu"})");
}

Json Gpt2Config() {
  Json config = GptConfig();
  config.erase("afn");
  config["model_type"] = "gpt2";
  return config;
}

Json XlConfig() {
  return Json::parse(R"({"model_type": "transfo-xl", "n_layer": 1, "d_model": 4, "d_embed": 4,
      "n_head": 2, "d_head": 2, "d_inner": 6, "vocab_size": 10, "cutoffs": [4, 7], "div_val": 2,
      "mem_len": 5, "tie_projs": [false, true, true]})");
}

TEST(CausalModelsTest, OtherFunctionsAreRefused) {
  ExpectPatchesRefused(
      GptConfig(), {{R"({"afn": "silu"})", "'afn' is \"silu\" but must be \"gelu\" or \"relu\""},
                    {R"({"n_head": 3})", "'n_head' is 3 but must divide 'n_embd' = 4"},
                    {R"({"n_positions": null})", "'n_positions' is missing"},
                    {R"({"tie_word_embeddings": false})", "an output of its own"}});
  ExpectPatchesRefused(
      Gpt2Config(),
      {{R"({"activation_function": "silu"})", "'activation_function' is \"silu\""},
       {R"({"n_inner": 0})", "'n_inner' is 0"},
       {R"({"scale_attn_weights": false})", "'scale_attn_weights' is false, not true"},
       {R"({"scale_attn_by_inverse_layer_idx": true})", "inverse_layer_idx' is true"},
       {R"({"add_cross_attention": true})", "'add_cross_attention' is true, not false"}});
  ExpectPatchesRefused(XlConfig(),
                       {{R"({"d_embed": 2})", "'d_embed' is 2, not 4, as 'd_model'"},
                        {R"({"pre_lnorm": true})", "'pre_lnorm' is true, not false"},
                        {R"({"attn_type": 1})", "'attn_type' is 1, not 0"},
                        {R"({"cutoffs": 4})", "'cutoffs' is 4 but must be a list"},
                        {R"({"cutoffs": [4, 10]})", "has only 10 entries"},
                        {R"({"cutoffs": []})", "which has no clusters"},
                        {R"({"div_val": 3})", "less than one dimension"},
                        {R"({"mem_len": 0})", "'same_length' is true but 'mem_len' is 0"},
                        {R"({"tie_projs": [true, true, true]})", "must be [false,true,true] or"}});
}

TEST(CausalModelsTest, ConfigIsReadWithTheDefaultsOfTransformers) {
  const ModelConfig gpt2 = Parsed(Gpt2Config()).model;
  EXPECT_TRUE(gpt2.pre_norm());
  EXPECT_EQ(gpt2.ffn_dim, 16);
  EXPECT_EQ(gpt2.activation, kernels::Activation::kGeluTanh);
  Json config = XlConfig();
  config.erase("tie_projs");
  config["proj_share_all_but_first"] = false;
  const ModelConfig xl = Parsed(config).model;
  EXPECT_EQ(xl.cutoffs, "4, 7");
  EXPECT_FALSE(xl.tie_projections);
  EXPECT_EQ(xl.same_length, SameLength::kTorch);
  EXPECT_EQ(xl.clamp_len, 1000);
  EXPECT_EQ(xl.initial_memory, InitialMemory::kZeros);
}

class ObjectivesTest : public ::testing::Test, protected MadeModelDirectory {};

// The defaults of an import are those of the objective that is asked for.
TEST_F(ObjectivesTest, EveryObjectiveOfAFamilyIsImported) {
  for (const HfFamily* const family : HfFamilies()) {
    Make(SmallConfig(*family));
    const HfFamily::Names names = family->names();
    std::vector<std::string> objectives(names.pretraining.begin(), names.pretraining.end());
    objectives.insert(objectives.end(), names.finetuning.begin(), names.finetuning.end());
    for (const std::string& objective : objectives) {
      SCOPED_TRACE(absl::StrCat(names.architecture, " ", objective));
      std::vector<std::string> settings = {"objective.name=" + objective};
      if (absl::EndsWith(objective, "_finetuning"))
        settings.emplace_back("objective.num_classes=3");
      ASSERT_EQ(Import(settings), absl::OkStatus());
      ExpectSameInAnyPieces(ConfigOf());
      EXPECT_EQ(ConfigOf().objective.name, objective);
      EXPECT_EQ(absl::StrContains(said_, "prep --examples FILE..."),
                ObjectiveNamed(objective).value()->sample_kind == SampleKind::kExamples);
      EXPECT_EQ(Export("out"), absl::OkStatus());
      // Text of another length, too; and said as a file says it.
      const int64_t length = family == &Bd3LmFamily() ? 32 : 16;
      settings[0] = absl::StrCat("objective.name = \"", objective, "\"");
      settings.push_back(absl::StrCat("sampling.seq_len = ", length));
      EXPECT_EQ(Import(settings), absl::OkStatus());
    }
  }
}

// Models without pairs have one type, BERT's two, UniLM six.
TEST_P(FamilyTest, TypesThatTheObjectiveNeedsBeginAsCopies) {
  Make(GetParam());
  const int64_t types = model_.config["type_vocab_size"];
  const std::string table = prefix_ + "embeddings.token_type_embeddings.weight";
  ASSERT_EQ(Import({"objective.name=unilm"}), absl::OkStatus());
  EXPECT_THAT(said_, HasSubstr("of 6 token types begin as copies of the weights' "));
  ExpectSameInAnyPieces(ConfigOf());
  ASSERT_EQ(Export("out"), absl::OkStatus());
  EXPECT_EQ(JsonOf("out/config.json")["type_vocab_size"], 6);
  const std::string before = model_.Tensor(table).bytes, after = BytesIn("out", table);
  ASSERT_EQ(after.size(), 6 * kHiddenSize * 4);
  for (int64_t row = 0; row < 6; ++row)
    EXPECT_EQ(after.substr(row * kHiddenSize * 4, kHiddenSize * 4),
              before.substr(row % types * kHiddenSize * 4, kHiddenSize * 4));
  // Also for the objective of a file.
  const std::string file = ReadWholeFile(At("run/config.toml"), kMaxTextBytes).value();
  WriteFile(At("unilm.toml"), absl::StrReplaceAll(file, {{"num_segments = 6\n", ""}}));
  Remove({"run"});
  EXPECT_EQ(ImportHuggingFace({At("hf"), At("run"), At("unilm.toml")}), absl::OkStatus());
  EXPECT_EQ(ConfigOf().model.num_segments, 6);
  // As many as somebody asks for, and not fewer than there are.
  EXPECT_EQ(Import({"model.num_segments=3"}), absl::OkStatus());
  Remove({"run"});
  if (types > 1) ExpectRefused(kExitUsage, {"model.num_segments"}, {"model.num_segments=1"});
}

class CausalExchangeTest : public ::testing::Test, protected ExchangeDirectory {};

TEST_F(CausalExchangeTest, ValuesComeToTheirPlacesFromFilesWithoutAnOutput) {
  const HfConfig config = Parsed(Gpt2Config());
  const ParameterLayout layout(config.model, config.vocab_size);
  StoredModel model{.config = Gpt2Config()};
  float value = 0;
  for (const FileTensor& tensor : config.family->Tensors(config.model, layout)) {
    const bool is_mask = tensor.name == "transformer.h.0.attn.bias";
    if (tensor.is_alias && !is_mask) continue;
    std::vector<float> values(tensor.shape.num_elements());
    for (float& element : values) element = value++;
    const std::string bare = tensor.name.substr(strlen("transformer."));
    model.tensors.push_back({{bare, DType::kFloat32, tensor.shape}, BytesOf(values)});
    if (!is_mask) continue;
    model.tensors.back().entry.dtype = DType::kUint8;
    model.tensors.back().bytes.resize(values.size());
  }
  model.WriteModel(At("hf"), /*num_files=*/1);
  ASSERT_EQ(ImportAs("run"), absl::OkStatus());
  ASSERT_EQ(ExportOurs("ours"), absl::OkStatus());
  ASSERT_EQ(Export("again"), absl::OkStatus());

  // Queries, keys and values side by side: [in, 3 * out].
  const std::vector<float> all = ValuesIn("hf", "h.0.attn.c_attn.weight");
  const std::vector<float> keys = ValuesIn("ours", "transformer.layer.0.rel_attn.k");
  for (int row = 0; row < 4; ++row)
    for (int column = 0; column < 4; ++column)
      EXPECT_EQ(keys[row * 4 + column], all[row * 12 + 4 + column]);
  EXPECT_EQ(ValuesIn("ours", "transformer.layer.0.ff.layer_1.weight"),
            Transposed(ValuesIn("hf", "h.0.mlp.c_fc.weight"), 4));
  EXPECT_EQ(ValuesIn("again", "transformer.h.0.attn.c_attn.weight"), all);
}

}  // namespace
}  // namespace anyorder::launcher
