// Texts as ids: those that a dataset of the same text has, whatever the text holds.

#include "launcher/inference/run_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "data/dataset/dataset.h"
#include "data/prep/prep.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::vector<std::vector<int32_t>>;
using Texts = std::vector<std::string>;

constexpr char kDoing[] = "encoding the prompts";

class RunVocabularyTest : public ::testing::Test {
 protected:
  std::string At(const std::string& name) const { return folder_.path() + "/" + name; }
  // The tokens of each text in a dataset of them, made with the vocabulary `vocab` or its own.
  Ids OfDataset(const Texts& texts, data::LetterCase letter_case, const std::string& vocab) {
    std::ofstream file(At("texts.jsonl"));
    for (const std::string& text : texts) file << nlohmann::json({{"text", text}}) << "\n";
    file.close();
    data::PrepOptions prep;
    prep.inputs = {At("texts.jsonl")};
    prep.output = At(absl::StrCat("made", num_made_++));
    prep.vocab = vocab;
    prep.vocabulary.size = 300;
    prep.text.letter_case = letter_case;
    prep.text.filter.enabled = false;
    prep.text.drop_duplicates = false;
    prep.quiet = true;
    const auto made = data::RunPrep(prep);
    EXPECT_TRUE(made.ok()) << made.status();
    const auto dataset = data::Dataset::Open(prep.output).value();
    std::vector<int32_t> tokens(static_cast<size_t>(dataset->num_tokens()));
    EXPECT_TRUE(dataset->ReadTokens(0, dataset->num_tokens(), tokens.data()).ok());
    model_ = ReadWholeFile(prep.output + "/spiece.model").value();
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
  RunVocabulary Vocabulary(const std::string& letter_case) const {
    return RunVocabulary::Make("m", letter_case, model_).value();
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
  std::string model_;  // of the last dataset
};

TEST_F(RunVocabularyTest, IdsAreThoseOfADataset) {
  Texts texts;
  for (int i = 0; i < 400; ++i) {
    texts.push_back(RandomLine());
    for (int line = Random(3); line > 0; --line) texts.back() += "\n" + RandomLine();
  }
  const Ids cased = OfDataset(texts, data::LetterCase::kCased, "");
  std::ofstream(At("model"), std::ios::binary) << model_;
  const Ids uncased = OfDataset(texts, data::LetterCase::kUncased, At("model"));
  EXPECT_TRUE(Vocabulary("cased").Encode(texts, kDoing).value() == cased);
  EXPECT_TRUE(Vocabulary("uncased").Encode(texts, kDoing).value() == uncased);
  EXPECT_FALSE(cased == uncased);
  EXPECT_THAT(Vocabulary("cased").Encode({}, kDoing).value(), IsEmpty());
  EXPECT_THAT(Vocabulary("cased").Encode({"", " \n\t\n"}, kDoing).value(),
              ElementsAre(IsEmpty(), IsEmpty()));
}

TEST_F(RunVocabularyTest, WhatIsNotUtf8IsReplacedAndNulIsRefused) {
  OfDataset({"ba ko mi " + Word(), RandomLine()}, data::LetterCase::kCased, "");
  const RunVocabulary vocabulary = Vocabulary("cased");
  const std::string mark = "\uFFFD";
  const Texts valid = {"ba" + mark + "ko", mark, "ko " + mark + mark + " mi"};
  EXPECT_EQ(vocabulary.Encode({"ba\xFFko", "\x80", "ko \xFF\xFE mi"}, kDoing).value(),
            vocabulary.Encode(valid, kDoing).value());
  const absl::Status nul = vocabulary.Encode({"ba", std::string("ko\0mi", 5)}, kDoing).status();
  EXPECT_EQ(nul, absl::FailedPreconditionError(
                     "encoding the prompts: byte 2 of text 2 is NUL; remove it"));
}

TEST_F(RunVocabularyTest, AFileThatIsNoModelIsRefused) {
  OfDataset({RandomLine()}, data::LetterCase::kCased, "");
  for (const std::string& bytes :
       {std::string(), std::string("no model"), model_.substr(0, model_.size() / 2)}) {
    const absl::Status refused = RunVocabulary::Make("m", "cased", bytes).status();
    EXPECT_EQ(ExitStatusFor(refused), kExitData);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("'m' is not a SentencePiece model ("));
  }
}

// Control pieces, <unk>, <eop> and pieces that no text uses are in no text; bytes are themselves.
TEST(TextOfPiecesTest, OnlyPiecesOfTextBecomeText) {
  using data::PieceKind;
  const std::vector<data::VocabularyPiece> pieces = {
      {"<unk>", PieceKind::kUnknown},   {"<eod>", PieceKind::kControl},
      {"<eop>", PieceKind::kText},      {"(", PieceKind::kText},
      {"\u2581word", PieceKind::kText}, {"<0x41>", PieceKind::kByte},
      {"spare", PieceKind::kUnused},
  };
  std::vector<bool> is_text;
  for (const data::VocabularyPiece& piece : pieces) is_text.push_back(piece.is_text());
  EXPECT_EQ(is_text, (std::vector<bool>{false, false, false, true, true, true, false}));
  EXPECT_EQ(TextOfPieces(pieces, {0, 1, 2, 3, 4, 5, 6}), "( wordA");
}

}  // namespace
}  // namespace anyorder::launcher
