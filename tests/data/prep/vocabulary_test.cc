// What tokenizers' files say of their vocabulary, and what a user declares of it.

#include "data/prep/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/base/digest.h"
#include "tests/data/prep/corpus_text.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::data {
namespace {

using testing::ElementsAre;

constexpr char kByteLevel[] = R"({"added_tokens": [{"id": 3, "content": "<|end|>"}],
  "model": {"type": "BPE", "vocab": {"a": 0, "\u0120b": 1, "\u010a": 2}, "merges": []}})";

class VocabularyTest : public PrepFolderTest {
 protected:
  static DatasetVocabulary Parse(const std::string& json, const std::string& config = "",
                                 const std::string& special = "", const std::string& added = "") {
    return ParseHuggingFace(json, config, special, added, "tokenizer.json").value();
  }
  static void ExpectDamaged(const std::string& json, const std::string& message,
                            const std::string& config = "") {
    EXPECT_THAT(ParseHuggingFace(json, config, "", "", "t.json").status(),
                Fails(absl::IsDataLoss, message));
  }
  // TestModel, its special pieces renamed.
  static std::string OtherModel() {
    return absl::StrReplaceAll(TestModel(), {{"<mask>", "<hide>"},
                                             {"<cls>", "<xyz>"},
                                             {"<sep>", "<uvw>"},
                                             {"<eod>", "<fin>"},
                                             {"<pad>", "<nul>"}});
  }
};

TEST_F(VocabularyTest, RolesAreReadFromEveryFileThatNamesThem) {
  // In tokenizer_config.json alone: the token and its id.
  DatasetVocabulary read = Parse(kByteLevel, R"({"mask_token": "<m>", "eos_token": null,
      "added_tokens_decoder": {"6": {"content": "<m>"}, "3": {"content": "<|end|>"}}})");
  EXPECT_EQ(read.ids, (VocabIds{.mask = 6}));
  EXPECT_EQ(read.size, 7u);
  // There without the role: by the name that masks have.
  for (const char* mask : {"<|mdm_mask|>", "<|mask|>", "<mask>", "[MASK]"}) {
    read = Parse(kByteLevel,
                 absl::StrCat(R"({"added_tokens_decoder": {"9": {"content": ")", mask, R"("}}})"));
    EXPECT_EQ(read.ids, (VocabIds{.mask = 9})) << mask;
  }
  // The role in special_tokens_map.json, an object, and the id in tokenizer.json.
  read = Parse(kByteLevel, "", R"({"eos_token": {"content": "<|end|>"}, "pad_token": "<|end|>"})");
  EXPECT_EQ(read.ids, (VocabIds{.eos = 3, .pad = 3}));
  // The id in added_tokens.json.
  read = Parse(kByteLevel, R"({"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "a",
      "bos_token": "nowhere"})",
               "", R"({"[CLS]": 4, "[SEP]": 5})");
  EXPECT_EQ(read.ids, (VocabIds{.unk = 0, .cls = 4, .sep = 5}));
  EXPECT_EQ(read.size, 6u);
}

TEST_F(VocabularyTest, WordsBeginWhereTheirTokenizerMarksThem) {
  EXPECT_THAT(Parse(kByteLevel).is_start_piece, ElementsAre(false, true, true, true));
  EXPECT_THAT(Parse(R"({"model": {"type": "Unigram", "vocab": [["<unk>", 0], ["\u2581a", -1.5],
      ["a", -2], [".", -3]]}})")
                  .is_start_piece,
              ElementsAre(true, true, false, true));
  EXPECT_THAT(Parse(R"({"model": {"type": "WordPiece", "vocab": {"a": 0, "##a": 1, "[SEP]": 2}}})")
                  .is_start_piece,
              ElementsAre(true, false, true));
  // No piece says where words begin, so each token is one.
  EXPECT_THAT(
      Parse(R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 2}}})").is_start_piece,
      ElementsAre(true, true, true));
}

TEST_F(VocabularyTest, DamagedTokenizersAreNamed) {
  ExpectDamaged("{", "'t.json': it is not valid JSON (column 2: unexpected end");
  ExpectDamaged("{}", "'t.json': it is not Hugging Face's tokenizer.json");
  ExpectDamaged(R"({"model": {}})", "its model has no vocabulary");
  ExpectDamaged(R"({"model": {"vocab": {}}})", "its vocabulary is empty");
  ExpectDamaged(R"({"model": {"vocab": 3}})", "neither an object nor a list");
  ExpectDamaged(R"({"model": {"vocab": {"a": -1}}})", "'a' has id -1");
  ExpectDamaged(R"({"model": {"vocab": [3]}})", "entry 0 of its vocabulary");
  ExpectDamaged(kByteLevel, "tokenizer_config.json in the directory of 't.json' is", "[]");
  ExpectDamaged(kByteLevel, "is not by ids",
                R"({"added_tokens_decoder": {"x": {"content": "a"}}})");
  // Once, printing such a value ended the program.
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  ExpectDamaged(R"({"model": {"vocab": {"a": )" + deep + "}}}", "it is JSON that is nested deeper");
  ExpectDamaged(kByteLevel, "'t.json' is JSON that is nested deeper", R"({"a": )" + deep + "}");
}

TEST_F(VocabularyTest, DirectoriesAreReadWithWhatIsBesideTheTokenizer) {
  Store("tokenizer.json", kByteLevel);
  Store("tokenizer_config.json", R"({"eos_token": "<|end|>",
      "added_tokens_decoder": {"8": {"content": "<|mdm_mask|>"}}})");
  const DatasetVocabulary read = ReadVocabulary(folder_, {}).value();
  EXPECT_EQ(read.file, "tokenizer.json");
  EXPECT_EQ(read.size, 9u);
  EXPECT_EQ(read.ids, (VocabIds{.eos = 3, .mask = 8, .eod = 3}));
  EXPECT_EQ(read.declared, "");
  EXPECT_EQ(read.Digest(), DigestOf(kByteLevel).Hex());
  EXPECT_EQ(ReadVocabulary(folder_ + "/tokenizer.json", {}).value().ids, read.ids);
  // What only repeats the files changes nothing; what adds to them has another digest.
  EXPECT_EQ(ReadVocabulary(folder_, {.size = 9, .ids = {.mask = 8}}).value().Digest(),
            read.Digest());
  const DatasetVocabulary wider = ReadVocabulary(folder_, {.size = 16, .ids = {.sep = 12}}).value();
  EXPECT_EQ(wider.declared, "sep=12 vocab_size=16");
  EXPECT_EQ(wider.size, 16u);
  EXPECT_EQ(wider.is_start_piece.size(), 16u);
  EXPECT_NE(wider.Digest(), read.Digest());
  EXPECT_THAT(ReadVocabulary(folder_, {.size = 8, .ids = {}}).status(),
              Says("--vocab-size 8 is below the 9 ids of '"));
  std::filesystem::create_directory(folder_ + "/empty");
  EXPECT_THAT(ReadVocabulary(folder_ + "/empty", {}).status(),
              Says("holds no tokenizer.json, tokenizer.model or spiece.model"));
  for (const char* name : {"tokenizer_config.json", "tokenizer.json"}) {
    std::filesystem::rename(folder_ + "/" + name, folder_ + "/empty/" + name);
    std::filesystem::create_symlink("empty/" + std::string(name), folder_ + "/" + name);
    EXPECT_TRUE(ReadVocabulary(folder_, {}).ok());
    std::filesystem::remove(folder_ + "/" + name);
    std::filesystem::create_symlink("/dev/null", folder_ + "/" + name);
    EXPECT_THAT(ReadVocabulary(folder_, {}).status(), Says("which is not in its directory"));
    std::filesystem::remove(folder_ + "/" + name);
    std::filesystem::rename(folder_ + "/empty/" + name, folder_ + "/" + name);
  }
}

TEST_F(VocabularyTest, TextsAreCleanedAsTheModelsWere) {
  const auto mode_of = [](const std::string& path, const DeclaredVocabulary& declared = {}) {
    return std::string(ReadVocabulary(path, declared).value().cleaning.name());
  };
  const std::string own = Store("spiece.model", TestModel());
  const std::string other = Store("other.model", OtherModel());
  const auto given = [&] { return (*ReadGivenVocabulary(own, "", {}))->cleaning; };
  // Nothing is said: --tokenizer leaves text as it is written, --vocab means XLNet's.
  EXPECT_EQ(mode_of(own), "none");
  EXPECT_EQ(mode_of(other), "none");
  EXPECT_EQ(given().mode, CleanMode::kXlnet);
  // What a model of XLNet's layout was made with, as Hugging Face's files say it.
  Store("tokenizer_config.json", R"({"keep_accents": true, "do_lower_case": true})");
  EXPECT_EQ(mode_of(own), "accents");
  EXPECT_EQ(mode_of(other), "none");
  EXPECT_EQ(given().mode, CleanMode::kAccents);
  EXPECT_EQ(given().letter_case, LetterCase::kUncased);
  EXPECT_EQ(mode_of(own, {.clean = CleanMode::kXlnet}), "xlnet");
  Store("tokenizer_config.json", R"({"keep_accents": true, "remove_space": false})");
  EXPECT_EQ(given().mode, CleanMode::kNone);
  Store("tokenizer_config.json", R"({"keep_accents": false})");
  EXPECT_EQ(mode_of(own), "xlnet");
  // A run's digest tells how its texts were cleaned.
  for (const CleanMode mode : {CleanMode::kXlnet, CleanMode::kAccents, CleanMode::kNone}) {
    for (const std::string& path : {own, other}) {
      const DatasetVocabulary read = ReadVocabulary(path, {.clean = mode}).value();
      EXPECT_EQ(ReadVocabularyOf(path, read.Digest()).value().cleaning.mode, mode);
    }
  }
  EXPECT_EQ(ReadVocabularyOf(own, "another").value().cleaning.mode, CleanMode::kXlnet);
}

TEST_F(VocabularyTest, SentencePieceModelsWithOtherPiecesTakeDeclaredIds) {
  const std::string path = Store("other.model", OtherModel());
  EXPECT_THAT(Tokenizer::Load(OtherModel(), path).status(),
              Says("or use this one with --tokenizer"));
  // <s> and </s> are where they were; the end of a sequence ends documents, too.
  DatasetVocabulary read = ReadVocabulary(path, {}).value();
  EXPECT_EQ(read.file, "tokenizer.model");
  EXPECT_EQ(read.ids, (VocabIds{.unk = 0, .bos = 1, .eos = 2, .eod = 2, .eop = 8}));
  // A mask beyond the model's pieces.
  read = ReadVocabulary(path, {.size = 310, .ids = {.mask = 305}}).value();
  EXPECT_EQ(read.size, 310u);
  EXPECT_EQ(read.ids.mask, 305);
  const Tokenizer tokenizer = Tokenizer::LoadOther(read).value();
  EXPECT_EQ(tokenizer.vocab_size(), 310u);
  EXPECT_EQ(tokenizer.vocab_ids(), read.ids);
  std::vector<int32_t> ids, plain;
  ASSERT_TRUE(tokenizer.Encode("in 2000, or", ids).ok());
  ASSERT_EQ(tokenizer.bridge().Encode("in 2000, or", plain), "");
  EXPECT_EQ(ids, plain);
  // XLNet's layout stays what it is with --vocab.
  read = ReadVocabulary(TestModelPath(), {}).value();
  EXPECT_EQ(read.file, "spiece.model");
  EXPECT_EQ(read.ids, kXlnetVocabIds);
  EXPECT_NE(read.Digest(), DigestOf(TestModel()).Hex());
  read = ReadVocabulary(TestModelPath(), {.clean = CleanMode::kXlnet}).value();
  EXPECT_EQ(read.Digest(), DigestOf(TestModel()).Hex());
  EXPECT_THAT(ReadVocabulary(Store("x", "no model"), {}).status(),
              Says("x' is neither Hugging Face's tokenizer.json nor a SentencePiece model"));
}

}  // namespace
}  // namespace anyorder::data
