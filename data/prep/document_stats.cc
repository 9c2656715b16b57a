#include "data/prep/document_stats.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "core/base/unicode.h"

namespace anyorder::data {
namespace {

// Odd, so that multiplication by them loses nothing modulo 2^64.
constexpr uint64_t kHashFactorA = 0x9E3779B97F4A7C15u;
constexpr uint64_t kHashFactorB = 0xC2B2AE3D27D4EB4Fu;

uint64_t Power(uint64_t base, uint64_t exponent) {
  uint64_t result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

// Scripts written without spaces between words: there, each character counts as a word. Where they
// begin and end: Thai and Lao, Myanmar (three blocks), Khmer, those of the Tai (two), of Java and
// Bali (two), Batak, kana (two) and Bopomofo, Han, Yi, Vai, Tai Viet; of old texts.
constexpr char32_t kJoinedScripts[] = {
    0xE00,   0xF00,   0x1000,  0x10A0,  0x1780,  0x1800,  0x1950,  0x1AB0, 0x1B00, 0x1B80,
    0x1BC0,  0x1C00,  0x3040,  0x3130,  0x31A0,  0x3200,  0x3400,  0x4DC0, 0x4E00, 0xA4D0,
    0xA500,  0xA640,  0xA980,  0xAA00,  0xAA60,  0xAAE0,  0xF900,  0xFB00, 0xFF66, 0xFFA0,
    0x10000, 0x10100, 0x12000, 0x14680, 0x17000, 0x1B300, 0x20000, 0x40000};

bool IsWordByItself(char32_t c) {
  const auto* const end = std::upper_bound(std::begin(kJoinedScripts), std::end(kJoinedScripts), c);
  return (end - std::begin(kJoinedScripts)) % 2 == 1;
}

// What stands between words or syllables where others have a space: in Tibetan, in Ethiopic, and
// the one without width in Khmer, Thai and others.
bool IsWordSpace(char32_t c) {
  return IsUnicodeSpace(c) || c == 0x0F0B || c == 0x0F0C || c == 0x1361 || c == 0x200B;
}

bool IsLetterOrMark(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ME;
}

}  // namespace

const char* VerdictName(Verdict verdict) {
  constexpr const char* kNames[kNumVerdicts] = {"kept",       "short",          "few_letters",
                                                "long_words", "repeated_lines", "without_tokens",
                                                "duplicate"};
  return kNames[static_cast<int>(verdict)];
}

void DocumentStats::AddLine(std::string_view cleaned) {
  const Digest128 hash = DigestOf({cleaned.data(), cleaned.size()});
  totals.hash_a = totals.hash_a * kHashFactorA + hash.lo;
  totals.hash_b = totals.hash_b * kHashFactorB + hash.hi;
  ++totals.lines;
  totals.bytes += cleaned.size();
  if (line_hashes.size() < kMaxComparedLines) line_hashes.push_back(hash.lo);
  bool inside_word = false;
  for (size_t i = 0; i < cleaned.size();) {
    const unsigned char byte = static_cast<unsigned char>(cleaned[i]);
    const char32_t c = byte < 0x80 ? cleaned[i++] : NextCodePoint(cleaned, i);
    if (IsWordSpace(c)) {
      inside_word = false;
      continue;
    }
    ++totals.chars;
    totals.letters += IsLetterOrMark(c);
    const bool is_word = c >= 0x80 && IsWordByItself(c);
    totals.words += is_word || !inside_word;
    inside_word = !is_word;
  }
}

void DocumentStats::Append(const DocumentStats& next) {
  totals.hash_a = totals.hash_a * Power(kHashFactorA, next.totals.lines) + next.totals.hash_a;
  totals.hash_b = totals.hash_b * Power(kHashFactorB, next.totals.lines) + next.totals.hash_b;
  totals.lines += next.totals.lines;
  totals.bytes += next.totals.bytes;
  totals.words += next.totals.words;
  totals.chars += next.totals.chars;
  totals.letters += next.totals.letters;
  const size_t room = kMaxComparedLines - line_hashes.size();
  line_hashes.insert(line_hashes.end(), next.line_hashes.begin(),
                     next.line_hashes.begin() + std::min(room, next.line_hashes.size()));
}

Digest128 DocumentStats::Hash() const {
  const uint64_t words[3] = {totals.hash_a, totals.hash_b, totals.lines};
  return DigestOf({reinterpret_cast<const char*>(words), sizeof words});
}

Verdict DocumentStats::Judge(const FilterOptions& options) const {
  if (!options.enabled) return Verdict::kKeep;
  if (totals.words < options.min_words) return Verdict::kShort;
  const double chars = static_cast<double>(totals.chars);
  if (static_cast<double>(totals.letters) < options.min_letter_fraction * chars)
    return Verdict::kFewLetters;
  if (chars > options.max_mean_word_chars * static_cast<double>(totals.words))
    return Verdict::kLongWords;
  if (line_hashes.size() >= kMinComparedLines) {
    std::vector<uint64_t> sorted = line_hashes;
    std::sort(sorted.begin(), sorted.end());
    const auto distinct = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
    const double repeated = static_cast<double>(line_hashes.size()) - static_cast<double>(distinct);
    if (repeated > options.max_repeated_lines * static_cast<double>(line_hashes.size()))
      return Verdict::kRepeatedLines;
  }
  return Verdict::kKeep;
}

}  // namespace anyorder::data
