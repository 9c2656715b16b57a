#include "launcher/serve/streamed_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace anyorder::launcher {
namespace {

// Of the longest end of `text` that begins `word` and is not all of it.
size_t OverlapBytes(absl::string_view text, absl::string_view word) {
  size_t bytes = std::min(text.size(), word.size() - 1);
  while (bytes > 0 && text.substr(text.size() - bytes) != word.substr(0, bytes)) --bytes;
  return bytes;
}

// Bytes at the end of `text` that begin a character without ending it.
size_t CutCharacterBytes(absl::string_view text) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(3, text.size()); ++bytes) {
    const auto byte = static_cast<unsigned char>(text[text.size() - bytes]);
    if (byte < 0x80) return 0;
    if (byte < 0xC0) continue;
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return length > bytes ? bytes : 0;
  }
  return 0;
}

}  // namespace

std::string StreamedText::Add(const std::string& piece) {
  if (!is_left_to_right_) return "";
  const bool drops_space = written_.empty() && !has_prompt_ && piece[0] == ' ';
  written_.append(piece, drops_space ? 1 : 0);
  const size_t begin = told_;
  told_ = std::max(told_, SafeEnd());
  return written_.substr(begin, told_ - begin);
}

size_t StreamedText::SafeEnd() const {
  size_t end = written_.size() - CutCharacterBytes(written_);
  for (const std::string& word : stop_) {
    const size_t found = written_.find(word);
    end = std::min(end,
                   found != written_.npos ? found : written_.size() - OverlapBytes(written_, word));
  }
  return end;
}

std::string StreamedText::Finish(std::string text) const {
  if (!has_prompt_ && text[0] == ' ') text.erase(0, 1);
  if (text.compare(0, told_, written_, 0, told_) == 0) return text.substr(told_);
  return absl::StrCat("\n", text);
}

}  // namespace anyorder::launcher
