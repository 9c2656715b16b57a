#include "launcher/process/shell_words.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace anyorder::launcher {

std::string ShellQuote(absl::string_view word) {
  const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char letter) {
    return absl::ascii_isalnum(static_cast<unsigned char>(letter)) ||
           absl::StrContains("_-+=./,:@%", letter);
  });
  return is_plain ? std::string(word)
                  : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

std::string ShellCommand(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " ", [](std::string* out, const std::string& word) {
    absl::StrAppend(out, ShellQuote(word));
  });
}

}  // namespace anyorder::launcher
