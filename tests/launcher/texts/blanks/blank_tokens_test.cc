// Blanks among tokens. The encoder here is greedy over a small vocabulary, which, like
// SentencePiece, splits text apart wherever no piece crosses.

#include "launcher/texts/blanks/blank_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<int32_t>;

constexpr char kMark[] = "\u2581";
constexpr int32_t kEnd = 1;

class GreedyVocabulary {
 public:
  explicit GreedyVocabulary(const std::vector<std::string>& texts) {
    pieces_ = {{"<unk>", data::PieceKind::kUnknown}, {"<eod>", data::PieceKind::kControl}};
    pieces_.push_back({"<eop>", data::PieceKind::kText});
    for (const std::string& text : texts) pieces_.push_back({text, data::PieceKind::kText});
  }
  const std::vector<data::VocabularyPiece>& pieces() const { return pieces_; }

  // The longest piece at each place; runs of what is in none are one unknown piece.
  Tokens Encode(const std::string& text) const {
    std::string marked;
    for (const absl::string_view word :
         absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty()))
      marked += kMark + std::string(word);
    Tokens tokens;
    for (size_t at = 0; at < marked.size();) {
      int32_t best = 0;
      size_t length = 0;
      for (size_t id = 3; id < pieces_.size(); ++id) {
        const std::string& piece = pieces_[id].text;
        if (piece.size() <= length || !absl::StartsWith(marked.substr(at), piece)) continue;
        best = static_cast<int32_t>(id);
        length = piece.size();
      }
      if (length == 0) length = 1;
      if (best != 0 || tokens.empty() || tokens.back() != 0) tokens.push_back(best);
      at += length;
    }
    return tokens;
  }
  std::string Name(const Tokens& tokens) const {
    std::vector<std::string> names;
    for (const int32_t token : tokens) names.push_back(pieces_[token].text);
    return absl::StrJoin(names, " ");
  }

  absl::StatusOr<GapText> Assemble(const std::string& text) const {
    const GapEncoder encoder(pieces_, kEnd, /*adds_space=*/true);
    const BlankText parsed = ParseBlankText(text, 64).value();
    std::vector<Tokens> encoded;
    for (const std::string& part : encoder.PartsToEncode(parsed)) encoded.push_back(Encode(part));
    return encoder.Assemble(parsed, encoded);
  }
  // "_the [2+] fox": + a blank that begins a word, - one that goes on, (words).
  std::string Drawn(const std::string& text) const {
    const auto assembled = Assemble(text);
    if (!assembled.ok()) return std::string(assembled.status().message());
    std::string drawn = Name(assembled->around[0]);
    for (size_t g = 0; g < assembled->gaps.size(); ++g) {
      const TokenGap& gap = assembled->gaps[g];
      drawn += gap.words.empty()
                   ? " [" + std::to_string(gap.length) + (gap.begins_word ? "+] " : "-] ")
                   : " (" + Name(gap.words) + ") ";
      drawn += Name(assembled->around[g + 1]);
    }
    return drawn;
  }

 private:
  std::vector<data::VocabularyPiece> pieces_;
};

const GreedyVocabulary& Usual() {
  static const GreedyVocabulary vocabulary({"\u2581", ".", ",", "a", "b", "c", "e", "l", "u", "n",
                                            "\u2581un", "able", "\u2581able", "\u2581cab",
                                            "\u2581b", "un", "ble"});
  return vocabulary;
}

TEST(GapEncoderTest, SpacesSayWhetherABlankBeginsAWord) {
  EXPECT_EQ(Usual().Drawn("un ___ able"), "\u2581un [0+] \u2581able");
  EXPECT_EQ(Usual().Drawn("un___ able"), "\u2581un [0-] \u2581able");
  EXPECT_EQ(Usual().Drawn("___ able"), "<eod> [0+] \u2581able");
  EXPECT_EQ(Usual().Drawn("  {3}"), "<eod> [3+] ");
  EXPECT_EQ(Usual().Drawn("un\t{3}"), "\u2581un [3+] ");
  EXPECT_EQ(Usual().Drawn("un {2} {1}{4}"), "\u2581un [2+]  [1+]  [4-] ");
}

TEST(GapEncoderTest, TextThatTouchesABlankHasNoWordMark) {
  EXPECT_EQ(Usual().Drawn("un ___able"), "\u2581un [0+] able");
  EXPECT_EQ(Usual().Drawn("___, un."), "<eod> [0+] , \u2581un .");
  EXPECT_EQ(Usual().Drawn("___.ble"), "<eod> [0+] . ble");
  EXPECT_EQ(Usual().Drawn("{1}able un{2}ble"), "<eod> [1+] able \u2581un [2-] ble");
}

TEST(GapEncoderTest, AVocabularyThatCannotEncodeApartIsToldSo) {
  const auto refused = [](const std::vector<std::string>& pieces) {
    return GreedyVocabulary(pieces).Drawn("\u8A9E ___able");
  };
  const std::string message = "the text that touches the end of the blank at character 3 cannot";
  // Words alone; or each mark is inside a longer piece.
  EXPECT_THAT(refused({"\u2581able", "\u2581."}), HasSubstr(message));
  EXPECT_THAT(refused({".", ".able", "able", "\u2581"}), HasSubstr(message));
  // Another one serves.
  EXPECT_EQ(GreedyVocabulary({".", ".able", "able", "\u2581", ")"}).Drawn("___able"),
            "<eod> [0+] able");
}

TEST(GapEncoderTest, WordsAreFoundInTheWholeText) {
  EXPECT_EQ(Usual().Drawn("un {{able}} un"), "\u2581un (\u2581able) \u2581un");
  EXPECT_EQ(Usual().Drawn("{{un}} able"), "<eod> (\u2581un) \u2581able");
  EXPECT_EQ(Usual().Drawn("un{{able}}"), "\u2581un (able) ");
  EXPECT_EQ(Usual().Drawn("{{un able}} un {{ un }}"),
            "<eod> (\u2581un \u2581able) \u2581un (\u2581un) ");
  EXPECT_EQ(Usual().Drawn("un {{b}}."), "\u2581un (\u2581b) .");
}

TEST(GapEncoderTest, APieceThatSpansTheEdgeBelongsToTheWords) {
  EXPECT_EQ(Usual().Drawn("c{{ab}}"), "<eod> (\u2581cab) ");
  EXPECT_EQ(Usual().Drawn("{{ca}}b un"), "<eod> (\u2581cab) \u2581un");
  const std::string message = "the words at character ";
  EXPECT_THAT(Usual().Drawn("{{ca}}{{b}}"), HasSubstr(message + "7 have no piece"));
  // Unknown characters that follow one another are one piece.
  EXPECT_EQ(Usual().Drawn("un {{\u8A9E}} un"), "\u2581un (\u2581 <unk>) \u2581un");
  EXPECT_THAT(Usual().Drawn("\u8A9E{{\u9806}}"), HasSubstr(message + "2 have no piece"));
}

TEST(GapTextTest, FillingKeepsPositions) {
  const auto text = Usual().Assemble("un {2} able{1}.").value();
  EXPECT_EQ(text.num_given(), 3);
  std::vector<int64_t> positions;
  EXPECT_EQ(Usual().Name(text.With({{5, 6}, {7}}, &positions)), "\u2581un , a \u2581able b .");
  EXPECT_THAT(positions, ElementsAre(1, 2, 4));
}

// Of a tokenizer.json: the space itself begins a word, and none is put before a text.
TEST(GapEncoderTest, ByteLevelTokensHaveTheSpaceBeforeAWord) {
  const std::vector<data::VocabularyPiece> pieces = {{"a"}, {" "}, {" a"}, {"."}, {".a"}};
  const GapEncoder encoder(pieces, kEnd, /*adds_space=*/false);
  const auto parts = [&](const char* text) {
    return encoder.PartsToEncode(ParseBlankText(text, 64).value());
  };
  EXPECT_THAT(parts("a ___ a"), ElementsAre("a", " a", ""));
  EXPECT_THAT(parts("a___a"), ElementsAre("a", "a", ""));
  EXPECT_THAT(parts("a\n___ ___"), ElementsAre("a\n", "", "", ""));
  const auto begins = [&](const char* text, const std::vector<Tokens>& encoded) {
    std::vector<bool> words;
    const auto assembled = encoder.Assemble(ParseBlankText(text, 64).value(), encoded);
    for (const TokenGap& gap : assembled->gaps) words.push_back(gap.begins_word);
    return words;
  };
  EXPECT_THAT(begins("a ___ a", {{0}, {2}, {}}), ElementsAre(true));
  EXPECT_THAT(begins("a___a", {{0}, {0}, {}}), ElementsAre(false));
  EXPECT_THAT(begins("___ ___", {{}, {}, {}, {}}), ElementsAre(false, true));
  const BlankRules rules(pieces);
  EXPECT_EQ(*rules.At(true, 0, 1), (std::vector<uint8_t>{1, 1, 0, 1, 1})) << "no space alone";
  EXPECT_EQ(*rules.At(false, 0, 2), (std::vector<uint8_t>{0, 1, 1, 0, 0}));
}

TEST(BlankRulesTest, SayWhichPiecesStandWhere) {
  const BlankRules rules(Usual().pieces());
  const auto allowed = [&](bool begins_word, int64_t index, int64_t length) {
    Tokens tokens;
    const std::vector<uint8_t>& banned = *rules.At(begins_word, index, length);
    for (size_t id = 0; id < banned.size(); ++id)
      if (banned[id] == 0) tokens.push_back(static_cast<int32_t>(id));
    return Usual().Name(tokens);
  };
  EXPECT_EQ(allowed(true, 0, 1), "\u2581un \u2581able \u2581cab \u2581b");
  EXPECT_EQ(allowed(true, 0, 2), "\u2581 \u2581un \u2581able \u2581cab \u2581b");
  EXPECT_EQ(allowed(false, 0, 1), ". , a b c e l u n able un ble");
  EXPECT_EQ(allowed(false, 0, 2), allowed(false, 0, 1));
  EXPECT_EQ(allowed(true, 1, 2),
            ". , a b c e l u n \u2581un able \u2581able \u2581cab \u2581b un ble");
  EXPECT_EQ(allowed(false, 1, 3), "\u2581 " + allowed(true, 1, 2));
  EXPECT_EQ(rules.LeastTokens(true), 1);
  EXPECT_EQ(rules.LeastTokens(false), 1);
}

TEST(BlankRulesTest, VocabulariesOfCharactersAndOfWordsHaveLimits) {
  const BlankRules characters(GreedyVocabulary({"\u2581", "a", "b"}).pieces());
  EXPECT_EQ(characters.LeastTokens(true), 2);
  EXPECT_EQ(characters.LeastTokens(false), 1);
  const BlankRules words(GreedyVocabulary({"\u2581able", "\u2581un"}).pieces());
  EXPECT_EQ(words.LeastTokens(true), 1);
  EXPECT_EQ(words.LeastTokens(false), 0);
}

}  // namespace
}  // namespace anyorder::launcher
