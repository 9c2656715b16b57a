#include "data/dataset/example_origins.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/json_members.h"
#include "core/base/status.h"
#include "data/dataset/stored_file.h"

namespace anyorder::data {
namespace {

using Json = nlohmann::json;

// Where character `count` behind `offset` begins.
size_t SkipCharacters(std::string_view text, size_t offset, int64_t count) {
  for (; count > 0 && offset < text.size(); --count) {
    do {
      ++offset;
    } while (offset < text.size() && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80);
  }
  return offset;
}

// The member `name` of `line` if it is of type `Value`.
template <typename Value>
absl::StatusOr<Value> Member(const Json& line, const char* name) {
  const Json* const found = FindMember(line, name);
  if (found == nullptr || !Holds<Value>(*found)) return DataLoss("there is no valid '", name, "'");
  return found->get<Value>();
}

absl::StatusOr<OriginalPassage> ParsePassage(const Json& line, int64_t num_tokens) {
  OriginalPassage passage;
  ASSIGN_OR_RETURN(passage.text, Member<std::string>(line, "passage"));
  const Json* const bounds = FindMember(line, "tokens", &Json::is_array);
  if (bounds == nullptr || std::ssize(*bounds) != 2 * num_tokens) {
    return DataLoss("'tokens' is not a list of ", 2 * num_tokens, " numbers");
  }
  const int64_t characters = NumCharacters(passage.text);
  CharacterRange last;
  for (size_t i = 0; i < bounds->size(); i += 2) {
    for (const Json& bound : {(*bounds)[i], (*bounds)[i + 1]}) {
      if (!bound.is_number_unsigned()) return DataLoss("'tokens' holds what is no number");
    }
    const CharacterRange range{(*bounds)[i].get<int64_t>(), (*bounds)[i + 1].get<int64_t>()};
    if (range.begin < last.begin || range.end < last.end || range.end < range.begin ||
        range.end > characters) {
      return DataLoss("token ", i / 2, " has characters ", range.begin, " to ", range.end, " of ",
                      characters);
    }
    passage.tokens.push_back(last = range);
  }
  return passage;
}

absl::StatusOr<std::vector<OriginalAnswer>> ParseAnswers(const Json& list) {
  if (!list.is_array()) return absl::DataLossError("'answers' is not a list");
  std::vector<OriginalAnswer> answers;
  for (const Json& one : list) {
    OriginalAnswer& answer = answers.emplace_back();
    ASSIGN_OR_RETURN(answer.text, Member<std::string>(one, "text"));
    ASSIGN_OR_RETURN(const uint64_t begin, Member<uint64_t>(one, "start"));
    answer.begin = static_cast<int64_t>(begin);
  }
  return answers;
}

}  // namespace

int64_t NumCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

std::string_view CharactersOf(std::string_view text, CharacterRange range) {
  const size_t begin = SkipCharacters(text, 0, range.begin);
  return text.substr(begin, SkipCharacters(text, begin, range.end - range.begin) - begin);
}

ExampleOrigins::ExampleOrigins(std::string path, std::string text, const ExampleSource& examples)
    : path_(std::move(path)), text_(std::move(text)), examples_(examples), line_begins_{0} {
  for (size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n', end + 1))
    line_begins_.push_back(end + 1);
}

absl::StatusOr<std::unique_ptr<ExampleOrigins>> ExampleOrigins::Open(
    FileSystem& fs, const std::string& directory, const DatasetIndex& index,
    const ExampleSource& examples) {
  ASSIGN_OR_RETURN(const StoredFile file,
                   StoredFile::OpenListed(fs, directory, *index.examples->origins));
  std::string text(file.size(), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, text.data(), text.size()));
  std::unique_ptr<ExampleOrigins> origins(
      new ExampleOrigins(file.path(), std::move(text), examples));
  const size_t lines = origins->line_begins_.size() - 1;
  if (static_cast<int64_t>(lines) == examples.num_examples()) return origins;
  return DataLoss("'", file.path(), "' has ", lines, " lines for ", examples.num_examples(),
                  " examples; prepare the data again");
}

std::string_view ExampleOrigins::Line(int64_t example) const {
  const size_t begin = line_begins_[static_cast<size_t>(example)];
  return std::string_view(text_).substr(begin,
                                        line_begins_[static_cast<size_t>(example) + 1] - begin);
}

absl::StatusOr<std::shared_ptr<const OriginalPassage>> ExampleOrigins::PassageOf(int64_t example) {
  if (example == passage_line_) return passage_;
  ASSIGN_OR_RETURN(const Json line, ParseJsonObject(Line(example)));
  ASSIGN_OR_RETURN(const ExampleOutline outline, examples_.Outline(example));
  ASSIGN_OR_RETURN(OriginalPassage passage, ParsePassage(line, outline.lengths[1]));
  passage_ = std::make_shared<const OriginalPassage>(std::move(passage));
  passage_line_ = example;
  return passage_;
}

absl::StatusOr<ExampleOrigin> ExampleOrigins::ReadLine(int64_t example) {
  ExampleOrigin origin;
  ASSIGN_OR_RETURN(const Json line, ParseJsonObject(Line(example)));
  if (line.contains("id")) {
    ASSIGN_OR_RETURN(origin.id, Member<std::string>(line, "id"));
  }
  if (examples_.task() != ExampleTask::kSpans) return origin;
  auto named = static_cast<uint64_t>(example);
  if (line.contains("passage_of")) {
    ASSIGN_OR_RETURN(named, Member<uint64_t>(line, "passage_of"));
  }
  if (named > static_cast<uint64_t>(example))
    return DataLoss("'passage_of' ", named, " is a later example");
  ASSIGN_OR_RETURN(origin.passage, PassageOf(static_cast<int64_t>(named)));
  ASSIGN_OR_RETURN(const ExampleOutline outline, examples_.Outline(example));
  if (std::ssize(origin.passage->tokens) != outline.lengths[1]) {
    return DataLoss("the passage has ", origin.passage->tokens.size(), " tokens, not ",
                    outline.lengths[1]);
  }
  if (const auto answers = line.find("answers"); answers != line.end()) {
    ASSIGN_OR_RETURN(origin.answers, ParseAnswers(*answers));
  }
  return origin;
}

absl::StatusOr<ExampleOrigin> ExampleOrigins::Read(int64_t example) {
  ANYORDER_CHECK(example >= 0 && example < examples_.num_examples())
      << "example " << example << " of " << examples_.num_examples();
  absl::StatusOr<ExampleOrigin> origin = ReadLine(example);
  if (origin.ok()) return origin;
  return DataLoss(path_, ":", example + 1, ": ", origin.status().message(),
                  "; prepare the data again");
}

}  // namespace anyorder::data
