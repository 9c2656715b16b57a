#include "launcher/serve/streamed_text.h"

#include <algorithm>

#include "absl/strings/string_view.h"

#include "data/prep/cleaning.h"

namespace anyorder::launcher {
namespace {

// Of the longest end of `text` that begins `word` and is not all of it.
size_t OverlapBytes(absl::string_view text, absl::string_view word) {
  size_t bytes = std::min(text.size(), word.size() - 1);
  while (bytes > 0 && text.substr(text.size() - bytes) != word.substr(0, bytes)) --bytes;
  return bytes;
}

}  // namespace

std::string StreamedText::Add(const std::string& piece) {
  if (!is_left_to_right_) return "";
  written_ += piece;
  const size_t begin = told_;
  told_ = std::max(told_, SafeEnd());
  return written_.substr(begin, told_ - begin);
}

size_t StreamedText::SafeEnd() const {
  size_t end = data::CompleteBytes(written_);
  for (const std::string& word : stop_) {
    const size_t found = written_.find(word);
    end = std::min(end,
                   found != written_.npos ? found : written_.size() - OverlapBytes(written_, word));
  }
  return end;
}

}  // namespace anyorder::launcher
