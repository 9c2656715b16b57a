// Which tokens of a text take part in kernel pooling: those of its words, without stop words. The
// network reads them all.

#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace anyorder {

inline constexpr absl::string_view kEnglishStopWords =
    "a an the this that these those "
    "about above across after against along among around as at before behind below beneath beside "
    "between beyond by despite down during except for from in inside into like near of off on onto "
    "out outside over past since than through throughout to toward towards under until up upon via "
    "with within without "
    "i me my mine myself you your yours yourself yourselves he him his himself she her hers "
    "herself it its itself we us our ours ourselves they them their theirs themselves "
    "am is are was were be been being do does did doing done have has had having can could may "
    "might must shall should will would "
    "and but if nor not or so then though although because while unless whether "
    "how what when where which who whom whose why "
    "all any both each either every few many more most much neither no none other others own same "
    "some such there here too very just only also again ever once";

class StopWords {
 public:
  // Holds none.
  StopWords() = default;
  // Holds `words`, in any letter case; ASCII letters only are told from their capitals.
  explicit StopWords(const std::vector<std::string>& words) {
    for (const std::string& word : words) words_.insert(PlainWord(word));
  }
  // Articles, prepositions, pronouns, auxiliary verbs, conjunctions and question words of English.
  static StopWords English() {
    return StopWords(std::vector<std::string>(absl::StrSplit(kEnglishStopWords, ' ')));
  }

  // In lower case.
  const std::unordered_set<std::string>& words() const { return words_; }

  // The tokens to keep, ascending, of a text whose tokens are spelled by `pieces`, in which
  // U+2581 begins a word. Words that are stop words but for ASCII punctuation at their ends are
  // left out, and so are tokens of nothing but punctuation. If nothing would be left, all tokens
  // are: "to be or not to be" is a query.
  std::vector<int64_t> KeptTokens(const std::vector<absl::string_view>& pieces) const {
    std::vector<int64_t> kept;
    size_t begin = 0;
    while (begin < pieces.size()) {
      std::string word(absl::StripPrefix(pieces[begin], kWordMark));
      size_t end = begin + 1;
      for (; end < pieces.size() && !absl::StartsWith(pieces[end], kWordMark); ++end)
        word.append(pieces[end].data(), pieces[end].size());
      word = PlainWord(word);
      const bool is_kept = !word.empty() && !words_.contains(word);
      for (size_t token = begin; token < end && is_kept; ++token)
        if (HasLetters(pieces[token])) kept.push_back(static_cast<int64_t>(token));
      begin = end;
    }
    if (!kept.empty()) return kept;
    kept.resize(pieces.size());
    std::iota(kept.begin(), kept.end(), int64_t{0});
    return kept;
  }

 private:
  static constexpr absl::string_view kWordMark = "\u2581";

  // Whether there is more than a word mark and ASCII punctuation.
  static bool HasLetters(absl::string_view piece) {
    piece = absl::StripPrefix(piece, kWordMark);
    return !std::all_of(piece.begin(), piece.end(), absl::ascii_ispunct);
  }

  // In lower case, without punctuation at its ends.
  static std::string PlainWord(absl::string_view word) {
    while (!word.empty() && absl::ascii_ispunct(word.front())) word.remove_prefix(1);
    while (!word.empty() && absl::ascii_ispunct(word.back())) word.remove_suffix(1);
    return absl::AsciiStrToLower(word);
  }

  std::unordered_set<std::string> words_;
};

}  // namespace anyorder
