#include "data/dataset/stored_examples.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "data/dataset/shard_format.h"
#include "data/dataset/stored_file.h"

namespace anyorder::data {
namespace {

bool IsPartCount(ExampleTask task, uint64_t parts) {
  switch (task) {
    case ExampleTask::kClassification: return parts >= 1 && parts <= kMostTexts;
    case ExampleTask::kTokens: return parts == 1;
    case ExampleTask::kMultipleChoice: return parts >= 3;
    case ExampleTask::kGeneration: return parts >= 2 && parts % 2 == 0;
    default: return parts == 2;
  }
}

}  // namespace

StoredExamples::StoredExamples(const DatasetIndex& index, const TextSource& text, std::string path,
                               std::string table)
    : index_(index), text_(text), path_(std::move(path)), table_(std::move(table)) {
  const ExamplesEntry& entry = *index.examples;
  part_begins_ = table_.data();
  first_parts_ = part_begins_ + 8 * entry.num_parts;
  part_lengths_ = first_parts_ + 8 * (entry.num_examples + 1);
  labels_ = part_lengths_ + 4 * entry.num_parts;
  const char* const behind = labels_ + 4 * entry.num_examples;
  scores_ = HasScores(entry) ? behind : nullptr;
  answers_ = entry.task == ExampleTask::kSpans ? behind : nullptr;
  tags_ = entry.task == ExampleTask::kTokens ? behind : nullptr;
}

absl::StatusOr<std::unique_ptr<StoredExamples>> StoredExamples::Open(FileSystem& fs,
                                                                     const std::string& directory,
                                                                     const DatasetIndex& index,
                                                                     const TextSource& text) {
  const ExamplesEntry& entry = *index.examples;
  const std::string path = absl::StrCat(directory, "/", entry.table.file);
  ASSIGN_OR_RETURN(const StoredFile file, StoredFile::Open(fs, path, entry.table.bytes));
  if (file.size() != ExampleTableBytes(index)) {
    return DataLoss("'", file.path(), "' has ", file.size(), " bytes, but ", entry.num_examples,
                    " examples of ", entry.num_parts, " parts take ", ExampleTableBytes(index),
                    "; prepare the data again");
  }
  std::string table(file.size(), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, table.data(), table.size()));
  // Of the bytes that are used.
  RETURN_IF_ERROR(file.CheckDigest(DigestOf(table), entry.table.digest));
  std::unique_ptr<StoredExamples> examples(
      new StoredExamples(index, text, file.path(), std::move(table)));
  RETURN_IF_ERROR(examples->Check());
  return examples;
}

// REQUIRES CheckPlace: before the example's first token stand an <eod> for each earlier example and
// otherwise tokens with a tag.
std::vector<int32_t> StoredExamples::TagsOf(int64_t example) const {
  const uint64_t part = FirstPart(example);
  std::vector<int32_t> tags(static_cast<size_t>(LengthOf(part)));
  const uint64_t first = At<uint64_t>(part_begins_, part) - static_cast<uint64_t>(example);
  std::memcpy(tags.data(), tags_ + sizeof(int32_t) * first, sizeof(int32_t) * tags.size());
  return tags;
}

// Example after example, so that every part is looked at once, and the tokens of each come after
// those of the one before.
absl::Status StoredExamples::Check() {
  const ExamplesEntry& entry = *index_.examples;
  std::vector<std::string> names = entry.classes;
  std::sort(names.begin(), names.end());
  const bool has_twins = std::adjacent_find(names.begin(), names.end()) != names.end();
  const bool lacks_names = entry.task == ExampleTask::kTokens && names.empty();
  if (has_twins || lacks_names || (!HasClasses(entry.task) && !names.empty())) {
    return DataLoss("'", path_, "' has ", names.size(), " class names, which cannot be those of ",
                    EnumName(entry.task), "; prepare the data again");
  }
  num_classes_ = HasScores(entry) ? 1 : static_cast<int64_t>(entry.classes.size());
  if (FirstPart(0) != 0 || FirstPart(num_examples()) != entry.num_parts)
    return DataLoss("'", path_, "' does not name all its parts; prepare the data again");
  for (int64_t example = 0; example < num_examples(); ++example)
    RETURN_IF_ERROR(CheckExample(example));
  return absl::OkStatus();
}

absl::Status StoredExamples::CheckExample(int64_t example) {
  const ExamplesEntry& entry = *index_.examples;
  const auto bad = [&](const std::string& why) {
    return DataLoss("'", path_, "' example ", example, " ", why, "; prepare the data again");
  };
  const uint64_t first = FirstPart(example);
  const uint64_t end = FirstPart(example + 1);
  if (end < first || end > entry.num_parts || !IsPartCount(entry.task, end - first)) {
    return bad(absl::StrCat("has parts ", first, " to ", end, " of ", entry.num_parts,
                            ", which is not ", EnumName(entry.task)));
  }
  for (uint64_t part = first; part < end; ++part) {
    const auto begin = At<uint64_t>(part_begins_, part);
    const uint64_t length = At<uint32_t>(part_lengths_, part);
    const uint64_t least = part == 0 ? 0 : EndOf(part - 1);
    if (length == 0 || begin < least || begin > index_.num_tokens ||
        length > index_.num_tokens - begin) {
      return bad(
          absl::StrCat("has tokens ", begin, " to ", begin + length, " of ", index_.num_tokens));
    }
  }
  most_parts_ = std::max(most_parts_, static_cast<int64_t>(end - first));
  if (entry.task == ExampleTask::kMultipleChoice)
    num_classes_ = std::max(num_classes_, static_cast<int64_t>(end - first) - 1);
  const absl::Status label = CheckLabel(example);
  return label.ok() ? label : bad(std::string(label.message()));
}

// Its message is the end of a sentence, as those of the next three. REQUIRES that the example's
// parts are valid.
absl::Status StoredExamples::CheckLabel(int64_t example) const {
  const ExampleTask task = index_.examples->task;
  const auto parts = static_cast<int64_t>(FirstPart(example + 1) - FirstPart(example));
  const int64_t labels = task == ExampleTask::kMultipleChoice ? parts - 1
                         : task == ExampleTask::kSpans        ? 2
                         : task == ExampleTask::kTokens       ? 1
                         : scores_ != nullptr                 ? 0
                                                              : num_classes_;
  const int32_t label = LabelOf(example);
  if (label < -1 || label >= labels) return DataLoss("has label ", label, " of ", labels);
  if (std::isinf(ScoreOf(example))) return DataLoss("has score ", ScoreOf(example));
  if (task == ExampleTask::kSpans) return CheckAnswer(example);
  if (task != ExampleTask::kTokens) return absl::OkStatus();
  RETURN_IF_ERROR(CheckPlace(example));
  return CheckTags(example);
}

absl::Status StoredExamples::CheckAnswer(int64_t example) const {
  ASSIGN_OR_RETURN(const ExampleOutline outline, Outline(example));
  const int64_t begin = outline.answer_begin;
  const int64_t end = outline.answer_end;
  const bool fits = outline.label == 1 ? 0 <= begin && begin < end && end <= outline.lengths[1]
                                       : begin == -1 && end == -1;
  if (fits) return absl::OkStatus();
  return DataLoss("has the answer ", begin, " to ", end, " of ", outline.lengths[1],
                  " tokens and label ", outline.label);
}

// That the tags of kTokens are where TagsOf looks for them: the examples with an <eod> each are the
// whole stream. REQUIRES the same of the examples before.
absl::Status StoredExamples::CheckPlace(int64_t example) const {
  const uint64_t part = FirstPart(example);
  const uint64_t begin = At<uint64_t>(part_begins_, part);
  const uint64_t end = EndOf(part);
  const auto eods_left = static_cast<uint64_t>(num_examples() - example);
  const uint64_t tokens_left = index_.num_tokens - end;
  const bool fits = begin == (part == 0 ? 0 : EndOf(part - 1) + 1) &&
                    (eods_left == 1 ? tokens_left == 1 : eods_left < tokens_left);
  if (fits) return absl::OkStatus();
  return DataLoss("has tokens ", begin, " to ", end, " of ", index_.num_tokens,
                  ", which are not all between its <eod> and the one before");
}

absl::Status StoredExamples::CheckTags(int64_t example) const {
  const std::vector<int32_t> tags = TagsOf(example);
  for (size_t i = 0; i < tags.size(); ++i) {
    if (tags[i] < kNoTag || tags[i] >= num_classes_)
      return DataLoss("has tag ", tags[i], " of ", num_classes_, " at token ", i);
  }
  if (tags[0] == kNoTag) return DataLoss("begins with a token that begins no word");
  const bool is_known = std::find(tags.begin(), tags.end(), kUnknownTag) == tags.end();
  if (LabelOf(example) == (is_known ? 0 : -1)) return absl::OkStatus();
  return DataLoss("has label ", LabelOf(example), ", but its tags are ",
                  is_known ? "known" : "not all known");
}

absl::StatusOr<ExampleOutline> StoredExamples::Outline(int64_t example) const {
  ANYORDER_CHECK(example >= 0 && example < num_examples())
      << "example " << example << " of " << num_examples();
  ExampleOutline outline;
  outline.label = LabelOf(example);
  if (answers_ != nullptr) {
    outline.answer_begin = At<int32_t>(answers_, 2 * static_cast<uint64_t>(example));
    outline.answer_end = At<int32_t>(answers_, 2 * static_cast<uint64_t>(example) + 1);
  }
  for (uint64_t part = FirstPart(example); part < FirstPart(example + 1); ++part)
    outline.lengths.push_back(LengthOf(part));
  return outline;
}

absl::StatusOr<Example> StoredExamples::ReadExample(int64_t example) const {
  ASSIGN_OR_RETURN(const ExampleOutline outline, Outline(example));
  Example result;
  result.label = outline.label;
  result.score = ScoreOf(example);
  result.answer_begin = outline.answer_begin;
  result.answer_end = outline.answer_end;
  if (tags_ != nullptr) result.tags = TagsOf(example);
  uint64_t part = FirstPart(example);
  for (const int64_t length : outline.lengths) {
    const auto begin = static_cast<int64_t>(At<uint64_t>(part_begins_, part++));
    std::vector<int32_t>& tokens = result.parts.emplace_back(static_cast<size_t>(length));
    RETURN_IF_ERROR(text_.ReadTokens(begin, begin + length, tokens.data()));
  }
  return result;
}

}  // namespace anyorder::data
