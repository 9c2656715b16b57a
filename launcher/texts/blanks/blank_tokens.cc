#include "launcher/texts/blanks/blank_tokens.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/base/unicode.h"

namespace anyorder::launcher {
namespace {

using Tokens = std::vector<int32_t>;

bool BeginsWithSpace(const std::string& text) {
  size_t at = 0;
  return !text.empty() && IsUnicodeSpace(NextCodePoint(text, at));
}

bool EndsWithSpace(const std::string& text) {
  bool is_space = false;
  for (size_t at = 0; at < text.size();) is_space = IsUnicodeSpace(NextCodePoint(text, at));
  return is_space;
}

// Text around blanks: gaps + 1 parts, which may be empty.
std::vector<std::string> PartsAround(const BlankText& text) {
  std::vector<std::string> around(1);
  for (const SourcePart& part : text.parts) {
    if (part.kind == SourcePart::Kind::kText) {
      around.back() = part.text;
    } else {
      around.emplace_back();
    }
  }
  return around;
}

bool TouchesBlank(const std::vector<std::string>& around, size_t index) {
  return index > 0 && !around[index].empty() && !BeginsWithSpace(around[index]);
}

// A character that is a piece, and that no other piece has but as its last. Whatever follows it, a
// piece ends behind it, and the best pieces for what follows are the same as without it: the score
// of a segmentation is a sum over pieces, and merges do not cross a place that no piece crosses.
// So what is encoded behind it is encoded without a word mark, and exactly.
std::string FindJoiner(const std::vector<data::VocabularyPiece>& pieces) {
  for (const char candidate : std::string_view(".)(-,;:!?\"&*/")) {
    bool is_piece = false;
    bool is_crossed = false;
    for (const data::VocabularyPiece& piece : pieces) {
      if (!piece.is_text()) continue;
      is_piece |= piece.text.size() == 1 && piece.text[0] == candidate;
      const size_t at = piece.text.find(candidate);
      is_crossed |= at != std::string::npos && at + 1 < piece.text.size();
    }
    if (is_piece && !is_crossed) return std::string(1, candidate);
  }
  return "";
}

}  // namespace

Tokens GapText::With(const std::vector<Tokens>& inside, std::vector<int64_t>* positions) const {
  Tokens tokens = around[0];
  positions->clear();
  for (size_t g = 0; g < gaps.size(); ++g) {
    for (size_t i = 0; i < inside[g].size(); ++i)
      positions->push_back(static_cast<int64_t>(tokens.size() + i));
    tokens.insert(tokens.end(), inside[g].begin(), inside[g].end());
    tokens.insert(tokens.end(), around[g + 1].begin(), around[g + 1].end());
  }
  return tokens;
}

GapEncoder::GapEncoder(const std::vector<data::VocabularyPiece>& pieces, int32_t end_token,
                       bool adds_space)
    : pieces_(pieces),
      end_token_(end_token),
      adds_space_(adds_space),
      joiner_(adds_space ? FindJoiner(pieces) : "") {}

std::vector<std::string> GapEncoder::PartsToEncode(const BlankText& text) const {
  std::vector<std::string> parts;
  if (!text.has_words()) {
    parts = PartsAround(text);
    for (size_t i = 0; i < parts.size(); ++i) {
      std::string& part = parts[i];
      if (TouchesBlank(parts, i)) part.insert(0, joiner_);
      // The space before a word is its first token's. (Of SentencePiece, cleaning takes them all.)
      if (i + 1 < parts.size() && absl::EndsWith(part, " ")) part.pop_back();
      if (i > 0 && adds_space_ && absl::StartsWith(part, " ")) part.erase(0, 1);
    }
    parts.push_back(joiner_);
    return parts;
  }
  std::string whole;
  for (const SourcePart& part : text.parts) {
    const bool is_words = part.kind == SourcePart::Kind::kWords;
    if (is_words) parts.push_back(whole);
    whole += part.text;
    if (is_words) parts.push_back(whole);
  }
  parts.push_back(whole);
  return parts;
}

absl::StatusOr<GapText> GapEncoder::Assemble(const BlankText& text,
                                             const std::vector<Tokens>& encoded) const {
  absl::StatusOr<GapText> assembled =
      text.has_words() ? AssembleWords(text, encoded) : AssembleBlanks(text, encoded);
  if (assembled.ok() && assembled->around[0].empty()) assembled->around[0] = {end_token_};
  return assembled;
}

absl::StatusOr<GapText> GapEncoder::AssembleBlanks(const BlankText& text,
                                                   const std::vector<Tokens>& encoded) const {
  const std::vector<std::string> around = PartsAround(text);
  const std::vector<const SourcePart*> gaps = text.gaps();
  const Tokens& joiner = encoded.back();
  GapText assembled;
  for (size_t i = 0; i < around.size(); ++i) {
    Tokens tokens = encoded[i];
    if (adds_space_ && TouchesBlank(around, i)) {
      if (joiner.empty() || std::ranges::mismatch(joiner, tokens).in1 != joiner.end()) {
        return InvalidArgument("the text that touches the end of the blank at character ",
                               gaps[i - 1]->character,
                               " cannot be encoded apart from it by this vocabulary; put a space "
                               "between them");
      }
      tokens.erase(tokens.begin(), tokens.begin() + static_cast<int64_t>(joiner.size()));
    }
    assembled.around.push_back(std::move(tokens));
    if (i == gaps.size()) break;
    const bool begins_text = i == 0 && around[0].empty();
    const bool begins_word =
        adds_space_ ? begins_text || EndsWithSpace(around[i]) : absl::EndsWith(around[i], " ");
    assembled.gaps.push_back({.length = gaps[i]->length, .begins_word = begins_word});
  }
  return assembled;
}

// What the pieces spell, each unknown one as one byte that is in no text, and where each ends.
std::string GapEncoder::Spelled(const Tokens& tokens, std::vector<size_t>* ends) const {
  std::string spelled;
  for (const int32_t token : tokens) {
    const data::VocabularyPiece& piece = pieces_[static_cast<size_t>(token)];
    absl::StrAppend(&spelled, piece.kind == data::PieceKind::kUnknown ? "\x01" : piece.text);
    if (ends != nullptr) ends->push_back(spelled.size());
  }
  return spelled;
}

absl::StatusOr<GapText> GapEncoder::AssembleWords(const BlankText& text,
                                                  const std::vector<Tokens>& encoded) const {
  const Tokens& whole = encoded.back();
  std::vector<size_t> ends;
  const std::string spelled = Spelled(whole, &ends);
  const std::vector<const SourcePart*> gaps = text.gaps();
  GapText assembled;
  size_t done = 0;  // tokens
  for (size_t g = 0; g < gaps.size(); ++g) {
    const std::string before = Spelled(encoded[2 * g], nullptr);
    const std::string through = Spelled(encoded[2 * g + 1], nullptr);
    // Pieces of less of the text spell less of the same characters, whatever pieces they are.
    const bool is_found = absl::StartsWith(spelled, before) && absl::StartsWith(spelled, through);
    const auto first_behind = [&ends](size_t bytes) {
      return static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), bytes) - ends.begin());
    };
    const size_t begin = std::max(done, first_behind(before.size()));
    // The token that has the last byte, and those before it.
    const size_t end = through.empty() ? 0 : first_behind(through.size() - 1) + 1;
    if (!is_found || through.size() <= before.size() || begin >= end) {
      return InvalidArgument("the words at character ", gaps[g]->character,
                             " have no piece of the vocabulary to themselves; put the whole word "
                             "between {{ and }}");
    }
    assembled.around.emplace_back(whole.begin() + static_cast<int64_t>(done),
                                  whole.begin() + static_cast<int64_t>(begin));
    assembled.gaps.push_back({.words = {whole.begin() + static_cast<int64_t>(begin),
                                        whole.begin() + static_cast<int64_t>(end)}});
    done = end;
  }
  assembled.around.emplace_back(whole.begin() + static_cast<int64_t>(done), whole.end());
  return assembled;
}

BlankRules::BlankRules(const std::vector<data::VocabularyPiece>& pieces) {
  for (const bool is_first : {false, true}) {
    for (const bool begins_word : {false, true}) {
      for (const bool is_last : {false, true}) {
        std::vector<uint8_t> banned;
        for (const data::VocabularyPiece& piece : pieces) {
          banned.push_back(!piece.is_text() || (is_last && IsWordMark(piece)) ||
                           (is_first && BeginsWord(piece) != begins_word));
        }
        banned_[is_first][begins_word][is_last] =
            std::make_shared<const std::vector<uint8_t>>(std::move(banned));
      }
    }
  }
}

int64_t BlankRules::LeastTokens(bool begins_word) const {
  const auto fits = [&](int64_t index, int64_t length) {
    return std::ranges::count(*At(begins_word, index, length), 0) > 0;
  };
  if (fits(0, 1)) return 1;
  return fits(0, 2) && fits(1, 2) ? 2 : 0;
}

}  // namespace anyorder::launcher
