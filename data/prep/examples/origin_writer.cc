#include "data/prep/examples/origin_writer.h"

#include "core/base/json_members.h"
#include "core/base/status.h"

namespace anyorder::data {

using Json = nlohmann::json;

absl::StatusOr<const AlignedText*> OriginWriter::Align(const Tokenizer& tokenizer,
                                                       LetterCase letter_case,
                                                       const std::string& passage) {
  const auto [found, is_new] = passages_.try_emplace(passage);
  AlignedText& aligned = found->second.aligned;
  if (is_new) {
    ASSIGN_OR_RETURN(aligned, EncodeAligned(tokenizer, passage, letter_case));
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

const std::string& OriginWriter::text() const {
  static const std::string none;
  return has_origins_ ? text_ : none;
}

}  // namespace anyorder::data
