// What comes in by `anyorder import` goes out by `anyorder export` as it was, and what cannot come
// in is refused before anything is written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"

#include "ckpt/reader.h"
#include "core/base/digest.h"
#include "core/base/status.h"
#include "core/network/tensors/parameters.h"
#include "core/train/state/resume.h"
#include "launcher/run/imported_run.h"
#include "tests/core/train/state/saved_run.h"
#include "tests/launcher/huggingface/exchange_directory.h"
#include "tests/testing/with_keys.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Ne;
using ::testing::Not;

class ImportTest : public ::testing::Test, protected MadeModelDirectory {
 protected:
  // The imported fp32 values of a parameter.
  std::vector<float> Imported(const std::string& name) const {
    Remove({"values"});
    EXPECT_EQ(Export("values"), absl::OkStatus());
    return ValuesIn("values", name);
  }
  std::string StateDigest() const {
    return ckpt::Checkpoint::Open(ckpt::CheckpointPath(At("run"), 0))->StateDigest().value();
  }
};

TEST_F(ImportTest, ExportGivesBackTensorsConfigAndTokenizerByteForByte) {
  // A value that an arithmetic detour would change: the smallest subnormal, and a negative zero.
  const uint32_t odd[] = {1u, 0x80000000u};
  std::memcpy(model_.Tensor("transformer.mask_emb").bytes.data(), odd, sizeof odd);
  ASSERT_EQ(Import(), absl::OkStatus());
  ASSERT_TRUE(Export("again").ok());
  ExpectIs("again", model_.tensors);
  // Also what we do not know.
  Json again = JsonOf("again/config.json");
  EXPECT_EQ(again["n_token"], 14);  // the one key that is added
  again.erase("n_token");
  EXPECT_EQ(again, model_.config);
  for (const char* name : {"spiece.model", "tokenizer_config.json"})
    EXPECT_EQ(*ReadWholeFile(At("again/") + name, kMaxTextBytes),
              *ReadWholeFile(At("hf/") + name, kMaxTextBytes))
        << name;
}

// What is not true of float tensors, or of another class, is not copied.
TEST_F(ImportTest, AnExportLeavesOutWhatIsNoLongerTrue) {
  model_.config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  model_.config["architectures"] = {"XLNetForTokenClassification"};
  model_.config["auto_map"] = {{"AutoModel", "modeling_mine.Mine"}};
  model_.config.erase("torch_dtype");
  ASSERT_EQ(Import({"objective.name=permutation_lm"}), absl::OkStatus());
  WeightFileOptions rounded;
  rounded.dtype = DType::kBFloat16;
  ASSERT_TRUE(Export("again", rounded).ok());
  const Json again = JsonOf("again/config.json");
  EXPECT_FALSE(again.contains("quantization_config"));
  EXPECT_FALSE(again.contains("auto_map"));
  EXPECT_EQ(again["torch_dtype"], "bfloat16");
}

// No moments: a start has zeros in their place.
TEST_F(ImportTest, TheCheckpointHasTheWeightsAlone) {
  ASSERT_EQ(Import(), absl::OkStatus());
  const auto checkpoint = ckpt::Checkpoint::Open(ckpt::CheckpointPath(At("run"), 0)).value();
  ASSERT_EQ(checkpoint.tensors().size(), 1u);
  EXPECT_EQ(checkpoint.tensors()[0].name, "master");
  EXPECT_EQ(checkpoint.Verify(), absl::OkStatus());
}

TEST_F(ImportTest, WeightsInSeveralFilesAreTheSame) {
  ASSERT_EQ(Import(), absl::OkStatus());
  const std::string whole = StateDigest();
  Remove({"hf", "run"});
  model_.Write(At("hf"), 3);
  ASSERT_EQ(ImportAgain(), absl::OkStatus());
  EXPECT_EQ(StateDigest(), whole);

  Remove({"run"});
  const std::string index = At("hf/model.safetensors.index.json");
  Json json = JsonOf("hf/model.safetensors.index.json");
  const std::string second = "model-00002-of-00003.safetensors";
  const std::pair<std::string, std::string> faults[] = {
      {second, "'transformer.mask_emb' is not in '" + second + "'"},
      {"../" + second, "not in this directory"},
      {"part9.safetensors", "'part9.safetensors' that it names is missing"}};
  for (const auto& [file, message] : faults) {
    json["weight_map"]["transformer.mask_emb"] = file;
    WriteFile(index, json.dump());
    ExpectRefused(kExitData, {index, message});
  }
  WriteFile(index, "{\"weight_map\": 3}");
  ExpectRefused(kExitData, {index, "no object 'weight_map'"});
}

TEST_F(ImportTest, TheOutputMayBeRepeatedButNotItsOwn) {
  HfTensor output = model_.Tensor("transformer.word_embedding.weight");
  output.entry.name = "lm_loss.weight";
  model_.tensors.push_back(output);
  ASSERT_EQ(Import(), absl::OkStatus());
  // Only under the output's name, as some writers keep the two.
  model_.Remove("transformer.word_embedding.weight");
  ASSERT_EQ(Import(), absl::OkStatus());
  EXPECT_EQ(BytesOf(Imported("transformer.word_embedding.weight")), output.bytes);

  model_ = HfDirectory();
  output.bytes[4 * 20 + 2] ^= 1;
  model_.tensors.push_back(output);
  ExpectModelRefused(model_,
                     {"'lm_loss.weight' has", "as element 20", "must be the word embedding"});
}

TEST_F(ImportTest, SharedRelativeBiasesMustBeEqualInAllLayers) {
  model_.config["untie_r"] = false;
  for (const char* name : {"r_w_bias", "r_r_bias", "r_s_bias"}) {
    model_.Tensor(absl::StrCat("transformer.layer.1.rel_attn.", name)).bytes =
        model_.Tensor(absl::StrCat("transformer.layer.0.rel_attn.", name)).bytes;
  }
  ASSERT_EQ(Import(), absl::OkStatus());
  EXPECT_EQ(BytesOf(Imported("transformer.layer.1.rel_attn.r_s_bias")),
            model_.Tensor("transformer.layer.0.rel_attn.r_s_bias").bytes);
  model_.Tensor("transformer.layer.1.rel_attn.r_s_bias").bytes[3] ^= 1;
  ExpectModelRefused(model_,
                     {"'transformer.layer.1.rel_attn.r_s_bias' has", "set untie_r to true"});
}

const std::vector<std::string> kNextSentence = {"objective.next_sentence=true"};

TEST_F(ImportTest, ANextSentenceHeadComesAndGoesByteForByteOrIsLeftOut) {
  model_.AddSummary(2);
  ASSERT_EQ(Import(kNextSentence), absl::OkStatus());
  ASSERT_TRUE(Export("again").ok());
  ExpectIs("again", model_.tensors);
  ASSERT_EQ(Import(), absl::OkStatus());
  EXPECT_THAT(said_,
              AllOf(HasSubstr("sequence_summary.summary.weight"), HasSubstr("logits_proj.weight")));
  Remove({"again"});
  ASSERT_TRUE(Export("again").ok());
  EXPECT_EQ(StoredBytes(At("again"), "logits_proj.weight"), "");
}

TEST_F(ImportTest, WithoutOneItIsDrawnAsForARunFromScratch) {
  model_.config["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
  model_.config["summary_activation"] = nullptr;
  ASSERT_EQ(Import({kNextSentence[0], "train.seed=5"}), absl::OkStatus());
  EXPECT_THAT(said_,
              HasSubstr("note: the next-sentence head is randomly initialised (train.seed)"));
  const RunConfig config = ConfigOf();
  EXPECT_TRUE(config.model.next_sentence_head);
  const ParameterLayout layout(config.model, 14);
  std::vector<float> scratch(layout.num_elements());
  InitializeParameters(layout, config.model, 5, 0, layout.num_elements(), scratch.data());
  for (const char* name : {"sequence_summary.summary.weight", "logits_proj.weight"}) {
    const ParameterInfo& info = layout.Find(name);
    const std::vector<float> drawn = Imported(name);
    EXPECT_EQ(drawn,
              std::vector<float>(scratch.begin() + info.offset, scratch.begin() + info.end()));
    EXPECT_THAT(drawn, Contains(Ne(0.0f)));
  }
  for (const HfTensor& tensor : model_.tensors) {
    EXPECT_EQ(BytesOf(Imported(tensor.entry.name)), tensor.bytes) << tensor.entry.name;
  }
  // What transformers needs to make the same head.
  ASSERT_TRUE(Export("again").ok());
  const Json again = JsonOf("again/config.json");
  EXPECT_FALSE(again.contains("id2label")) << "three names for two classes";
  EXPECT_EQ(again["summary_activation"], "tanh");
}

TEST_F(ImportTest, AnotherHeadIsRefused) {
  model_.AddSummary(2);
  const auto expect_refused = [this](const std::vector<std::string>& parts) {
    ExpectModelRefused(model_, parts, kNextSentence);
  };
  model_.config["summary_type"] = "mean";
  expect_refused({"config.json", "'summary_type' is \"mean\", not \"last\"", "leave out"});
  model_.config["summary_type"] = "last";
  model_.config["summary_activation"] = nullptr;
  expect_refused({"'summary_activation' is \"none\", not \"tanh\""});
  model_.config.erase("summary_activation");
  model_.Remove("logits_proj.bias");
  expect_refused({"no tensor 'logits_proj.bias' [2]", "leave out objective.next_sentence"});
  model_.Add("logits_proj.bias", {3}, 1);
  expect_refused({"'logits_proj.bias' is [3]", "leave out objective.next_sentence"});
  model_.Remove("transformer.mask_emb");
  EXPECT_THAT(Import(kNextSentence), AllOf(Says("mask_emb"), Not(Says("objective"))));
}

TEST_F(ImportTest, TheFirstStartCanNeitherAddNorDropAHead) {
  ASSERT_EQ(Import(kNextSentence), absl::OkStatus());
  const RunConfig imported = ConfigOf();
  RunConfig now = imported;
  ASSERT_TRUE(ApplyOverride("objective.next_sentence=false", now).ok());
  for (const auto& [weights, wanted] : {std::pair(imported, now), std::pair(now, imported)}) {
    EXPECT_THAT(
        CheckFirstStart(At("run"), weights, wanted, {}),
        Exits(kExitUsage, absl::StrCat("import them again with --set objective.next_sentence=",
                                       wanted.objective.next_sentence ? "true" : "false")));
  }
}

TEST_F(ImportTest, SettingsComeFromTheFileAndTheModelFromTheWeights) {
  model_.Write(At("hf"));
  const std::string file = At("my.toml");
  WriteFile(file, "[optimizer]\nlearning_rate = 0.5\n[model]\nnum_layers = 2\n");
  ASSERT_EQ(ImportHuggingFace(
                {At("hf"), At("run"), file, {"train.steps=7", "model.activation=gelu_erf"}}),
            absl::OkStatus());
  const RunConfig config = ConfigOf();
  EXPECT_EQ(config.model.model_dim, 8);
  EXPECT_EQ(config.model.head_dim, 4);
  EXPECT_EQ(config.model.activation, kernels::Activation::kGeluErf);
  EXPECT_EQ(config.optimizer.learning_rate, 0.5);
  EXPECT_EQ(config.train.steps, 7);

  Remove({"run"});
  WriteFile(file, "[model]\nnum_layers = 3\n");
  ExpectRefused(kExitUsage,
                {file, "model.num_layers = 3", "model.num_layers = 2", "config.json: n_layer"}, {},
                file);
  ExpectRefused(kExitUsage, {"--set says model.activation = \"relu\"", "ff_activation"},
                {"model.activation=relu"});
  ExpectRefused(kExitUsage, {"model.segments = \"relative\""}, {"model.segments=none"});
  ExpectRefused(kExitUsage, {"did you mean 'model.num_layers'"}, {"model.num_layer=2"});
}

TEST_F(ImportTest, AnImportedRunNeverStartsFromRandomWeights) {
  ASSERT_EQ(Import(), absl::OkStatus());
  EXPECT_TRUE(CheckResume(At("run"), ResumeMode::kRequired).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(CheckResume(At("run"), ResumeMode::kNever)));
  fs::remove_all(ckpt::CheckpointPath(At("run"), 0));
  EXPECT_TRUE(absl::IsDataLoss(CheckResume(At("run"), ResumeMode::kAuto)));
}

TEST_F(ImportTest, TheFirstStartMayChooseAllButModelAndVocabulary) {
  ASSERT_EQ(Import(), absl::OkStatus());
  const RunConfig imported = ConfigOf();
  data::DatasetIndex dataset;
  dataset.tokenizer_digest = DigestOf(*ReadWholeFile(At("hf/spiece.model"), kMaxTextBytes)).Hex();
  RunConfig now = imported;
  now.train.steps = 5;
  now.model.mem_len = 3;
  now.model.dropout = 0.3;
  EXPECT_TRUE(CheckFirstStart(At("run"), imported, now, dataset).ok());
  now.model.clamp_len = 12;
  EXPECT_THAT(CheckFirstStart(At("run"), imported, now, dataset),
              Exits(kExitUsage, "model.clamp_len = 12"));
  // tokenizer_config.json says do_lower_case.
  dataset.settings["case"] = "uncased";
  EXPECT_TRUE(CheckFirstStart(At("run"), imported, imported, dataset).ok());
  dataset.settings["case"] = "cased";
  EXPECT_THAT(CheckFirstStart(At("run"), imported, imported, dataset),
              Exits(kExitData, "spiece.model --case uncased"));
  dataset.tokenizer_digest = "another";
  EXPECT_THAT(CheckFirstStart(At("run"), imported, imported, dataset),
              Exits(kExitData, "anyorder prep --vocab " + At("run/spiece.model")));
}

TEST_F(ImportTest, OutputsThatAreNotEmptyStayAsTheyAre) {
  model_.Write(At("hf"));
  fs::create_directories(At("run"));
  WriteFile(At("run/mine"), "");
  ExpectRefused(kExitUsage, {"--output", "not an empty directory"});
  fs::remove(At("run/mine"));
  EXPECT_EQ(ImportAgain(), absl::OkStatus());
}

// In what way: SafetensorsTest.HeadersThatLieAreRefused.
TEST_F(ImportTest, DamagedWeightsAreNamed) {
  model_.Write(At("hf"));
  const std::string weights = At("hf/model.safetensors");
  const std::string bytes = *ReadWholeFile(weights, kMaxTextBytes);
  for (const size_t length : {size_t{0}, size_t{100}, bytes.size() - 1}) {
    WriteFile(weights, bytes.substr(0, length));
    ExpectRefused(kExitData, {weights, "fetch or convert the weights again"});
  }
}

TEST_F(ImportTest, FilesThatAreMissingAreNamed) {
  ExpectRefused(kExitUsage, {"--input", "is not a directory"});
  model_.Write(At("hf"));
  fs::remove(At("hf/spiece.model"));
  ExpectRefused(kExitData, {At("hf/spiece.model"), "is missing; copy it"});
  model_.Write(At("hf"));
  fs::remove(At("hf/config.json"));
  ExpectRefused(kExitData, {At("hf/config.json"), "is missing"});
  model_.Write(At("hf"));
  fs::remove(At("hf/model.safetensors"));
  ExpectRefused(kExitData, {"neither model.safetensors nor"});
  WriteFile(At("hf/pytorch_model.bin"), "pickle");
  ExpectRefused(kExitData, {"convert them first", "python3 /", "convert_bin.py " + At("hf")});
}

TEST_F(ImportTest, FilesThatNoModelHasAreRefusedByName) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const auto expect_refused = [this](const char* name, const std::string& words) {
    SCOPED_TRACE(name);
    ExpectRefused(kExitData, {At("hf/") + name, words});
    fs::remove(At("hf/") + name);
    model_.Write(At("hf"));
  };
  model_.Write(At("hf"));
  WriteFile(At("hf/config.json"), R"({"a":)" + deep + "}");
  expect_refused("config.json", "nested deeper than 64 levels");
  fs::remove(At("hf/config.json"));
  ASSERT_EQ(::mkfifo(At("hf/config.json").c_str(), 0600), 0);
  expect_refused("config.json", "is not a plain file");
  WriteFile(At("hf/config.json"), std::string(kMaxTableBytes + 1, ' '));
  expect_refused("config.json", absl::StrCat("more than ", kMaxTableBytes, " bytes"));
  // What only this user may read would come into the run, and into an export for others.
  WriteFile(At("secret"), "mine");
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors",
                           "spiece.model", "modeling_x.py", "tokenizer_config.json"}) {
    fs::remove(At("hf/") + name);
    fs::create_symlink(At("secret"), At("hf/") + name);
    expect_refused(name, "leads to '" + At("secret") + "', which is not in its directory");
  }
  for (const char* text : {"{\"do_lower_case\": true, \"keep_accents\": tr", "", "[]"}) {
    WriteFile(At("hf/tokenizer_config.json"), text);
    expect_refused("tokenizer_config.json", "JSON");
  }
  fs::remove(At("hf/model.safetensors"));
  for (const std::string& name : {std::string(300, 'a'), std::string("a.safetensors\\u0000x")}) {
    WriteFile(At("hf/model.safetensors.index.json"),
              absl::StrCat(R"({"weight_map":{"a":")", name, "\"}}"));
    ExpectRefused(kExitData, {"not in this directory"});
  }
  fs::create_symlink(At("secret"), At("hf/a.safetensors"));
  WriteFile(At("hf/model.safetensors.index.json"), R"({"weight_map":{"a":"a.safetensors"}})");
  expect_refused("a.safetensors", "leads to '" + At("secret"));
  fs::remove(At("hf/model.safetensors.index.json"));
  EXPECT_EQ(ImportAgain(), absl::OkStatus());
}

TEST_F(ImportTest, ACacheOfHuggingFaceIsReadThroughItsLinks) {
  const fs::path cache = At("models--me--model");
  model_.Write((cache / "blobs").string());
  fs::create_directories(cache / "snapshots/1f");
  for (const auto& blob : fs::directory_iterator(cache / "blobs"))
    fs::create_symlink("../../blobs" / blob.path().filename(),
                       cache / "snapshots/1f" / blob.path().filename());
  EXPECT_EQ(ImportAs("run", "models--me--model/snapshots/1f"), absl::OkStatus());
}

// Once, this took minutes: each name was compared with all others.
TEST_F(ImportTest, AnyNumberOfTensorsIsReadInTurn) {
  constexpr int kTensors = 200'000;
  std::vector<ckpt::SafetensorsEntry> entries;
  nlohmann::json index;
  for (int i = 0; i < kTensors; ++i) {
    entries.push_back({absl::StrCat("t", i), DType::kFloat32, Shape{0}});
    index["weight_map"][entries.back().name] = "a.safetensors";
  }
  fs::create_directories(At("hf"));
  WriteFile(At("hf/model.safetensors.index.json"), index.dump());
  auto writer = ckpt::SafetensorsWriter::Create(At("hf/a.safetensors"), entries, {});
  ASSERT_EQ(writer->Finish(), absl::OkStatus());
  const auto weights = HfWeights::Open(At("hf"));
  ASSERT_EQ(weights.status(), absl::OkStatus());
  EXPECT_EQ(weights->totals().tensors, kTensors);
  EXPECT_EQ(weights->CheckValues(), absl::OkStatus());
  EXPECT_NE(weights->ReaderOf("t199999"), nullptr);
}

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
