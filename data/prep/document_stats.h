// What is known of a document besides its tokens: its hash, and the numbers the quality filter
// judges it by. All of it can be computed for two consecutive parts of a document and joined, so
// that workers may split one.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/digest.h"

namespace anyorder::data {

// A document that fails a test is dropped. Numbers are of the cleaned text.
struct FilterOptions {
  bool enabled = true;
  uint64_t min_words = 5;
  double min_letter_fraction = 0.5;   // letters and marks among the characters that are no spaces
  double max_mean_word_chars = 40.0;  // base64, minified code, tables without spaces
  double max_repeated_lines =
      0.5;  // lines equal to an earlier line, among the first kMaxComparedLines; see below
};

// Lines of a document that are compared with each other.
inline constexpr uint64_t kMaxComparedLines = 1024;
// Fewer lines than this say nothing about repetition.
inline constexpr uint64_t kMinComparedLines = 4;

// In the order in which the tests are made; a document is counted under the first it fails. Judge
// knows none of the last two.
enum class Verdict : uint32_t {
  kKeep,
  kShort,
  kFewLetters,
  kLongWords,
  kRepeatedLines,
  kWithoutTokens,
  kDuplicate
};
inline constexpr int kNumVerdicts = 7;
// "kept", "short", "few_letters", "long_words", "repeated_lines", "without_tokens", "duplicate"
const char* VerdictName(Verdict verdict);

struct DocumentStats {
  // Fixed-size part; stored as it is in work units (work_unit.h).
  struct Totals {
    uint64_t hash_a = 0;  // FORMAT.md, corpus_digest
    uint64_t hash_b = 0;
    uint64_t lines = 0;
    uint64_t bytes = 0;  // of the lines
    // Runs of non-spaces; of scripts without spaces between words each letter.
    uint64_t words = 0;
    uint64_t chars = 0;    // code points that are no spaces
    uint64_t letters = 0;  // of them, letters and marks
  } totals;
  std::vector<uint64_t> line_hashes;  // of the first kMaxComparedLines lines

  void AddLine(std::string_view cleaned);
  // Adds the part of the document that follows this one.
  void Append(const DocumentStats& next);

  Digest128 Hash() const;
  Verdict Judge(const FilterOptions& options) const;
};

}  // namespace anyorder::data
