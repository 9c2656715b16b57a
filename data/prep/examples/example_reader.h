// Labelled examples as people write them: JSON lines, one example a line, or tables, one a row
// (EXAMPLES.md).
//
// What a line is an example of is told by its fields: {text, label}; {premise, hypothesis, label};
// {a, b, label}; {context, choices, label}; {source, target}, {prompt, answer}, or answer called
// response or completion, or {messages}; {question, passage, answers}; {words, tags}. A
// conversation gives an example for each message of the role "assistant", its source all before it,
// or one for all of them: `messages` count where a chat template is given, and else are an error if
// nothing else fits. `text` may be a list of texts. `label`, `answers` and `tags` may be missing
// where they are not known; in a table their cells may be empty. All other fields are ignored.
// `words` is ignored if another task's fields are there, unless FieldNames has an entry for it.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/config/task_config.h"
#include "data/dataset/example_origins.h"
#include "data/prep/cleaning.h"
#include "data/prep/examples/chat_template.h"
#include "data/prep/prep_plan.h"
#include "data/prep/text_reader.h"

namespace anyorder::data {

// One line, or one answer of it. The texts are cleaned (but ExampleReadOptions::verbatim), none is
// empty, and none is longer than kMaxSentenceBytes, a
// passage than kMaxPassageBytes.
struct WrittenExample {
  ExampleTask task = ExampleTask::kClassification;
  std::vector<std::string> parts;  // of a whole conversation prompts and answers in turn
  // A class by its name without white space around it (numbers and booleans by their digits and
  // words, 1.0 being 1), or a score in digits; of kMultipleChoice the right one's number.
  std::optional<std::string> class_name;
  int32_t choice = -1;
  bool is_disputed = false;  // annotators agreed on no class: predicted, but not learnt or scored
  std::optional<double> score;  // a label that is a number (STS-B), instead of a class
  std::string id;               // what the official files call the example; empty: nothing
  // kSpans: the text that was cleaned to parts[1], and all answers that the file gives, right or
  // not: none means that there is none, nullopt that it is not known.
  std::string passage;
  std::optional<std::vector<OriginalAnswer>> answers;
  // kTokens: the cleaned words, of which parts[0] is the text with spaces between, and the tag of
  // each; no tags: they are not known.
  std::vector<std::string> words, tags;
};

// Whether the answer's text stands in the passage where the answer says, and cleaning leaves some
// of it.
bool IsInPassage(const OriginalAnswer& answer, const std::string& passage);

// What the fields above are called in the input, of those that are called otherwise. `choices` and
// `text` may be several with commas between them, each with one text.
using FieldNames = std::map<std::string, std::string>;
// Errors: InvalidArgument for a name that is none of the fields above.
absl::Status CheckFieldNames(const FieldNames& names);

inline constexpr size_t kMaxPassageBytes = 1 << 20;

// How texts of examples become stored ones. Errors: DataLoss that names the field `name` and what
// is wrong with it, but neither file nor line.
struct ExampleCleaning {
  Cleaning cleaning;
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kError;
  MarkCounts* marks = nullptr;  // as for CleanLine

  // One cleaned line.
  absl::StatusOr<std::string> Clean(std::string_view text, const std::string& name) const;
  // As written. Errors: for NUL, for more than kMaxPassageBytes, and for white space alone.
  absl::StatusOr<std::string> Verbatim(std::string_view text, const std::string& name) const;
  // Adds the cleaned text to the parts of `example`.
  absl::Status AddText(std::string_view text, const std::string& name,
                       WrittenExample& example) const;
  // AddText, and keeps the text as it was written as the passage of `example`.
  absl::Status AddPassage(std::string_view text, const std::string& name,
                          WrittenExample& example) const;
  // Adds the cleaned word to the words of `example`, and to its only part (kTokens).
  absl::Status AddWord(std::string_view text, const std::string& name,
                       WrittenExample& example) const;
};

struct ExampleReadOptions {
  FieldNames names;
  TableOptions table;
  ExampleCleaning cleaning;
  // What examples of generation are written by, a source being a user's message; null: as they are.
  const ChatTemplate* chat = nullptr;
  bool whole_conversations = false;  // whether one is one example, not one an answer
  // Is told FILE:LINE of conversations that are not read, or not to their end. REQUIRED with
  // `chat`.
  std::vector<LeftOutFile>* left_out = nullptr;
  // Sources and targets stay as written, with kTemplateMark where there is a template; other texts
  // are cleaned.
  bool verbatim = false;
};

// `where` is the file and line, or question, of an example: "train.tsv:7".
using TakeExample = std::function<absl::Status(const std::string& where, const WrittenExample&)>;

// Calls `take` for each line of `file`, .jsonl or a table, that is not blank, or row. Errors:
// DataLoss that names file, line and field; those of TableReader and OpenInput, and of `take`, with
// `where` before them.
absl::Status ReadExamples(const InputFile& file, const ExampleReadOptions& options,
                          const TakeExample& take);

// Calls `take` with each line of `file` and its number, blank ones too. The text is valid during
// the call. Errors: DataLoss that names the file and the line, which is too long or invalid (unless
// that is replaced); those of OpenInput and `take`.
using TakeLine = std::function<absl::Status(std::string_view text, uint64_t line)>;
absl::Status ReadExampleLines(const InputFile& file, InvalidUtf8 invalid_utf8,
                              const TakeLine& take);

}  // namespace anyorder::data
