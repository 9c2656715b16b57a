// The shared tasks of CoNLL that give each word a tag: a word a line, its tag in the last column,
// and a blank line after each sentence. The tags are those of chunks: the first word of a chunk X
// has B-X, the others I-X, and words outside of chunks have O (IOB2).

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/counted.h"
#include "core/base/status.h"
#include "data/prep/examples/official_tasks.h"

namespace anyorder::data {
namespace {

constexpr char kDocumentStart[] = "-DOCSTART-";  // in place of a word, where a document begins

class TaggedFile {
 public:
  // Rows have `num_columns` with the tag. The references must outlive it.
  TaggedFile(const std::string& path, size_t num_columns, OfficialReading& reading)
      : path_(path), num_columns_(num_columns), reading_(reading) {}

  absl::Status OnLine(std::string_view text, uint64_t line) {
    const std::vector<std::string> columns =
        absl::StrSplit(std::string(text), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (columns.empty() || columns[0] == kDocumentStart) return EndSentence();
    const std::string where = absl::StrCat(path_, ":", line);
    if (sentence_.words.empty()) where_ = where;
    return Annotate(AddRow(columns), where);
  }

  absl::Status Finish() { return EndSentence(); }

 private:
  absl::Status EndSentence() {
    last_tag_.clear();
    if (sentence_.words.empty()) return absl::OkStatus();
    return reading_.Take(where_, std::exchange(sentence_, {}));
  }

  absl::Status AddRow(const std::vector<std::string>& columns) {
    if (columns.size() != num_columns_ && columns.size() + 1 != num_columns_) {
      return DataLoss("the row has ", Counted(std::ssize(columns), "column"),
                      ", but those of --task ", reading_.task().name, " have ", num_columns_,
                      ", or ", num_columns_ - 1, " without the tag; name ", reading_.task().input);
    }
    if (found_columns_ == 0) found_columns_ = columns.size();
    if (columns.size() != found_columns_) {
      return DataLoss("the row has ", Counted(std::ssize(columns), "column"),
                      ", but the rows before it have ", found_columns_,
                      "; all have a tag or none has, so repair the row");
    }
    RETURN_IF_ERROR(reading_.cleaning().AddWord(columns[0], "word", sentence_));
    return columns.size() == num_columns_ ? AddTag(columns.back()) : absl::OkStatus();
  }

  // In IOB1, as CoNLL-2003 was released, only a chunk that follows another of its kind begins with
  // B-X, others with I-X. In IOB2 no I-X follows anything but B-X or I-X, so one rule reads both.
  absl::Status AddTag(const std::string& tag) {
    const std::vector<std::string>& classes = reading_.task().classes;
    if (std::find(classes.begin(), classes.end(), tag) == classes.end()) {
      return DataLoss("the tag '", tag, "' is none of ", absl::StrJoin(classes, ", "),
                      "; repair the row");
    }
    const bool begins = tag[0] == 'I' && KindOf(tag) != KindOf(last_tag_);
    sentence_.tags.push_back(begins ? absl::StrCat("B", tag.substr(1)) : tag);
    last_tag_ = tag;
    return absl::OkStatus();
  }

  // X of B-X and I-X; "" of O and of no tag.
  static std::string KindOf(const std::string& tag) { return tag.size() < 2 ? "" : tag.substr(2); }

  const std::string& path_;
  const size_t num_columns_;
  OfficialReading& reading_;
  size_t found_columns_ = 0;  // of the first row; 0: there was none
  WrittenExample sentence_;
  std::string where_;     // its first row
  std::string last_tag_;  // of the sentence so far, as the file has it
};

OfficialTask TaggingTask(const char* name, const char* description, const char* input,
                         size_t num_columns, const std::vector<std::string>& chunks) {
  std::vector<std::string> classes = {"O"};
  for (const std::string& chunk : chunks) {
    classes.push_back(absl::StrCat("B-", chunk));
    classes.push_back(absl::StrCat("I-", chunk));
  }
  return {.name = name,
          .description = description,
          .input = input,
          .kind = ExampleTask::kTokens,
          .classes = std::move(classes),
          .submission = SubmissionForm::kConll,
          .read = [=](OfficialReading& reading) {
            return reading.ReadLines<TaggedFile>(TextKind::kTxt, num_columns);
          }};
}

}  // namespace

std::vector<OfficialTask> TaggingTasks() {
  return {
      TaggingTask("conll2003", "CoNLL-2003, named entities of news",
                  "eng.train, eng.testa or eng.testb; or train.txt, valid.txt or test.txt", 4,
                  {"PER", "ORG", "LOC", "MISC"}),
      TaggingTask(
          "conll2000", "CoNLL-2000, phrases of the Wall Street Journal", "train.txt or test.txt", 3,
          {"ADJP", "ADVP", "CONJP", "INTJ", "LST", "NP", "PP", "PRT", "SBAR", "UCP", "VP"})};
}

}  // namespace anyorder::data
