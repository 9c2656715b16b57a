// Texts as ids: those that a dataset of the same text has, whatever the text holds.

#include "launcher/inference/run_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "data/dataset/dataset.h"
#include "data/prep/prep.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ids = std::vector<std::vector<int32_t>>;
using Texts = std::vector<std::string>;

constexpr char kDoing[] = "encoding the prompts";

class RunVocabularyTest : public ::testing::Test {
 protected:
  std::string At(const std::string& name) const { return folder_.path() + "/" + name; }
  // The tokens of each text in a dataset of them, made with the vocabulary `vocab` or its own.
  Ids OfDataset(const Texts& texts, const data::Cleaning& cleaning, const std::string& vocab) {
    std::ofstream file(At("texts.jsonl"));
    for (const std::string& text : texts) file << nlohmann::json({{"text", text}}) << "\n";
    file.close();
    data::PrepOptions prep;
    prep.inputs = {At("texts.jsonl")};
    prep.output = At(absl::StrCat("made", num_made_++));
    prep.vocab = vocab;
    prep.vocabulary.size = 300;
    prep.declared.letter_case = cleaning.letter_case;
    prep.declared.clean = cleaning.mode;
    prep.text.filter.enabled = false;
    prep.text.drop_duplicates = false;
    prep.quiet = true;
    EXPECT_EQ(data::RunPrep(prep).status(), absl::OkStatus());
    const auto dataset = data::Dataset::Open(prep.output).value();
    std::vector<int32_t> tokens(static_cast<size_t>(dataset->num_tokens()));
    EXPECT_TRUE(dataset->ReadTokens(0, dataset->num_tokens(), tokens.data()).ok());
    if (vocab.empty()) std::filesystem::copy_file(prep.output + "/spiece.model", At("model"));
    Ids ids(1);
    for (const int32_t token : tokens) {
      if (token == data::kXlnetVocabIds.eod) {
        ids.emplace_back();
      } else {
        ids.back().push_back(token);
      }
    }
    ids.pop_back();
    return ids;
  }
  RunVocabulary Vocabulary(const data::Cleaning& cleaning) const {
    data::DatasetVocabulary vocabulary = data::ReadVocabulary(At("model"), {}).value();
    vocabulary.cleaning = cleaning;
    return RunVocabulary::Make(vocabulary).value();
  }

  int Random(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }
  std::string Word() {
    std::string word;
    for (int i = Random(4) + 1; i > 0; --i)
      word += {"bdfgklmnprst"[Random(12)], "aeiou"[Random(5)]};
    return word;
  }
  // One line of valid UTF-8.
  std::string RandomLine() {
    static const Texts marks = {" ",      "\t",      "\"",         "\\",       "\1",    "{}",
                                "\u00e9", "\u8a9e",  "\U0001F600", ",",        "2,000", "1999,",
                                "\u2028", "X\u0301", "<eop>",      "</s><eod>"};
    std::string line = Word();
    for (int i = Random(20); i > 0; --i)
      line += Random(3) > 0 ? " " + Word() : marks[static_cast<size_t>(Random(16))];
    return line;
  }

  const uint32_t seed_ = std::random_device()();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, absl::StrCat("seed ", seed_)};
  std::mt19937 random_{seed_};
  const TemporaryDirectory folder_;
  int num_made_ = 0;
};

TEST_F(RunVocabularyTest, IdsAreThoseOfADataset) {
  Texts texts;
  for (int i = 0; i < 400; ++i) {
    texts.push_back(RandomLine());
    for (int line = Random(3); line > 0; --line) texts.back() += "\n" + RandomLine();
  }
  std::vector<Ids> all;
  for (const data::CleanMode mode :
       {data::CleanMode::kXlnet, data::CleanMode::kAccents, data::CleanMode::kNone}) {
    for (const data::LetterCase letter_case :
         {data::LetterCase::kCased, data::LetterCase::kUncased}) {
      const data::Cleaning cleaning{letter_case, mode};
      const Ids ids = OfDataset(texts, cleaning, all.empty() ? "" : At("model"));
      EXPECT_TRUE(Vocabulary(cleaning).Encode(texts, kDoing).value() == ids) << cleaning.name();
      EXPECT_EQ(std::count(all.begin(), all.end(), ids), 0) << cleaning.name();
      all.push_back(ids);
    }
  }
  EXPECT_THAT(Vocabulary({}).Encode({}, kDoing).value(), IsEmpty());
  EXPECT_THAT(Vocabulary({}).Encode({"", " \n\t\r\n"}, kDoing).value(),
              ElementsAre(IsEmpty(), IsEmpty()));

  // What is not UTF-8 is replaced, and NUL is refused.
  const RunVocabulary vocabulary = Vocabulary({});
  const std::string mark = "\uFFFD";
  const Texts valid = {"ba" + mark + "ko", mark, "ko " + mark + mark + " mi"};
  EXPECT_EQ(vocabulary.Encode({"ba\xFFko", "\x80", "ko \xFF\xFE mi"}, kDoing).value(),
            vocabulary.Encode(valid, kDoing).value());
  EXPECT_EQ(
      vocabulary.Encode({"ba", std::string("ko\0mi", 5)}, kDoing).status(),
      absl::FailedPreconditionError("encoding the prompts: byte 2 of text 2 is NUL; remove it"));
}

// With the stand-in of Hugging Face's package, of which a token is a byte.
TEST_F(RunVocabularyTest, ATokenizerJsonEncodesTextsAsTheyAreWritten) {
  ::setenv("PYTHONPATH", ANYORDER_STAND_IN, 1);
  std::ofstream(At("tokenizer.json")) << R"({"model": {"vocab": {"a": 98}}, "added_tokens": [
      {"id": 0, "content": "<|end|>"}, {"id": 257, "content": "<|mask|>"},
      {"id": 258, "content": "<|turn|>"}]})";
  std::ofstream(At("tokenizer_config.json")) << R"({"eos_token": "<|end|>"})";
  const RunVocabulary vocabulary =
      RunVocabulary::Make(data::ReadVocabulary(folder_.path(), {}).value(), 300).value();
  EXPECT_TRUE(vocabulary.is_huggingface());
  EXPECT_FALSE(vocabulary.adds_space());
  EXPECT_EQ(vocabulary.size(), 300);
  EXPECT_EQ(vocabulary.ids(), (data::VocabIds{.eos = 0, .mask = 257, .eod = 0}));

  const std::string text = "  \u65e5\u672c \U0001F600\n\n<|turn|> x ";
  const Ids ids = vocabulary.Encode({text, "", "\xFF"}, kDoing).value();
  ASSERT_EQ(ids[0].size(), text.size());
  EXPECT_EQ(vocabulary.TextOf(ids[0]), text);
  EXPECT_EQ(vocabulary.TextOf({ids[0][2], ids[0][3]}), text.substr(2, 2)) << "of three bytes";
  EXPECT_THAT(ids[1], IsEmpty());
  EXPECT_EQ(vocabulary.TextOf(ids[2]), "\uFFFD");
  // Special tokens are those of a chat template, or have a role and are no text.
  const std::string marked("b\0<|turn|>\0<|turn|>", 19);
  EXPECT_EQ(vocabulary.Encode({marked}, kDoing).value()[0].size(), 2 + 8u);
  EXPECT_EQ(vocabulary.TextOf({99, 258, 257, 0, 299}), "b<|turn|>");
  EXPECT_TRUE(vocabulary.pieces()[258].is_text());
  EXPECT_FALSE(vocabulary.pieces()[257].is_text());
  EXPECT_FALSE(vocabulary.pieces()[299].is_text());

  for (const auto& [bad, message] : {std::pair("kill me", "was ended by signal 9"),
                                     std::pair("refuse me", "cannot encode a text (no such")}) {
    const absl::Status status = vocabulary.Encode({bad}, kDoing).status();
    EXPECT_THAT(status, Says(message));
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith(kDoing));
    EXPECT_EQ(vocabulary.Encode({"a"}, kDoing).value(), (Ids{{98}})) << "by another process";
  }
  ::unsetenv("PYTHONPATH");
}

TEST_F(RunVocabularyTest, IdsOfAnUnknownTokenizerAreNoText) {
  const auto declared = data::VocabularyOf({.size = 9, .ids = {.eod = 1}}).value();
  EXPECT_TRUE(absl::IsFailedPrecondition(RunVocabulary::Make(declared).status()));
}

// Control pieces, <unk>, <eop> and pieces that no text uses are in no text; bytes are themselves.
TEST(TextOfPieceTest, OnlyPiecesOfTextBecomeText) {
  using data::PieceKind;
  const std::pair<data::VocabularyPiece, const char*> pieces[] = {
      {{"<unk>", PieceKind::kUnknown}, ""},
      {{"<eod>", PieceKind::kControl}, ""},
      {{"<eop>", PieceKind::kText}, ""},
      {{"(", PieceKind::kText}, "("},
      {{"\u2581word\u2581", PieceKind::kText}, " word "},
      {{"<0x41>", PieceKind::kByte}, "A"},
      {{"spare", PieceKind::kUnused}, ""},
  };
  for (const auto& [piece, text] : pieces) {
    EXPECT_EQ(TextOfPiece(piece), text);
    EXPECT_EQ(piece.is_text(), *text != '\0');
  }
}

}  // namespace
}  // namespace anyorder::launcher
