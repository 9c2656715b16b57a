// What `anyorder export` writes of any run, and how an export says what it is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/base/digest.h"
#include "core/base/dtype.h"
#include "core/base/status.h"
#include "launcher/huggingface/hf_model.h"
#include "launcher/huggingface/model_description.h"
#include "launcher/huggingface/tokenizer_files.h"
#include "tests/core/train/state/saved_run.h"
#include "tests/launcher/huggingface/exchange_directory.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ParseByteSizeTest, TakesTheUnitsOfHuggingFace) {
  const std::pair<const char*, int64_t> kSizes[] = {{"7", 7},
                                                    {"7B", 7},
                                                    {"2kb", 2000},
                                                    {"300MB", 300000000},
                                                    {"64KiB", 65536},
                                                    {"5GB", 5000000000},
                                                    {"1TiB", int64_t{1} << 40}};
  for (const auto& [text, bytes] : kSizes) {
    const auto parsed = ParseByteSize(text, "--max-shard-size").value();
    EXPECT_EQ(parsed, bytes) << text;
  }
  for (const char* text : {"", "0", "GB", "-1", "5XB", "1.5GB", "5 GB", "5G", "99999999999TB"}) {
    EXPECT_THAT(ParseByteSize(text, "--max-shard-size").status(),
                Exits(kExitUsage, absl::StrCat("--max-shard-size is '", text, "'")));
  }
}

// A run at step 0 whose weights are those of a hand-made model.
class ExportTest : public ::testing::Test, protected MadeModelDirectory {
 protected:
  // Returns what is said on stderr.
  std::string ImportWarned(const std::vector<std::string>& overrides = {}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(Import(overrides), absl::OkStatus());
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(ExportTest, RunsThatXlnetCannotBeGiveTheirWeightsUnderTheirNames) {
  EXPECT_THAT(ImportWarned(), IsEmpty());
  // The warning comes with the import, not when the training is done.
  EXPECT_THAT(ImportWarned({"objective.name=causal_lm"}),
              AllOf(HasSubstr("`anyorder export --format hf` will not be available"),
                    HasSubstr("objective.name is causal_lm"), HasSubstr("--format safetensors")));
  EXPECT_THAT(Export("x"), Exits(kExitData, "--format safetensors exports any"));

  ASSERT_EQ(ExportOurs("out"), absl::OkStatus());
  ExpectIs("out", model_.tensors);
  const Json config = JsonOf("out/config.json");
  EXPECT_EQ(config["model_type"], "anyorder");
  EXPECT_EQ(config["objective"], "causal_lm");
  EXPECT_EQ(config["causal"], true);
  EXPECT_EQ(config["vocab_size"], 14);
  EXPECT_EQ(config["network"]["num_layers"], 2);
  EXPECT_EQ(config["network"]["positions"], "relative");
  EXPECT_TRUE(config["windows"].is_null() && config["clusters"].is_null());
  EXPECT_TRUE(fs::exists(At("out/tokenizer.json")));
}

TEST_F(ExportTest, AnAverageIsWrittenUnlessTheWeightsAreAskedFor) {
  ASSERT_EQ(Import(), absl::OkStatus());
  const RunConfig config = ConfigOf();
  const ParameterLayout layout(config.model, 14);
  std::vector<float> master(layout.num_elements()), average(master.size());
  std::iota(master.begin(), master.end(), 1.0f);
  std::iota(average.begin(), average.end(), 0.5f);
  const auto with_vocabulary = [this](const std::string& metadata) {
    Json json = Json::parse(metadata);
    json["tokenizer_digest"] = DigestOf(SentencePieceModel(model_.pieces)).Hex();
    return json.dump();
  };
  ASSERT_EQ(SaveRun(At("run"), config, layout, master, with_vocabulary, average), absl::OkStatus());
  for (const ExportFormat format : {ExportFormat::kHuggingFace, ExportFormat::kSafetensors}) {
    for (const bool raw : {false, true}) {
      const std::string name = absl::StrCat(static_cast<int>(format), raw ? "raw" : "ema");
      ::testing::internal::CaptureStderr();
      const absl::Status exported = ExportModel({At("run"), -1, At(name), format, {}, raw});
      EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                  HasSubstr(raw ? "using the weights themselves, not their average"
                                : "using the average of the weights (optimizer.ema_decay"));
      ASSERT_EQ(exported, absl::OkStatus());
      const auto values = (raw ? master : average).begin();
      for (const ParameterInfo& info : layout.parameters())
        EXPECT_EQ(ValuesIn(name, info.name),
                  std::vector<float>(values + info.offset, values + info.end()));
    }
  }
}

TEST_F(ExportTest, WeightsInShardsAndRoundedComeBackByImport) {
  ASSERT_EQ(Import(), absl::OkStatus());
  const WeightFileOptions files = {.dtype = DType::kBFloat16, .max_shard_bytes = 400};
  ASSERT_TRUE(Export("parts", files).ok());
  EXPECT_EQ(JsonOf("parts/config.json")["torch_dtype"], "bfloat16");
  const Json index = JsonOf("parts/model.safetensors.index.json");
  std::set<std::string> names;
  for (const auto& [tensor, file] : index["weight_map"].items()) names.insert(file);
  EXPECT_GT(names.size(), 2u);
  int64_t total = 0;
  for (const std::string& name : names) {
    const auto part = ckpt::SafetensorsReader::Open(At("parts/" + name)).value();
    int64_t bytes = 0;
    for (const auto& tensor : part.tensors()) bytes += 2 * tensor.entry.shape.num_elements();
    EXPECT_TRUE(bytes <= 400 || part.tensors().size() == 1) << name << " has " << bytes;
    total += bytes;
  }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_EQ(index["weight_map"].size(), model_.tensors.size());

  ASSERT_EQ(ImportAs("run2", "parts"), absl::OkStatus());
  ASSERT_EQ(ExportModel({At("run2"), -1, At("again")}), absl::OkStatus());
  for (const HfTensor& tensor : model_.tensors) {
    std::vector<float> values = ValuesIn("hf", tensor.entry.name);
    for (float& value : values) value = static_cast<float>(BFloat16(value));
    EXPECT_EQ(ValuesIn("again", tensor.entry.name), values);
  }
}

TEST_F(ExportTest, WithoutItsDatasetOnlyTheTokenizerIsLeftOut) {
  ASSERT_EQ(Import({"objective.name=causal_lm"}), absl::OkStatus());
  Remove({"run/import"});  // as if it had been trained on shards that are gone
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ExportOurs("out"), absl::OkStatus());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the tokenizer is left out"));
  EXPECT_TRUE(fs::exists(At("out/model.safetensors")));
  EXPECT_FALSE(fs::exists(At("out/tokenizer.json")));
}

TEST_F(ExportTest, ADirectoryOfWeightsSaysWhatItIs) {
  ASSERT_EQ(Import(), absl::OkStatus());
  ASSERT_EQ(Export("hf2"), absl::OkStatus());
  ASSERT_EQ(
      ExportModel({At("run"), -1, At("out"), ExportFormat::kSafetensors, {.max_shard_bytes = 400}}),
      absl::OkStatus());
  for (const char* name : {"hf2", "out"}) {
    const std::string path = At(name);
    ASSERT_TRUE(IsModelDirectory(path));
    const auto json = DescribeModelDirectory(path, /*verify=*/true, /*with_tensors=*/true).value();
    EXPECT_EQ(json["kind"], "model");
    EXPECT_EQ(json["model_type"], name == std::string("out") ? "anyorder" : "xlnet");
    EXPECT_EQ(json["num_tensors"], model_.tensors.size());
    EXPECT_EQ(json["tensors"].size(), model_.tensors.size());
    EXPECT_EQ(json["dtype"], "F32");
    EXPECT_EQ(json["tokenizer"].size(), 3u);
    EXPECT_THAT(json["verified"].get<std::string>(), HasSubstr("every value was read"));
  }
  const float infinity = INFINITY;
  std::memcpy(model_.Tensor("transformer.mask_emb").bytes.data() + 8, &infinity, sizeof infinity);
  WriteSafetensors(At("hf2/model.safetensors"), model_.tensors);
  EXPECT_TRUE(DescribeModelDirectory(At("hf2"), /*verify=*/false, /*with_tensors=*/true).ok());
  EXPECT_THAT(DescribeModelDirectory(At("hf2"), /*verify=*/true, /*with_tensors=*/true).status(),
              Exits(kExitData, "'transformer.mask_emb' holds inf as element 2"));
}

TEST_F(ExportTest, ImportNamesTheFormatThatFitsItsInput) {
  ASSERT_EQ(Import(), absl::OkStatus());
  ASSERT_EQ(ExportOurs("out"), absl::OkStatus());
  EXPECT_THAT(ImportAs("new", "run"), Says("is a run directory; use --format run"));
  EXPECT_THAT(ImportAs("new", "out"), Says("import the run itself with --format run"));
  ImportRunOptions run;
  run.input = At("hf");
  run.output = At("new");
  EXPECT_THAT(ImportRun(run), Says("use --format hf"));
}

TEST_F(ExportTest, ImportSaysHowMuchItReadsWritesAndWillTrain) {
  ASSERT_EQ(Import({"train.steps=1000"}), absl::OkStatus());
  EXPECT_THAT(said_, AllOf(HasSubstr(absl::StrCat("reading ", model_.tensors.size(), " tensors, ")),
                           HasSubstr("writing the first checkpoint, "),
                           HasSubstr("training: 1000 steps of 32 sequences of 512 tokens"),
                           HasSubstr("16384000 tokens in all; about ")));
}

// tokenizer.json; that it gives the same ids is tests/parity/tokenizer_parity.py's.
Vocabulary XlnetVocabulary() {
  Vocabulary vocabulary;
  data::SentencePieceBridge bridge;
  EXPECT_EQ(bridge.Load(SentencePieceModel(HfDirectory().pieces)), "");
  vocabulary.pieces = bridge.pieces();
  for (const char* text : {"\u2581\x31,", "\u0663,", ","})
    vocabulary.pieces.push_back({text, data::PieceKind::kText, -3.0f});
  vocabulary.rules.charsmap = "map";
  return vocabulary;
}
Json Text(const Vocabulary& vocabulary, const TokenizerSettings& settings) {
  return Json::parse(TokenizerText(vocabulary, settings).value());
}

TEST(TokenizerTextTest, KeepsIdsAndScoresButForWhatTextNeverBecomes) {
  const Json json = Text(XlnetVocabulary(), {.cleaning = {data::LetterCase::kUncased}});
  const Json& vocab = json["model"]["vocab"];
  EXPECT_EQ(json["model"]["type"], "Unigram");
  ASSERT_EQ(vocab.size(), 17u);
  EXPECT_EQ(vocab[8], Json({"<eop>", -1.0})) << "a piece like any other";
  EXPECT_EQ(vocab[6][1], -101.0) << "<mask>";
  EXPECT_EQ(vocab[14][1], -103.0) << "the digit-comma rule";
  EXPECT_EQ(vocab[15][1], -103.0) << "of any script's digits";
  EXPECT_EQ(vocab[16][1], -3.0) << "a comma alone";
  EXPECT_EQ(json["added_tokens"].size(), 8u);
  const std::string normalizer = json["normalizer"].dump();
  EXPECT_THAT(normalizer, AllOf(HasSubstr("\"Lowercase\""), HasSubstr("\\\\x{300}-\\\\x{34e}"),
                                HasSubstr("\"precompiled_charsmap\":\"bWFw\"")));
  EXPECT_EQ(Text(XlnetVocabulary(), {})["normalizer"].dump().find("Lowercase"), std::string::npos);
}

TEST(TokenizerTextTest, CleansTextAsItWasCleaned) {
  const TemporaryDirectory folder;
  for (const data::CleanMode mode :
       {data::CleanMode::kXlnet, data::CleanMode::kAccents, data::CleanMode::kNone}) {
    Vocabulary vocabulary = XlnetVocabulary();
    const TokenizerSettings settings{.cleaning = {.mode = mode}};
    const bool is_none = mode == data::CleanMode::kNone;
    const Json json = Text(vocabulary, settings);
    const std::string normalizer = json["normalizer"].dump();
    EXPECT_EQ(absl::StrContains(normalizer, "NFKD"), mode == data::CleanMode::kXlnet);
    EXPECT_EQ(absl::StrContains(normalizer, "``"), !is_none);
    EXPECT_THAT(normalizer, HasSubstr("\" +\""));
    EXPECT_FALSE(json["pre_tokenizer"].is_null());
    EXPECT_EQ(json["model"]["vocab"][14][1], is_none ? -3.0 : -103.0) << "the digit-comma rule";
    // Of a model that keeps spaces.
    vocabulary.rules.keeps_spaces = true;
    EXPECT_THAT(Text(vocabulary, settings)["normalizer"].dump(), Not(HasSubstr("\" +\"")));
    EXPECT_TRUE(Text(vocabulary, settings)["pre_tokenizer"].is_null());
    // Who imports the files, or prepares text with the model, finds the mode again.
    ASSERT_TRUE(WriteTokenizerFiles(vocabulary, settings, folder.path()).ok());
    const Json config =
        Json::parse(*ReadWholeFile(folder.path() + "/tokenizer_config.json", kMaxTextBytes));
    EXPECT_EQ(config["keep_accents"], mode != data::CleanMode::kXlnet);
    EXPECT_EQ(config["remove_space"], !is_none);
  }
}

TEST(TokenizerTextTest, FramesTextsAsTheObjectiveReadsThem) {
  const auto single = [&](const char* objective) {
    return absl::StrReplaceAll(
        Text(XlnetVocabulary(), {.objective = objective})["post_processor"]["single"].dump(),
        {{"\"", ""}});
  };
  EXPECT_EQ(single(""),
            "[{Sequence:{id:A,type_id:0}},{SpecialToken:{id:<sep>,type_id:0}},"
            "{SpecialToken:{id:<cls>,type_id:2}}]");
  EXPECT_EQ(single("permutation_lm"), single(""));
  EXPECT_EQ(single("bert").substr(0, 41), "[{SpecialToken:{id:<cls>,type_id:0}},{Seq");
  EXPECT_TRUE(Text(XlnetVocabulary(), {.objective = "gpt"})["post_processor"].is_null());
}

TEST(TokenizerTextTest, OtherVocabulariesAreExpressedOrRefused) {
  Vocabulary words = XlnetVocabulary();
  words.rules.type = data::ModelType::kWords;
  const Json json = Text(words, {});
  EXPECT_EQ(json["model"]["type"], "WordLevel");
  EXPECT_EQ(json["model"]["vocab"]["p9"], 9);
  words.rules.type = data::ModelType::kBpe;
  EXPECT_TRUE(absl::IsUnimplemented(TokenizerText(words, {}).status()));
  words = XlnetVocabulary();
  words.rules.has_xlnet_spaces = false;
  EXPECT_TRUE(absl::IsUnimplemented(TokenizerText(words, {}).status()));
}

// The roles are those that the dataset knows, whatever the file calls the tokens; the file itself
// is copied byte for byte.
TEST(OtherTokenizerTest, ItsFileIsCopiedAndItsRolesAreNamed) {
  const TemporaryDirectory folder;
  const std::string source = folder.path() + "/source.json";
  const std::string added =
      R"("added_tokens": [{"id": 4, "content": "<|hide|>"}, {"id": 0, "content": "<s>"}])";
  const std::string models[] = {R"({"vocab": {"a": 2, "[S]": 0, "b": 3, "<end>": 1}})",
                                R"({"vocab": [["[S]", -1.5], ["<end>", -1], ["a", 0], ["b", 0]]})"};
  for (const std::string& model : models) {
    const std::string text = absl::StrCat("{", added, ",  \"model\": ", model, "}\n");
    ASSERT_TRUE(WriteFileAtomically(source, text).ok());
    const data::VocabIds ids = {.bos = 0, .eos = 1, .pad = 7, .mask = 4, .eod = 1, .eop = 2};
    ASSERT_EQ(WriteOtherTokenizerFiles(source, ids, 48, folder.path()), absl::OkStatus());
    EXPECT_EQ(ReadWholeFile(folder.path() + "/tokenizer.json", kMaxTextBytes).value(), text);
    EXPECT_EQ(
        Json::parse(ReadWholeFile(folder.path() + "/tokenizer_config.json", kMaxTextBytes).value()),
        Json({{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"clean_up_tokenization_spaces", false},
              {"model_max_length", 48},
              {"bos_token", "<s>"},
              {"eos_token", "<end>"},
              {"mask_token", "<|hide|>"}}));
  }
  ASSERT_TRUE(WriteFileAtomically(source, "[").ok());
  EXPECT_THAT(WriteOtherTokenizerFiles(source, {}, 48, folder.path()),
              Fails(absl::IsDataLoss, "not valid JSON (column 2: unexpected end",
                    "; prepare the data again"));
}

}  // namespace
}  // namespace anyorder::launcher
