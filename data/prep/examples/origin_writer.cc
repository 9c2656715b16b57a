#include "data/prep/examples/origin_writer.h"

#include <algorithm>

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "core/base/unicode.h"

namespace anyorder::data {

using Json = nlohmann::json;

namespace {

constexpr std::string_view kWordMark = "\xE2\x96\x81";  // U+2581

// A text by its characters.
struct Characters {
  explicit Characters(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      is_space.push_back(IsUnicodeSpace(NextCodePoint(text, at)));
      number_at.resize(at, static_cast<int64_t>(is_space.size()) - 1);
    }
    number_at.push_back(static_cast<int64_t>(is_space.size()));
  }

  std::vector<bool> is_space;
  std::vector<int64_t> number_at;  // by byte, and of the end
};

// Without white space at either end.
CharacterRange Trimmed(CharacterRange range, const std::vector<bool>& is_space) {
  while (range.begin < range.end && is_space[static_cast<size_t>(range.begin)]) ++range.begin;
  while (range.begin < range.end && is_space[static_cast<size_t>(range.end) - 1]) --range.end;
  return range;
}

}  // namespace

absl::StatusOr<AlignedText> EncodeAligned(const Tokenizer& tokenizer, std::string_view text,
                                          const Cleaning& cleaning) {
  std::string cleaned;
  std::vector<uint32_t> origins;
  CleanLine(text, cleaning, cleaned, &origins);
  AlignedText aligned;
  std::vector<PieceBytes> bytes;
  RETURN_IF_ERROR(tokenizer.Encode(cleaned, aligned.ids, &bytes));
  const Characters characters(text);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto [begin, end] = bytes[i];
    CharacterRange range{characters.number_at[origins[begin]], characters.number_at[origins[end]]};
    // Several tokens may be made of one character, which the first of them has, too. A word mark
    // that the library put before the text is made of none.
    const uint32_t last = end > begin ? end - 1 : begin;
    if (end > begin || tokenizer.bridge().piece(aligned.ids[i]).text != kWordMark)
      range.end = std::max(range.end, characters.number_at[origins[last]] + 1);
    // Nor does a mark that the library made within such a character step back.
    if (!aligned.ranges.empty()) range.end = std::max(range.end, aligned.ranges.back().end);
    range.end = std::min(range.end, characters.number_at.back());
    aligned.ranges.push_back(Trimmed(range, characters.is_space));
  }
  return aligned;
}

TokenRange TokensOf(const std::vector<CharacterRange>& ranges, CharacterRange characters) {
  TokenRange tokens;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const bool is_shared =
        std::max(ranges[i].begin, characters.begin) < std::min(ranges[i].end, characters.end);
    if (!is_shared) continue;
    if (tokens.begin == tokens.end) tokens.begin = static_cast<int32_t>(i);
    tokens.end = static_cast<int32_t>(i) + 1;
  }
  return tokens;
}

absl::StatusOr<const AlignedText*> OriginWriter::Align(const Tokenizer& tokenizer,
                                                       const Cleaning& cleaning,
                                                       const std::string& passage) {
  const auto [found, is_new] = passages_.try_emplace(passage);
  AlignedText& aligned = found->second.aligned;
  if (is_new) {
    ASSIGN_OR_RETURN(aligned, EncodeAligned(tokenizer, passage, cleaning));
  }
  return &aligned;
}

void OriginWriter::Add(const WrittenExample& example) {
  Json line = Json::object();
  if (!example.id.empty()) line["id"] = example.id;
  if (example.task == ExampleTask::kSpans) {
    Passage& passage = passages_.at(example.passage);
    if (passage.example < 0) {
      passage.example = num_examples_;
      line["passage"] = example.passage;
      Json& tokens = line["tokens"] = Json::array();
      for (const CharacterRange& range : passage.aligned.ranges) {
        tokens.push_back(static_cast<uint64_t>(range.begin));
        tokens.push_back(static_cast<uint64_t>(range.end));
      }
    } else {
      line["passage_of"] = static_cast<uint64_t>(passage.example);
    }
    if (example.answers) line["answers"] = Json::array();
    for (const OriginalAnswer& answer : example.answers.value_or(std::vector<OriginalAnswer>()))
      line["answers"].push_back({{"start", answer.begin}, {"text", answer.text}});
  }
  has_origins_ = has_origins_ || !line.empty();
  ++num_examples_;
  text_ += DumpJson(line) + "\n";
}

}  // namespace anyorder::data
