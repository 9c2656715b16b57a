#include "launcher/texts/blanks/blank_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/base/unicode.h"

namespace anyorder::launcher {
namespace {

constexpr std::string_view kMaskWord = "<mask>";
constexpr size_t kLeastUnderscores = 3;

bool IsEscape(std::string_view text) {
  return text.size() > 1 && text[0] == '\\' &&
         std::string_view("{}_<\\").find(text[1]) != std::string_view::npos;
}

class BlankTextParser {
 public:
  BlankTextParser(std::string_view text, int64_t most_tokens)
      : rest_(text), most_tokens_(most_tokens) {}

  absl::StatusOr<BlankText> Parse() {
    while (!rest_.empty()) RETURN_IF_ERROR(ParseNext());
    const SourcePart* words = nullptr;
    const SourcePart* blank = nullptr;
    for (const SourcePart* gap : text_.gaps())
      (gap->kind == SourcePart::Kind::kWords ? words : blank) = gap;
    if (words == nullptr && blank == nullptr) {
      return absl::InvalidArgumentError(
          "the text has no blank; write <mask>, ___ or {n}, n tokens, where words are missing, or "
          "put {{ and }} around words whose probability is wanted");
    }
    if (words == nullptr || blank == nullptr) return std::move(text_);
    return InvalidArgument("the text has a blank at character ", blank->character,
                           " and {{words}} at character ", words->character,
                           "; fill the blanks first, or ask about the words first");
  }

 private:
  absl::Status ParseNext() {
    const size_t underscores = std::min(rest_.find_first_not_of('_'), rest_.size());
    if (IsEscape(rest_)) {
      AddText(rest_.substr(1, 1), 2);
    } else if (rest_.starts_with(kMaskWord)) {
      Add({.kind = SourcePart::Kind::kBlank}, kMaskWord.size());
    } else if (underscores >= kLeastUnderscores) {
      Add({.kind = SourcePart::Kind::kBlank}, underscores);
    } else if (rest_.starts_with("{{")) {
      return ParseWords();
    } else if (rest_[0] == '{') {
      return ParseCount();
    } else {
      size_t bytes = 0;
      NextCodePoint(rest_, bytes);
      AddText(rest_.substr(0, bytes), bytes);
    }
    return absl::OkStatus();
  }

  absl::Status ParseCount() {
    const size_t end = std::min(rest_.find_first_not_of("0123456789", 1), rest_.size());
    if (end == 1 || end == rest_.size() || rest_[end] != '}') {
      return InvalidArgument("{ at character ", character_,
                             " begins neither {n}, a blank of n tokens, nor {{words}}; write \\{ "
                             "for the character itself");
    }
    const std::string_view digits = rest_.substr(1, end - 1);
    int64_t length = 0;
    const bool is_int64 = absl::SimpleAtoi(std::string(digits), &length);
    if (!is_int64 || length < 1 || length > most_tokens_) {
      return InvalidArgument("the blank {", std::string(digits), "} at character ", character_,
                             " must have from 1 to ", most_tokens_, " tokens");
    }
    Add({.kind = SourcePart::Kind::kBlank, .length = length}, end + 1);
    return absl::OkStatus();
  }

  absl::Status ParseWords() {
    SourcePart part{.kind = SourcePart::Kind::kWords};
    int64_t inner = character_ + 2;
    size_t at = 2;
    while (at < rest_.size() && !rest_.substr(at).starts_with("}}")) {
      const std::string_view left = rest_.substr(at);
      const bool is_escape = IsEscape(left);
      if (left.starts_with("{")) {
        return InvalidArgument("{ at character ", inner, " is inside the {{words}} of character ",
                               character_, "; end those with }} before it, or write \\{");
      }
      if (left.starts_with(kMaskWord) || left.starts_with("___")) {
        return InvalidArgument("the blank at character ", inner,
                               " is inside the {{words}} of character ", character_,
                               ", which are not to be filled; take it out");
      }
      size_t bytes = is_escape ? 1 : 0;
      NextCodePoint(left, bytes);
      part.text += left.substr(is_escape ? 1 : 0, bytes - (is_escape ? 1 : 0));
      at += bytes;
      inner += is_escape ? 2 : 1;
    }
    if (at == rest_.size())
      return InvalidArgument("{{ at character ", character_,
                             " is not closed; end the words with }}");
    if (StripSpace(part.text).empty()) {
      return InvalidArgument("{{}} at character ", character_,
                             " holds no words; put those into it whose probability is wanted");
    }
    Add(std::move(part), at + 2);
    return absl::OkStatus();
  }

  // `bytes`: of what was written for it.
  void Add(SourcePart part, size_t bytes) {
    part.character = character_;
    text_.parts.push_back(std::move(part));
    Advance(bytes);
  }
  void AddText(std::string_view text, size_t bytes) {
    if (text_.parts.empty() || text_.parts.back().kind != SourcePart::Kind::kText)
      Add({.kind = SourcePart::Kind::kText}, 0);
    text_.parts.back().text += text;
    Advance(bytes);
  }
  void Advance(size_t bytes) {
    for (size_t at = 0; at < bytes; ++character_) NextCodePoint(rest_, at);
    rest_.remove_prefix(bytes);
  }

  std::string_view rest_;
  const int64_t most_tokens_;
  int64_t character_ = 1;  // of rest_
  BlankText text_;
};

}  // namespace

bool BlankText::has_words() const {
  return std::ranges::count(parts, SourcePart::Kind::kWords, &SourcePart::kind) > 0;
}

std::string BlankText::With(const std::vector<std::string>& words) const {
  std::string text;
  size_t gap = 0;
  for (const SourcePart& part : parts)
    absl::StrAppend(&text, part.kind == SourcePart::Kind::kText ? part.text : words[gap++]);
  return text;
}

absl::StatusOr<BlankText> ParseBlankText(std::string_view text, int64_t most_tokens) {
  return BlankTextParser(text, most_tokens).Parse();
}

}  // namespace anyorder::launcher
