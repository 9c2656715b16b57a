// Which tokens of a text take part in kernel pooling: those of its words, without stop words. The
// network reads them all.

#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/string_view.h"

namespace anyorder {

class StopWords {
 public:
  // Holds none.
  StopWords() = default;
  // Holds `words`, in any letter case; ASCII letters only are told from their capitals.
  explicit StopWords(const std::vector<std::string>& words);
  // Articles, prepositions, pronouns, auxiliary verbs, conjunctions and question words of English.
  static StopWords English();

  // In lower case.
  const std::unordered_set<std::string>& words() const { return words_; }

  // The tokens to keep, ascending, of a text whose tokens are spelled by `pieces`, in which
  // U+2581 begins a word. Words that are stop words but for ASCII punctuation at their ends are
  // left out, and so are tokens of nothing but punctuation. If nothing would be left, all tokens
  // are: "to be or not to be" is a query.
  std::vector<int64_t> KeptTokens(const std::vector<absl::string_view>& pieces) const;

 private:
  std::unordered_set<std::string> words_;
};

}  // namespace anyorder
