// A text with blanks, or with words that are asked about, as a person writes it.
//
//   <mask>       a blank of unknown length
//   ___          the same: three underscores or more
//   {n}          a blank of n tokens
//   {{words}}    no blank: how probable are these words here?
//
// A backslash before one of { } _ < \ makes it an ordinary character, and is one itself before
// anything else. A { that begins none of these is a fault; a } alone, and up to two underscores,
// are ordinary.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace anyorder::launcher {

struct SourcePart {
  enum class Kind { kText, kBlank, kWords };
  Kind kind = Kind::kText;
  std::string text;       // kText, kWords: without escapes
  int64_t length = 0;     // kBlank: in tokens; 0: unknown
  int64_t character = 1;  // where it begins in what was written, from 1
};

struct BlankText {
  std::vector<SourcePart> parts;  // never two texts in a row, none of them empty

  bool has_words() const;
  // Its blanks or words, in their order.
  std::vector<const SourcePart*> gaps() const {
    std::vector<const SourcePart*> gaps;
    for (const SourcePart& part : parts)
      if (part.kind != SourcePart::Kind::kText) gaps.push_back(&part);
    return gaps;
  }
  // The text with these in the place of its blanks or words. REQUIRES: as many as gaps().
  std::string With(const std::vector<std::string>& words) const;
};

// `text` is UTF-8; a blank has at most `most_tokens`.
// Errors: InvalidArgument that names the character of the first fault; of a text that has neither
// blanks nor words, or both.
absl::StatusOr<BlankText> ParseBlankText(std::string_view text, int64_t most_tokens);

}  // namespace anyorder::launcher
