#include "launcher/process/shell_words.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "core/base/whole_file.h"

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

std::string TypedCommand() {
  std::string line = ReadWholeFile("/proc/self/cmdline").value_or("anyorder");
  if (!line.empty() && line.back() == '\0') line.pop_back();
  const std::vector<std::string> words = absl::StrSplit(line, '\0');
  std::string command = ShellCommand(words);
  std::replace_if(
      command.begin(), command.end(),
      [](char letter) { return absl::ascii_iscntrl(static_cast<unsigned char>(letter)); }, '?');
  return command;
}

}  // namespace anyorder::launcher
