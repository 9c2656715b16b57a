#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/philox.h"
#include "core/base/unicode.h"
#include "data/prep/examples/origin_writer.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/corpus_text.h"

namespace anyorder::data {
namespace {

using testing::ElementsAre;

constexpr char kMark[] = "\xE2\x96\x81";

const Tokenizer& TestTokenizer() {
  static const Tokenizer& tokenizer = *new Tokenizer(Tokenizer::Load(TestModel(), "model").value());
  return tokenizer;
}

AlignedText Align(const std::string& text, const Cleaning& cleaning = {}) {
  return EncodeAligned(TestTokenizer(), text, cleaning).value();
}

// What of the text the tokens are, without white space.
std::vector<std::string> Pieces(const std::string& text) {
  std::vector<std::string> pieces;
  for (const CharacterRange& range : Align(text).ranges) {
    if (range.begin < range.end) pieces.emplace_back(CharactersOf(text, range));
  }
  return pieces;
}

TEST(PassageAlignmentTest, TokensHaveTheCharactersTheyWereMadeOf) {
  // Unknown to the model, so that each is one token.
  EXPECT_THAT(Pieces("\xE6\x97\xA5  \xF0\x9F\x98\x80"),
              ElementsAre("\xE6\x97\xA5", "\xF0\x9F\x98\x80"));
  // An accent belongs to what it stands on, composed or not.
  EXPECT_EQ(Pieces("caf\xC3\xA9").back().substr(Pieces("caf\xC3\xA9").back().size() - 2),
            "\xC3\xA9");
  EXPECT_EQ(Pieces("cafe\xCC\x81 x")[Pieces("cafe x").size() - 2].back(), '\x81');
  // Both tokens of a ligature have it.
  const std::string fluff = "\xEF\xAC\x82";
  const AlignedText ligature = Align(fluff);
  for (const CharacterRange& range : ligature.ranges) {
    if (range.begin < range.end) {
      EXPECT_EQ(range, (CharacterRange{0, 1}));
    }
  }
  // Two characters that become one.
  EXPECT_EQ(Pieces("``").front(), "``");
}

TEST(PassageAlignmentTest, NumbersAreApartFromTheirCommas) {
  for (const std::string text : {"he had 2000, or 1999,", "1,234, 5", "x7, y"}) {
    std::string joined;
    for (const std::string& piece : Pieces(text)) {
      EXPECT_TRUE(piece == "," || piece.back() != ',') << text << ": " << piece;
      joined += piece;
    }
    std::string bare = text;
    std::erase(bare, ' ');
    EXPECT_EQ(joined, bare);
  }
}

// Text of what is hard to map, which begins and ends with anything.
std::string NastyText(RandomStream& random) {
  static const std::vector<std::string> parts = absl::StrSplit(
      "a|the|2000,|1,|'|``|''| |  |\t\n |\xC2\xA0|\xE3\x80\x80|e\xCC\x81|\xC3\xA9|\xCC\x81|"
      "\xEF\xAC\x81|\xEF\xAC\x83|\xC2\xBD|\xE2\x84\xA2|\xE6\x97\xA5\xE6\x9C\xAC|\xEA\xB0\x80|"
      "\xF0\x9F\x98\x80|\xE2\x80\x8B|\xEF\xB7\xBA|\xC4\xB0|\xCE\xA3|O\xCC\x88|<eop>|.|(|-|"
      "\xE2\x82\xAC|\xEF\xBC\x91|\xE2\x96\x81|\xD7\xA9\xD6\xB8|<sep>",
      '|');
  std::string text;
  for (uint32_t i = 1 + random.Below(12); i > 0; --i)
    text += parts[random.Below(static_cast<uint32_t>(parts.size()))];
  return text;
}

// Whether the character, alone, is of white space or dropped.
bool Vanishes(std::string_view character) {
  std::string cleaned;
  CleanLine(character, {}, cleaned);
  return cleaned.empty() || cleaned == kMark || cleaned == "\xE2\x80\x8B";
}

bool IsSpace(const std::string& text, int64_t character) {
  size_t at = 0;
  return IsUnicodeSpace(NextCodePoint(CharactersOf(text, {character, character + 1}), at));
}

// Whether a token beside these has a character of theirs.
bool SharesItsEnds(const std::vector<CharacterRange>& ranges, const TokenRange& tokens) {
  const bool at_begin =
      tokens.begin > 0 && ranges[tokens.begin - 1].end > ranges[tokens.begin].begin;
  const bool at_end =
      tokens.end < std::ssize(ranges) && ranges[tokens.end].begin < ranges[tokens.end - 1].end;
  return at_begin || at_end;
}

// Cleaned, then as the model itself normalises: NFKC, and no white space but single spaces within.
std::string Composed(std::string_view text, const Cleaning& cleaning) {
  std::string cleaned, composed;
  CleanLine(text, cleaning, cleaned);
  utf8proc_uint8_t* const normal =
      utf8proc_NFKC(reinterpret_cast<const utf8proc_uint8_t*>(cleaned.c_str()));
  CleanLine(reinterpret_cast<const char*>(normal), {.mode = CleanMode::kAccents}, composed);
  std::free(normal);
  return composed;
}

class NastyTextTest : public testing::TestWithParam<Cleaning> {};

TEST_P(NastyTextTest, AlignmentIsSound) {
  RandomStream random(17, RandomPurpose::kPrep, 0, 0);
  int compared = 0;
  for (int repeat = 0; repeat < 3000; ++repeat) {
    const std::string text = NastyText(random);
    const AlignedText aligned = Align(text, GetParam());
    const std::vector<CharacterRange>& ranges = aligned.ranges;
    std::string cleaned;
    CleanLine(text, GetParam(), cleaned);
    std::vector<int32_t> ids;
    ASSERT_TRUE(TestTokenizer().Encode(cleaned, ids).ok());
    ASSERT_EQ(aligned.ids, ids) << text;
    ASSERT_EQ(ranges.size(), ids.size());
    const int64_t count = NumCharacters(text);
    for (size_t i = 0; i < ranges.size(); ++i) {
      ASSERT_TRUE(0 <= ranges[i].begin && ranges[i].begin <= ranges[i].end &&
                  ranges[i].end <= count)
          << text;
      ASSERT_TRUE(i == 0 ||
                  (ranges[i - 1].begin <= ranges[i].begin && ranges[i - 1].end <= ranges[i].end))
          << text << " token " << i;
      if (ranges[i].begin == ranges[i].end) continue;
      ASSERT_FALSE(IsSpace(text, ranges[i].begin) || IsSpace(text, ranges[i].end - 1)) << text;
    }
    // Each character that does not vanish is in a token.
    for (int64_t c = 0; c < count; ++c) {
      const TokenRange tokens = TokensOf(ranges, {c, c + 1});
      ASSERT_TRUE(tokens.begin < tokens.end || Vanishes(CharactersOf(text, {c, c + 1})))
          << text << " character " << c;
    }
    // An answer is the fewest tokens that have its characters; where its ends are those of tokens,
    // exactly these.
    const auto begin = static_cast<int64_t>(random.Below64(count));
    const int64_t end = begin + 1 + static_cast<int64_t>(random.Below64(count - begin));
    const TokenRange tokens = TokensOf(ranges, {begin, end});
    const auto shares = [&](int32_t token) {
      return std::max(begin, ranges[token].begin) < std::min(end, ranges[token].end);
    };
    for (int32_t token = 0; token < std::ssize(ranges); ++token) {
      const bool is_inside = token >= tokens.begin && token < tokens.end;
      if (!is_inside) {
        ASSERT_FALSE(shares(token)) << text;
      }
    }
    if (tokens.begin == tokens.end) continue;
    ASSERT_TRUE(shares(tokens.begin) && shares(tokens.end - 1)) << text;
    const CharacterRange answer{ranges[tokens.begin].begin, ranges[tokens.end - 1].end};
    // A character of the answer may be that of a neighbour, too, which then comes with it.
    if (SharesItsEnds(ranges, tokens)) continue;
    EXPECT_EQ(TokensOf(ranges, answer), tokens) << text;
    ++compared;
  }
  EXPECT_GT(compared, 1000);
}

// Independent of the ranges: the characters of some tokens, cleaned by themselves, spell the same
// as the tokens.
TEST_P(NastyTextTest, CharactersOfTokensSpellThem) {
  RandomStream random(18, RandomPurpose::kPrep, 0, 0);
  int compared = 0;
  for (int repeat = 0; repeat < 3000; ++repeat) {
    const std::string text = NastyText(random);
    // SentencePiece composes what cleaning decomposed, and drops characters of no width.
    if (text.find("\xEA\xB0\x80") != std::string::npos ||
        text.find("\xE2\x80\x8B") != std::string::npos ||
        text.find("\xEF\xB7\xBA") != std::string::npos || text.find(kMark) != std::string::npos)
      continue;
    const AlignedText aligned = Align(text, GetParam());
    const std::vector<CharacterRange>& ranges = aligned.ranges;
    if (ranges.empty()) continue;
    const size_t begin = random.Below64(ranges.size());
    const size_t end = begin + 1 + random.Below64(ranges.size() - begin);
    // A character that another token has, too, is spelt in part only; <unk> does not say what it
    // is.
    const TokenRange tokens{static_cast<int32_t>(begin), static_cast<int32_t>(end)};
    if (SharesItsEnds(ranges, tokens)) continue;
    std::string spelt;
    bool is_known = true;
    for (size_t i = begin; i < end; ++i) {
      const std::string piece = TestTokenizer().bridge().piece(aligned.ids[i]).text;
      is_known = is_known && piece != "<unk>";
      const bool is_marked = piece.starts_with(kMark);
      absl::StrAppend(&spelt, is_marked ? " " : "", is_marked ? piece.substr(3) : piece);
    }
    if (!is_known) continue;
    const std::string expected = Composed(spelt, GetParam());
    ASSERT_EQ(Composed(CharactersOf(text, {ranges[begin].begin, ranges[end - 1].end}), GetParam()),
              expected)
        << text;
    ++compared;
  }
  EXPECT_GT(compared, 300);
}

INSTANTIATE_TEST_SUITE_P(Cases, NastyTextTest,
                         testing::Values(Cleaning{}, Cleaning{LetterCase::kUncased},
                                         Cleaning{.mode = CleanMode::kAccents},
                                         Cleaning{LetterCase::kUncased, CleanMode::kNone}));

}  // namespace
}  // namespace anyorder::data
