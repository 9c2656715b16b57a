// What comes in by `anyorder import` goes out by `anyorder export` as it was, and what cannot come
// in is refused before anything is written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"

#include "ckpt/reader.h"
#include "core/base/digest.h"
#include "core/base/status.h"
#include "core/network/tensors/parameters.h"
#include "core/train/state/resume.h"
#include "launcher/run/imported_run.h"
#include "tests/launcher/huggingface/exchange_directory.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Ne;
using ::testing::Not;

class ImportTest : public ::testing::Test, protected ExchangeDirectory {
 protected:
  ImportTest() {
    options_.input = At("hf");
    options_.output = At("run");
  }

  absl::Status Import() {
    model_.Write(options_.input);
    return ImportHuggingFace(options_);
  }
  // The model as it is now.
  void ExpectModelRefused(const std::vector<std::string>& parts) {
    model_.Write(options_.input);
    ExpectRefused(kExitData, parts);
  }
  // Imports and expects `exit_status`, one line that has all of `parts`, and nothing written.
  void ExpectRefused(int exit_status, const std::vector<std::string>& parts) {
    const size_t before = CountEntries();
    const absl::Status status = ImportHuggingFace(options_);
    EXPECT_EQ(ExitStatusFor(status), exit_status) << status;
    for (const std::string& part : parts) EXPECT_THAT(status, Says(part));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
    EXPECT_EQ(CountEntries(), before) << "something was written";
  }
  size_t CountEntries() const {
    return static_cast<size_t>(
        std::distance(fs::recursive_directory_iterator(root_), fs::recursive_directory_iterator()));
  }
  std::string Input(const std::string& name) const { return options_.input + "/" + name; }
  absl::Status Export(const std::string& name) const {
    return ExportModel({options_.output, -1, At(name)});
  }
  // The imported fp32 values of a parameter.
  std::vector<float> Imported(const std::string& name) const {
    Remove({"hf.values"});
    EXPECT_EQ(Export("hf.values"), absl::OkStatus());
    return ValuesIn("hf.values", name);
  }

  HfDirectory model_;
  ImportOptions options_;
};

TEST_F(ImportTest, ExportGivesBackEveryTensorByteForByte) {
  // A value that an arithmetic detour would change: the smallest subnormal, and a negative zero.
  const uint32_t odd[] = {1u, 0x80000000u};
  std::memcpy(model_.Tensor("transformer.mask_emb").bytes.data(), odd, sizeof odd);
  ASSERT_EQ(Import(), absl::OkStatus());
  ASSERT_TRUE(Export("again").ok());
  const auto reader = ckpt::SafetensorsReader::Open(At("again/model.safetensors")).value();
  EXPECT_EQ(reader.tensors().size(), model_.tensors.size());
  for (const HfTensor& tensor : model_.tensors) {
    SCOPED_TRACE(tensor.entry.name);
    const ckpt::SafetensorsTensor* const found = reader.Find(tensor.entry.name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->entry.shape.ToString(), tensor.entry.shape.ToString());
    EXPECT_EQ(StoredBytes(At("again"), tensor.entry.name), tensor.bytes);
  }
}

TEST_F(ImportTest, ExportGivesBackConfigAndTokenizerAlsoWhatWeDoNotKnow) {
  ASSERT_EQ(Import(), absl::OkStatus());
  ASSERT_TRUE(Export("again").ok());
  Json again = JsonOf("again/config.json");
  EXPECT_EQ(again["n_token"], 14);  // the one key that is added
  again.erase("n_token");
  EXPECT_EQ(again, model_.config);
  for (const char* name : {"spiece.model", "tokenizer_config.json"})
    EXPECT_EQ(*ReadWholeFile(At("again/") + name), *ReadWholeFile(Input(name))) << name;
}

TEST_F(ImportTest, ImportOfAnExportHasTheSameState) {
  ASSERT_EQ(Import(), absl::OkStatus());
  ASSERT_TRUE(Export("hf2").ok());
  const std::string first = ckpt::CheckpointPath(options_.output, 0);
  options_.input = At("hf2");
  options_.output = At("run2");
  ASSERT_TRUE(ImportHuggingFace(options_).ok());
  const auto one = ckpt::Checkpoint::Open(first);
  const auto two = ckpt::Checkpoint::Open(ckpt::CheckpointPath(options_.output, 0));
  EXPECT_EQ(*one->StateDigest(), *two->StateDigest());
}

TEST_F(ImportTest, HalfPrecisionBecomesFullExactly) {
  // Around zero, the smallest normal and the largest of each sign, against the compiler's own
  // conversion.
  const std::string name = "transformer.word_embedding.weight";
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const uint32_t first : {0x03d0u, 0x7b90u, 0x8000u}) {
      std::vector<uint16_t> bits(14 * 8);
      std::vector<float> expected;
      for (size_t i = 0; i < bits.size(); ++i) {
        bits[i] = static_cast<uint16_t>(first + i);
        expected.push_back(dtype == DType::kFloat16
                               ? static_cast<float>(std::bit_cast<_Float16>(bits[i]))
                               : std::bit_cast<float>(uint32_t{bits[i]} << 16));
        if (!std::isfinite(expected.back())) expected[i] = 0, bits[i] = 0;
      }
      model_.Tensor(name).entry.dtype = dtype;
      model_.Tensor(name).bytes = BytesOf(bits);
      Remove({"run"});
      ASSERT_EQ(Import(), absl::OkStatus());
      EXPECT_EQ(BytesOf(Imported(name)), BytesOf(expected)) << Name(dtype) << " from " << first;
    }
  }
}

TEST_F(ImportTest, WeightsInSeveralFilesAreTheSame) {
  ASSERT_EQ(Import(), absl::OkStatus());
  const auto whole = ckpt::Checkpoint::Open(ckpt::CheckpointPath(options_.output, 0));
  fs::remove(Input("model.safetensors"));
  Json map;
  for (size_t part = 0; part < 3; ++part) {
    std::vector<HfTensor> tensors;
    for (size_t i = part; i < model_.tensors.size(); i += 3) {
      tensors.push_back(model_.tensors[i]);
      map[tensors.back().entry.name] = absl::StrCat("part", part, ".safetensors");
    }
    WriteSafetensors(Input(absl::StrCat("part", part, ".safetensors")), tensors);
  }
  const std::string index = Input("model.safetensors.index.json");
  WriteFile(index, Json({{"weight_map", map}}).dump());
  options_.output = At("run2");
  ASSERT_EQ(ImportHuggingFace(options_), absl::OkStatus());
  const auto parts = ckpt::Checkpoint::Open(ckpt::CheckpointPath(options_.output, 0));
  EXPECT_EQ(*whole->StateDigest(), *parts->StateDigest());

  options_.output = At("run3");
  const std::pair<const char*, const char*> faults[] = {
      {"part1.safetensors", "'transformer.mask_emb' is not in 'part1.safetensors'"},
      {"../part0.safetensors", "not in this directory"},
      {"part9.safetensors", "'part9.safetensors' that it names is missing"}};
  for (const auto& [file, message] : faults) {
    map["transformer.mask_emb"] = file;
    WriteFile(index, Json({{"weight_map", map}}).dump());
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
  options_.output = At("run2");
  ASSERT_EQ(Import(), absl::OkStatus());
  EXPECT_EQ(BytesOf(Imported("transformer.word_embedding.weight")), output.bytes);

  model_ = HfDirectory();
  output.bytes[4 * 20 + 2] ^= 1;
  model_.tensors.push_back(output);
  options_.output = At("run3");
  ExpectModelRefused({"'lm_loss.weight' has", "as element 20", "must be the word embedding"});
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
  options_.output = At("run2");
  model_.Tensor("transformer.layer.1.rel_attn.r_s_bias").bytes[3] ^= 1;
  ExpectModelRefused({"'transformer.layer.1.rel_attn.r_s_bias' has", "set untie_r to true"});
}

TEST_F(ImportTest, HeadsOfOtherTasksAreNamedAndLeftOut) {
  model_.Add("logits_proj.weight", {2, 8}, 0);
  model_.Add("sequence_summary.summary.weight", {8, 8}, 0);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Import(), absl::OkStatus());
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(said, HasSubstr("sequence_summary.summary.weight"));
  EXPECT_THAT(said, HasSubstr("logits_proj.weight"));
  ASSERT_TRUE(Export("again").ok());
  EXPECT_EQ(
      ckpt::SafetensorsReader::Open(At("again/model.safetensors"))->Find("logits_proj.weight"),
      nullptr);
}

class ImportHeadTest : public ImportTest {
 protected:
  ImportHeadTest() { options_.overrides = {"objective.next_sentence=true"}; }
  void AddHead() {
    model_.Add("sequence_summary.summary.weight", {8, 8}, 50);
    model_.Add("sequence_summary.summary.bias", {8}, 51);
    model_.Add("logits_proj.weight", {2, 8}, 52);
    model_.Add("logits_proj.bias", {2}, 53);
  }
};

TEST_F(ImportHeadTest, ANextSentenceHeadComesAndGoesByteForByte) {
  AddHead();
  ASSERT_EQ(Import(), absl::OkStatus());
  ASSERT_TRUE(Export("again").ok());
  const auto reader = ckpt::SafetensorsReader::Open(At("again/model.safetensors")).value();
  EXPECT_EQ(reader.tensors().size(), model_.tensors.size());
  ExpectHas("again", model_.tensors);
}

TEST_F(ImportHeadTest, WithoutOneItIsDrawnAsForARunFromScratch) {
  options_.overrides.emplace_back("train.seed=5");
  model_.config["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
  model_.config["summary_activation"] = nullptr;
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Import(), absl::OkStatus());
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(said, HasSubstr("note: the next-sentence head is randomly initialised (train.seed)"));
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

TEST_F(ImportHeadTest, AnotherHeadIsRefused) {
  AddHead();
  model_.config["summary_type"] = "mean";
  ExpectModelRefused({"config.json", "'summary_type' is \"mean\", not \"last\"", "leave out"});
  model_.config["summary_type"] = "last";
  model_.config["summary_activation"] = nullptr;
  ExpectModelRefused({"'summary_activation' is \"none\", not \"tanh\""});
  model_.config.erase("summary_activation");
  model_.Remove("logits_proj.bias");
  ExpectModelRefused({"no tensor 'logits_proj.bias' [2]", "leave out objective.next_sentence"});
  model_.Add("logits_proj.bias", {3}, 1);
  ExpectModelRefused({"'logits_proj.bias' is [3]", "leave out objective.next_sentence"});
  model_.Remove("transformer.mask_emb");
  EXPECT_THAT(Import(), AllOf(Says("mask_emb"), Not(Says("objective"))));
}

TEST_F(ImportHeadTest, TheFirstStartCanNeitherAddNorDropIt) {
  ASSERT_EQ(Import(), absl::OkStatus());
  const RunConfig imported = ConfigOf();
  RunConfig now = imported;
  ASSERT_TRUE(ApplyOverride("objective.next_sentence=false", now).ok());
  for (const auto& [weights, wanted] : {std::pair(imported, now), std::pair(now, imported)}) {
    EXPECT_THAT(
        CheckFirstStart(options_.output, weights, wanted, {}),
        Exits(kExitUsage, absl::StrCat("import them again with --set objective.next_sentence=",
                                       wanted.objective.next_sentence ? "true" : "false")));
  }
}

TEST_F(ImportTest, SettingsComeFromTheFileAndTheModelFromTheWeights) {
  options_.config = At("my.toml");
  WriteFile(options_.config, "[optimizer]\nlearning_rate = 0.5\n[model]\nnum_layers = 2\n");
  options_.overrides = {"train.steps=7", "model.activation=gelu_erf"};
  ASSERT_EQ(Import(), absl::OkStatus());
  const RunConfig config = ConfigOf();
  EXPECT_EQ(config.model.model_dim, 8);
  EXPECT_EQ(config.model.head_dim, 4);
  EXPECT_EQ(config.model.activation, kernels::Activation::kGeluErf);
  EXPECT_EQ(config.optimizer.learning_rate, 0.5);
  EXPECT_EQ(config.train.steps, 7);
}

TEST_F(ImportTest, AModelSectionThatContradictsTheWeightsIsRefused) {
  model_.Write(options_.input);
  options_.config = At("my.toml");
  WriteFile(options_.config, "[model]\nnum_layers = 3\n");
  ExpectRefused(kExitUsage, {options_.config, "model.num_layers = 3", "model.num_layers = 2",
                             "config.json: n_layer"});
  options_.config.clear();
  options_.overrides = {"model.activation=relu"};
  ExpectRefused(kExitUsage, {"--set says model.activation = \"relu\"", "ff_activation"});
  options_.overrides = {"model.segments=none"};
  ExpectRefused(kExitUsage, {"model.segments = \"relative\""});
  options_.overrides = {"model.num_layer=2"};
  ExpectRefused(kExitUsage, {"did you mean 'model.num_layers'"});
}

TEST_F(ImportTest, AnImportedRunNeverStartsFromRandomWeights) {
  ASSERT_EQ(Import(), absl::OkStatus());
  EXPECT_TRUE(CheckResume(options_.output, ResumeMode::kRequired).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(CheckResume(options_.output, ResumeMode::kNever)));
  fs::remove_all(ckpt::CheckpointPath(options_.output, 0));
  EXPECT_TRUE(absl::IsDataLoss(CheckResume(options_.output, ResumeMode::kAuto)));
}

TEST_F(ImportTest, TheFirstStartMayChooseAllButModelAndVocabulary) {
  ASSERT_EQ(Import(), absl::OkStatus());
  const RunConfig imported = ConfigOf();
  data::DatasetIndex dataset;
  dataset.tokenizer_digest = DigestOf(*ReadWholeFile(Input("spiece.model"))).Hex();
  RunConfig now = imported;
  now.train.steps = 5;
  now.model.mem_len = 3;
  now.model.dropout = 0.3;
  EXPECT_TRUE(CheckFirstStart(options_.output, imported, now, dataset).ok());
  now.model.clamp_len = 12;
  EXPECT_THAT(CheckFirstStart(options_.output, imported, now, dataset),
              Exits(kExitUsage, "model.clamp_len = 12"));
  // tokenizer_config.json says do_lower_case.
  dataset.settings["case"] = "uncased";
  EXPECT_TRUE(CheckFirstStart(options_.output, imported, imported, dataset).ok());
  dataset.settings["case"] = "cased";
  EXPECT_THAT(CheckFirstStart(options_.output, imported, imported, dataset),
              Exits(kExitData, "spiece.model --case uncased"));
  dataset.tokenizer_digest = "another";
  EXPECT_THAT(CheckFirstStart(options_.output, imported, imported, dataset),
              Exits(kExitData, "anyorder prep --vocab " + options_.output + "/spiece.model"));
}

TEST_F(ImportTest, OutputsThatAreNotEmptyStayAsTheyAre) {
  model_.Write(options_.input);
  fs::create_directories(options_.output);
  WriteFile(options_.output + "/mine", "");
  ExpectRefused(kExitUsage, {"--output", "not an empty directory"});
  fs::remove(options_.output + "/mine");
  EXPECT_TRUE(Import().ok());
}

// In what way: SafetensorsTest.HeadersThatLieAreRefused.
TEST_F(ImportTest, DamagedWeightsAreNamed) {
  model_.Write(options_.input);
  const std::string weights = Input("model.safetensors");
  const std::string bytes = *ReadWholeFile(weights);
  for (const size_t length : {size_t{0}, size_t{100}, bytes.size() - 1}) {
    WriteFile(weights, bytes.substr(0, length));
    ExpectRefused(kExitData, {weights, "fetch or convert the weights again"});
  }
}

TEST_F(ImportTest, FilesThatAreMissingAreNamed) {
  ExpectRefused(kExitUsage, {"--input", "is not a directory"});
  model_.Write(options_.input);
  fs::remove(Input("spiece.model"));
  ExpectRefused(kExitData, {Input("spiece.model"), "is missing; copy it"});
  model_.Write(options_.input);
  fs::remove(Input("config.json"));
  ExpectRefused(kExitData, {Input("config.json"), "is missing"});
  model_.Write(options_.input);
  fs::remove(Input("model.safetensors"));
  ExpectRefused(kExitData, {"neither model.safetensors nor"});
  WriteFile(Input("pytorch_model.bin"), "pickle");
  ExpectRefused(kExitData, {"convert them first", "python3 /", "convert_bin.py " + options_.input});
}

}  // namespace
}  // namespace anyorder::launcher
