#include "launcher/show/show_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/unicode.h"

namespace anyorder::launcher {
namespace {

// The published ids of the special pieces; words follow them.
constexpr int32_t kBeginId = 1;
constexpr int32_t kEndId = 2;
constexpr int32_t kClassId = 3;
constexpr int32_t kSeparatorId = 4;
constexpr int32_t kMaskId = 6;
constexpr int32_t kEndOfDocumentId = 7;
constexpr int32_t kFirstWord = 9;

class ShownExample final : public data::ExampleSource {
 public:
  ShownExample(ExampleTask task, int64_t parts, int64_t part_size, int64_t num_words)
      : task_(task), num_words_(num_words) {
    int32_t word = 0;
    for (int64_t part = 0; part < parts; ++part) {
      std::vector<int32_t>& tokens = example_.parts.emplace_back();
      for (int64_t i = 0; i < part_size; ++i)
        tokens.push_back(kFirstWord + word++ % static_cast<int32_t>(num_words));
    }
    if (task != ExampleTask::kGeneration) example_.label = 0;
    if (task == ExampleTask::kTokens) example_.tags.assign(example_.parts[0].size(), 0);
  }

  ExampleTask task() const override { return task_; }
  int64_t num_examples() const override { return 1; }
  int64_t num_classes() const override { return std::ssize(example_.parts); }
  VocabularyIds vocabulary() const override {
    return {kSeparatorId, kClassId, kMaskId,         kFirstWord + num_words_,
            kBeginId,     kEndId,   kEndOfDocumentId};
  }
  absl::StatusOr<data::Example> ReadExample(int64_t /*example*/) const override { return example_; }

 private:
  const ExampleTask task_;
  const int64_t num_words_;
  data::Example example_;
};

bool EndsSentence(absl::string_view word) {
  return word.back() == '.' || word.back() == '!' || word.back() == '?';
}

// White space aside, XML 1.0 knows no control character, not even escaped.
bool IsDrawable(absl::string_view text) {
  return IsUtf8({text.data(), text.size()}) &&
         std::none_of(text.begin(), text.end(), [](unsigned char c) {
           return absl::ascii_iscntrl(c) && !absl::ascii_isspace(c);
         });
}

}  // namespace

absl::StatusOr<ShownText> ShownText::FromWords(absl::string_view text, int64_t num_tokens) {
  ShownText shown;
  int64_t sentence = 0;
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \t\r\n\v\f"), absl::SkipEmpty())) {
    shown.words_.emplace_back(word);
    shown.sentence_.push_back(sentence);
    if (EndsSentence(word)) ++sentence;
  }
  if (!IsDrawable(text)) {
    return absl::InvalidArgumentError(
        "--text must be UTF-8 without control characters, which no picture can hold");
  }
  if (shown.words_.empty())
    return absl::InvalidArgumentError("--text has no words; name some, or leave the option out");
  shown.num_tokens_ = num_tokens;
  return shown;
}

ShownText ShownText::Numbered(int64_t num_tokens, int64_t sentence) {
  ShownText shown;
  for (int64_t i = 0; i < num_tokens; ++i) {
    shown.words_.push_back(absl::StrCat("x", i + 1));
    shown.sentence_.push_back(i / sentence);
  }
  shown.num_tokens_ = num_tokens;
  return shown;
}

void ShownText::MakeExample(ExampleTask task, int64_t choices, int64_t seq_len) {
  const bool has_one_text = task == ExampleTask::kClassification || task == ExampleTask::kTokens;
  const int64_t parts = has_one_text ? 1 : task == ExampleTask::kMultipleChoice ? choices + 1 : 2;
  const int64_t special = parts == 1 ? 2 : 3;
  const int64_t room = (seq_len - special - 1) / std::min<int64_t>(parts, 2);
  example_ =
      std::make_shared<ShownExample>(task, parts, std::max<int64_t>(1, room), std::ssize(words_));
}

std::string ShownText::Name(int32_t id) const {
  if (id == kBeginId) return "<s>";
  if (id == kEndId) return "</s>";
  if (id == kClassId) return "<cls>";
  if (id == kSeparatorId) return "<sep>";
  if (id == kMaskId) return "<mask>";
  if (id == kEndOfDocumentId) return "<eod>";
  const int64_t word = int64_t{id} - kFirstWord;
  if (word >= 0 && word < std::ssize(words_)) return words_[word];
  return absl::StrCat("#", id);
}

VocabularyIds ShownText::vocabulary() const {
  return {kSeparatorId, kClassId, kMaskId, kFirstWord + std::ssize(words_), kBeginId, kEndId};
}

ShownText::Place ShownText::At(int64_t position) const {
  const auto period = std::ssize(words_);
  const int64_t distance = position - origin_;
  const int64_t copy =
      distance >= 0 ? distance / period : -((-distance + period - 1) / period);  // rounds down
  return {.copy = copy, .word = distance - copy * period};
}

absl::Status ShownText::ReadTokens(int64_t begin, int64_t end, int32_t* out) const {
  for (int64_t i = begin; i < end; ++i) *out++ = kFirstWord + static_cast<int32_t>(At(i).word);
  return absl::OkStatus();
}

absl::Status ShownText::ReadSentenceFlags(int64_t begin, int64_t end, uint8_t* out) const {
  const int64_t sentences = sentence_.back() + 1;  // of one copy: its end ends a sentence, too
  for (int64_t i = begin; i < end; ++i) {
    const Place place = At(i);
    *out++ = static_cast<uint8_t>((place.copy * sentences + sentence_[place.word]) & 1);
  }
  return absl::OkStatus();
}

absl::Status ShownText::ReadWordStarts(int64_t begin, int64_t end, uint8_t* out) const {
  std::fill_n(out, end - begin, uint8_t{1});
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
