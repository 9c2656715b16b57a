#include "data/prep/examples/example_reader.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/counted.h"
#include "core/base/json_members.h"
#include "core/base/status.h"
#include "core/base/unicode.h"

namespace anyorder::data {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostChoices = 1 << 10;

// The text fields of each task; choices come behind those of kMultipleChoice.
struct TaskFields {
  ExampleTask task;
  std::array<const char*, 2> texts;
};
constexpr TaskFields kTasks[] = {
    {ExampleTask::kClassification, {"text", nullptr}},
    {ExampleTask::kEntailment, {"premise", "hypothesis"}},
    {ExampleTask::kSimilarity, {"a", "b"}},
    {ExampleTask::kMultipleChoice, {"context", nullptr}},
    {ExampleTask::kGeneration, {"source", "target"}},
    {ExampleTask::kSpans, {"question", "passage"}},
};
constexpr char kKnownFields[] =
    "text; premise and hypothesis; a and b; context and choices; source and target; question and "
    "passage; words; prompt and answer; messages";
constexpr char kAssistant[] = "assistant";  // the role whose messages are answers
constexpr size_t kMostFieldsNamed = 16;     // fields in a message

// 3, also of 3.0; nothing if `value` is no whole number.
std::optional<int64_t> WholeNumber(const Json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  const double number = value.is_number() ? value.get<double>() : 0.5;
  if (std::abs(number) > 1e15 || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

// What one line or row says. Errors do not say where it is.
class ExampleParser {
 public:
  // `where`: file and line. Borrows both.
  ExampleParser(const ExampleReadOptions& options, const std::string& where, bool is_table)
      : options_(options), where_(where), is_table_(is_table) {}

  // Whether an error is about what the fields are called, as the header of a table says it.
  bool has_bad_columns() const { return has_bad_columns_; }

  // Appends to `examples`: one, of a conversation one for each answer.
  absl::Status Read(const Json& record, std::vector<WrittenExample>& examples) {
    if (options_.chat != nullptr && record.contains(NameOf("messages")))
      return ReadMessages(record[NameOf("messages")], examples);
    WrittenExample& example = examples.emplace_back();
    RETURN_IF_ERROR(ReadOne(record, example));
    if (options_.chat == nullptr || example.task != ExampleTask::kGeneration)
      return absl::OkStatus();
    const ChatMessage turns[] = {{"user", example.parts[0]}, {kAssistant, example.parts[1]}};
    example.parts.clear();
    return Render(turns, 0, example);
  }

 private:
  absl::Status ReadOne(const Json& record, WrittenExample& example) {
    // A question may come with choices, a passage does not, whatever it is called.
    const TaskFields& spans = kTasks[std::size(kTasks) - 1];
    if (record.contains(NameOf(spans.texts[0])) && record.contains(NameOf(spans.texts[1])))
      return ReadSpans(record, example);
    // By themselves words may be anything, such as how many there are of a text.
    const bool has_words = record.contains(NameOf("words"));
    if (has_words && options_.names.count("words") > 0) return ReadTokens(record, example);
    for (const TaskFields& task : kTasks) {
      // Where several fields are the texts of an example, the first of them tells.
      const std::string name = NameOf(task.texts[0]);
      if (record.contains(name) || record.contains(name.substr(0, name.find(','))))
        return ReadTask(record, task, example);
    }
    if (has_words) return ReadTokens(record, example);
    if (record.contains(NameOf("prompt"))) return ReadPrompt(record, example);
    if (record.contains(NameOf("messages"))) {
      return DataLoss("the field '", NameOf("messages"),
                      "' is a conversation, for models that generate; say how it is written with "
                      "`anyorder prep --chat-template`: llada, chatml, tokenizer or TEXT");
    }
    std::vector<std::string> found;
    for (const auto& [name, value] : record.items()) {
      if (found.size() < kMostFieldsNamed) found.push_back(name);
    }
    return BadColumns(is_table_ ? "the table" : "the object",
                      " has none of the fields of an example: ", kKnownFields, "; it has ",
                      absl::StrJoin(found, ", "),
                      ": say what is what with --field text=NAME label=NAME",
                      is_table_ ? SeparatorHint(found) : "");
  }

  template <typename... Parts>
  absl::Status BadColumns(const Parts&... what) {
    has_bad_columns_ = true;
    return DataLoss(what...);
  }

  std::string NameOf(const std::string& field) const {
    const auto named = options_.names.find(field);
    return named == options_.names.end() ? field : named->second;
  }

  absl::Status ReadTask(const Json& record, const TaskFields& task, WrittenExample& example) {
    example.task = task.task;
    if (task.task == ExampleTask::kClassification) {
      RETURN_IF_ERROR(ReadTextOrTexts(record, example));
    } else {
      for (const char* field : task.texts) {
        if (field != nullptr) RETURN_IF_ERROR(ReadField(record, NameOf(field), example));
      }
    }
    if (task.task == ExampleTask::kMultipleChoice)
      RETURN_IF_ERROR(ReadList(record, "choices", 2, kMostChoices, example));
    const auto label = record.find(NameOf("label"));
    if (label == record.end() || label->is_null() || task.task == ExampleTask::kGeneration)
      return absl::OkStatus();
    if (is_table_ && StripSpace(label->get_ref<const std::string&>()).empty())
      return absl::OkStatus();
    return task.task == ExampleTask::kMultipleChoice ? ReadChoice(*label, example)
                                                     : ReadClass(*label, example);
  }

  absl::Status ReadField(const Json& record, const std::string& name, WrittenExample& example) {
    const auto field = record.find(name);
    if (field == record.end()) {
      return BadColumns(is_table_ ? "the table has no column '" : "the object has no field '", name,
                        "'");
    }
    return ReadText(*field, name, example);
  }

  absl::Status ReadText(const Json& field, const std::string& name, WrittenExample& example) {
    const bool verbatim = options_.verbatim && example.task == ExampleTask::kGeneration;
    ASSIGN_OR_RETURN(example.parts.emplace_back(), TextOf(field, name, verbatim));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> TextOf(const Json& field, const std::string& name,
                                     bool verbatim) const {
    if (!field.is_string()) return DataLoss("the field '", name, "' is not a string");
    const std::string& written = field.get_ref<const std::string&>();
    return verbatim ? options_.cleaning.Verbatim(written, name)
                    : options_.cleaning.Clean(written, name);
  }

  absl::Status ReadPrompt(const Json& record, WrittenExample& example) {
    example.task = ExampleTask::kGeneration;
    RETURN_IF_ERROR(ReadField(record, NameOf("prompt"), example));
    for (const std::string& name :
         {NameOf("answer"), std::string("response"), std::string("completion")})
      if (record.contains(name)) return ReadField(record, name, example);
    return BadColumns(is_table_ ? "the table" : "the object", " has the field '", NameOf("prompt"),
                      "' but no field '", NameOf("answer"),
                      "', 'response' or 'completion'; where it is called otherwise, pass --field "
                      "answer=NAME");
  }

  absl::Status ReadMessages(const Json& messages, std::vector<WrittenExample>& examples) {
    const std::string name = NameOf("messages");
    if (!messages.is_array() || messages.empty()) {
      return DataLoss("the field '", name,
                      "' is not a list of messages {\"role\": ..., \"content\": "
                      "...}",
                      is_table_ ? ", which tables do not have; write the examples as .jsonl" : "");
    }
    std::vector<ChatMessage> turns;
    std::set<std::string> roles;
    size_t told = 0;  // messages up to the last answer
    for (size_t i = 0; i < messages.size(); ++i) {
      const Json& message = messages[i];
      const std::string place = absl::StrCat(name, "[", i, "]");
      if (!message.is_object() || !message.contains("role") || !message.contains("content"))
        return DataLoss("the field '", place, "' is not an object with 'role' and 'content'");
      ASSIGN_OR_RETURN(std::string role, TextOf(message["role"], place + ".role", false));
      ASSIGN_OR_RETURN(std::string content,
                       TextOf(message["content"], place + ".content", options_.verbatim));
      roles.insert(role);
      turns.push_back({std::move(role), std::move(content)});
      if (turns.back().role != kAssistant) continue;
      if (turns.size() == 1) {
        return DataLoss("the field '", name,
                        "' begins with a message of the role 'assistant', which "
                        "answers nothing; remove it, or put a message before it");
      }
      const bool goes_on = options_.whole_conversations && told > 0;
      WrittenExample& example = goes_on ? examples.back() : examples.emplace_back();
      RETURN_IF_ERROR(Render(turns, goes_on ? told : 0, example));
      told = turns.size();
    }
    if (told < turns.size()) {
      options_.left_out->push_back(
          {where_,
           told > 0 ? absl::StrCat("its last messages, ", turns.size() - told, ", have no answer")
                    : absl::StrCat("no message of the role 'assistant', but of ",
                                   absl::StrJoin(roles, ", "))});
    }
    return absl::OkStatus();
  }

  // The last of `turns` is the answer; the first `told` are in `example` already. Cleaned once
  // more: a template may have line ends.
  absl::Status Render(absl::Span<const ChatMessage> turns, size_t told,
                      WrittenExample& example) const {
    const auto [prompt, answer] = options_.chat->Render(turns, told);
    ExampleCleaning again = options_.cleaning;
    again.marks = nullptr;  // counted when the messages were cleaned
    example.task = ExampleTask::kGeneration;
    for (const std::string& part : {prompt, answer}) {
      example.parts.push_back(part);
      if (options_.verbatim) continue;
      ASSIGN_OR_RETURN(example.parts.back(),
                       again.Clean(WithoutTemplateMarks(part), "text of the chat template"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadSpans(const Json& record, WrittenExample& example) {
    example.task = ExampleTask::kSpans;
    RETURN_IF_ERROR(ReadField(record, NameOf("question"), example));
    const std::string name = NameOf("passage");
    const Json& passage = record[name];
    if (!passage.is_string()) return DataLoss("the field '", name, "' is not a string");
    RETURN_IF_ERROR(
        options_.cleaning.AddPassage(passage.get_ref<const std::string&>(), name, example));
    if (const auto id = record.find("id"); id != record.end())
      example.id = id->is_string() ? id->get<std::string>() : id->is_number() ? DumpJson(*id) : "";
    const auto answers = record.find(NameOf("answers"));
    if (answers == record.end() || answers->is_null()) return absl::OkStatus();
    if (is_table_ && answers->get_ref<const std::string&>().empty()) return absl::OkStatus();
    return ReadAnswers(*answers, example);
  }

  absl::Status ReadAnswers(const Json& answers, WrittenExample& example) {
    const std::string name = NameOf("answers");
    if (!answers.is_array()) {
      return DataLoss(
          "the field '", name,
          "' is not a list of answers {\"text\": ..., \"start\": ...}, which .jsonl has and "
          "tables do not; [] says that the passage has no answer");
    }
    example.answers.emplace();
    for (const Json& one : answers) {
      const bool is_answer = one.is_object() && one.contains("text") && one["text"].is_string() &&
                             one.contains("start") && WholeNumber(one["start"]).value_or(-1) >= 0;
      if (!is_answer) {
        return DataLoss(
            "the field '", name,
            "' holds what is no answer: an object with the string 'text' and the number "
            "'start', of its first character in the passage");
      }
      const OriginalAnswer answer{one["text"].get<std::string>(), *WholeNumber(one["start"])};
      if (!IsInPassage(answer, example.passage)) {
        return DataLoss("the answer '", answer.text, "' does not stand at character ", answer.begin,
                        " of the passage; characters are code points, counted from 0");
      }
      example.answers->push_back(answer);
    }
    return absl::OkStatus();
  }

  absl::Status ReadTextOrTexts(const Json& record, WrittenExample& example) {
    const std::string name = NameOf("text");
    const auto field = record.find(name);
    const bool is_one =
        field == record.end() ? name.find(',') == std::string::npos : !field->is_array();
    return is_one ? ReadField(record, name, example)
                  : ReadList(record, "text", 1, kMostTexts, example);
  }

  // Texts, each in a field of its own, or all in one.
  absl::Status ReadList(const Json& record, const char* list, size_t least, size_t most,
                        WrittenExample& example) {
    const std::string name = NameOf(list);
    const std::vector<std::string> fields = absl::StrSplit(name, ',');
    if (fields.size() > most) {
      return DataLoss("--field ", list, " names ", fields.size(), " fields, but at most ", most,
                      " are allowed");
    }
    if (fields.size() > 1) {
      for (const std::string& field : fields) RETURN_IF_ERROR(ReadField(record, field, example));
      return absl::OkStatus();
    }
    const auto texts = record.find(name);
    if (texts == record.end()) return DataLoss("the object has no field '", name, "'");
    if (!texts->is_array() || texts->size() < least || texts->size() > most) {
      return DataLoss("the field '", name, "' is not a list of ", RangeText(least, most),
                      " texts; where each stands in a field of its own, pass --field ", list,
                      "=A,B,...");
    }
    for (size_t i = 0; i < texts->size(); ++i)
      RETURN_IF_ERROR(ReadText((*texts)[i], absl::StrCat(name, "[", i, "]"), example));
    return absl::OkStatus();
  }

  absl::Status ReadChoice(const Json& label, WrittenExample& example) {
    const int64_t choices = std::ssize(example.parts) - 1;
    double number = -1;
    std::optional<int64_t> choice = WholeNumber(label);
    if (is_table_ && absl::SimpleAtod(label.get_ref<const std::string&>(), &number))
      choice = WholeNumber(number);
    if (choice && *choice >= 0 && *choice < choices) {
      example.choice = static_cast<int32_t>(*choice);
      return absl::OkStatus();
    }
    // Only a number is printed: printing recurses, and a line has room for a deep nest.
    return DataLoss("the field '", NameOf("label"), "' is ",
                    is_table_ || label.is_number() ? DumpJson(label) : label.type_name(),
                    ", not the number of a choice, 0 to ", choices - 1);
  }

  absl::Status ReadClass(const Json& label, WrittenExample& example) {
    if (label.is_number_float() && !WholeNumber(label)) {
      example.class_name = DumpJson(label);  // a score, as a rule
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(example.class_name, ClassName(label, NameOf("label")));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ClassName(const Json& label, const std::string& name) const {
    if (label.is_string()) {
      const std::string_view text = StripSpace(label.get_ref<const std::string&>());
      if (!text.empty()) return std::string(text);
    }
    if (label.is_number_float() && WholeNumber(label)) return absl::StrCat(*WholeNumber(label));
    if (label.is_number_integer() || label.is_boolean()) return DumpJson(label);
    return DataLoss("the field '", name, "' is not the name or the whole number of a class");
  }

  absl::Status ReadTokens(const Json& record, WrittenExample& example) {
    example.task = ExampleTask::kTokens;
    const std::string name = NameOf("words");
    const Json& words = record[name];
    if (!words.is_array() || words.empty()) {
      return DataLoss("the field '", name, "' is not a list of one word or more",
                      is_table_ ? ", which tables do not have; write the examples as .jsonl"
                                : ", such as [\"He\", \"left\", \".\"]");
    }
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string word_name = absl::StrCat(name, "[", i, "]");
      if (!words[i].is_string()) {
        return DataLoss("the field '", word_name, "' is not a string; put quotes around the word");
      }
      RETURN_IF_ERROR(
          options_.cleaning.AddWord(words[i].get_ref<const std::string&>(), word_name, example));
    }
    const auto tags = record.find(NameOf("tags"));
    if (tags == record.end() || tags->is_null()) return absl::OkStatus();
    return ReadTags(*tags, example);
  }

  absl::Status ReadTags(const Json& tags, WrittenExample& example) {
    const std::string name = NameOf("tags");
    if (!tags.is_array()) {
      return DataLoss("the field '", name,
                      "' is not a list of tags, one for each word; leave it out where they are not "
                      "known");
    }
    if (tags.size() != example.words.size()) {
      return DataLoss("the field '", name, "' has ", tags.size(), " tags, but the field '",
                      NameOf("words"), "' has ", example.words.size(),
                      " words; give each word its tag");
    }
    for (size_t i = 0; i < tags.size(); ++i) {
      ASSIGN_OR_RETURN(example.tags.emplace_back(),
                       ClassName(tags[i], absl::StrCat(name, "[", i, "]")));
    }
    return absl::OkStatus();
  }

  const ExampleReadOptions& options_;
  const std::string& where_;
  const bool is_table_;
  bool has_bad_columns_ = false;
};

// The lines of one file.
class ExampleFile {
 public:
  ExampleFile(const InputFile& file, const ExampleReadOptions& options, const TakeExample& take)
      : file_(file),
        options_(options),
        take_(take),
        table_(file.path, SeparatorOf(file.kind), options.table) {}

  absl::Status OnLine(std::string_view text, uint64_t line) {
    return IsTable(file_.kind) ? OnTableLine(text, line) : OnJsonLine(text, line);
  }

  // To be called after the last line.
  absl::Status Finish() const { return table_.Finish(); }

 private:
  absl::Status OnJsonLine(std::string_view text, uint64_t line) {
    if (text.find_first_not_of(" \t\r\v\f") == std::string_view::npos) return absl::OkStatus();
    const Json record = ParseJsonLine(text, options_.cleaning.invalid_utf8);
    if (record.is_object()) return Read(record, line, line);
    return DataLoss(Place(line), ": ", WhyNoJsonObject(text), "; write one example per line",
                    LinesHint(text));
  }

  absl::Status OnTableLine(std::string_view text, uint64_t line) {
    ASSIGN_OR_RETURN(const bool is_row, table_.AddLine(text, line));
    if (!is_row) return absl::OkStatus();
    if (!std::exchange(knows_columns_, true)) RETURN_IF_ERROR(CheckColumns());
    Json record = Json::object();
    for (size_t i = 0; i < table_.cells().size(); ++i)
      record[table_.columns()[i]] = table_.cells()[i];
    return Read(record, table_.line(), table_.first_line());
  }

  std::string Place(uint64_t line) const { return absl::StrCat(file_.path, ":", line); }

  // `columns_line` says what the fields are called: of a table its header, otherwise `line`.
  absl::Status Read(const Json& record, uint64_t line, uint64_t columns_line) const {
    const std::string where = Place(line);
    ExampleParser parser(options_, where, IsTable(file_.kind));
    std::vector<WrittenExample> examples;
    const absl::Status read = parser.Read(record, examples);
    if (!read.ok()) return Annotate(read, parser.has_bad_columns() ? Place(columns_line) : where);
    for (const WrittenExample& example : examples)
      RETURN_IF_ERROR(Annotate(take_(where, example), where));
    return absl::OkStatus();
  }

  // Whether there is a column of each name that was given.
  absl::Status CheckColumns() const {
    for (const auto& [field, name] : options_.names) {
      constexpr char kOption[] = "--text-field or --field";
      const bool may_be_several =
          field == "choices" || (field == "text" && !table_.FindColumn(name, kOption).ok());
      const std::vector<std::string> names =
          may_be_several ? absl::StrSplit(name, ',') : std::vector<std::string>{name};
      for (const std::string& one : names)
        RETURN_IF_ERROR(table_.FindColumn(one, kOption).status());
    }
    return absl::OkStatus();
  }

  const InputFile& file_;
  const ExampleReadOptions& options_;
  const TakeExample& take_;
  TableReader table_;
  bool knows_columns_ = false;
};

// `text` of a field, in which NUL is an error or replaced. Errors: as ExampleCleaning::Clean.
absl::StatusOr<std::string> WithoutNul(std::string_view text, const std::string& name,
                                       size_t most_bytes, InvalidUtf8 invalid_utf8) {
  std::string repaired;
  if (FirstInvalidByte(text) != text.size()) {  // \u0000 is the one fault JSON lets through
    if (invalid_utf8 == InvalidUtf8::kError) {
      return DataLoss("the field '", name, "' holds NUL; repair it or pass --invalid-utf8 replace");
    }
    AppendWithReplacements(text, repaired);
    text = repaired;
  }
  if (text.size() > most_bytes) {
    return DataLoss("the field '", name, "' has ", text.size(), " bytes but may have ", most_bytes,
                    "; shorten it: no network reads that much of it");
  }
  return std::string(text);
}

absl::StatusOr<std::string> CleanWhole(std::string_view text, const std::string& name,
                                       const ExampleCleaning& how) {
  std::string cleaned;
  CleanLine(text, how.cleaning, cleaned, nullptr, how.marks);
  if (IsBlank(cleaned)) return DataLoss("the field '", name, "' holds no text");
  return cleaned;
}

}  // namespace

absl::Status CheckFieldNames(const FieldNames& names) {
  std::set<std::string> known = {"label", "choices", "answers", "words",
                                 "tags",  "prompt",  "answer",  "messages"};
  for (const TaskFields& task : kTasks) {
    for (const char* field : task.texts) {
      if (field != nullptr) known.insert(field);
    }
  }
  for (const auto& [field, name] : names) {
    if (known.count(field) > 0 && !name.empty()) continue;
    return InvalidArgument("--field ", field, "=", name, " is not FIELD=NAME; the fields are ",
                           absl::StrJoin(known, ", "));
  }
  return absl::OkStatus();
}

absl::Status ReadExamples(const InputFile& file, const ExampleReadOptions& options,
                          const TakeExample& take) {
  ExampleFile lines(file, options, take);
  RETURN_IF_ERROR(ReadExampleLines(
      file, options.cleaning.invalid_utf8,
      [&](std::string_view text, uint64_t line) { return lines.OnLine(text, line); }));
  return lines.Finish();
}

absl::Status ReadExampleLines(const InputFile& file, InvalidUtf8 invalid_utf8,
                              const TakeLine& take) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, OpenInput(file));
  const auto take_piece = [&](const TextPiece& piece) -> absl::Status {
    if (!piece.is_line()) {
      return DataLoss(file.path, ":", piece.line, ": a line longer than ", kMaxJsonLineBytes >> 20,
                      " MiB; write one example per line");
    }
    if (FirstInvalidByte(piece.text) == piece.text.size()) return take(piece.text, piece.line);
    if (invalid_utf8 == InvalidUtf8::kError) {
      return DataLoss(file.path, ":", piece.line, ": invalid ", source->encoding(),
                      " or NUL in the line; ", InvalidTextAdvice(*source));
    }
    std::string repaired;
    AppendWithReplacements(piece.text, repaired);
    return take(repaired, piece.line);
  };
  return ReadPieces(*source, {.max_bytes = kMaxJsonLineBytes}, take_piece).status();
}

bool IsInPassage(const OriginalAnswer& answer, const std::string& passage) {
  if (answer.begin < 0 || answer.begin >= std::ssize(passage)) return false;
  std::string cleaned;
  CleanLine(answer.text, Cleaning(), cleaned);
  const CharacterRange range{answer.begin, answer.begin + NumCharacters(answer.text)};
  return !cleaned.empty() && CharactersOf(passage, range) == answer.text;
}

absl::StatusOr<std::string> ExampleCleaning::Verbatim(std::string_view text,
                                                      const std::string& name) const {
  ASSIGN_OR_RETURN(std::string whole, WithoutNul(text, name, kMaxPassageBytes, invalid_utf8));
  if (whole.find_first_not_of(" \t\r\n\v\f") == whole.npos)
    return DataLoss("the field '", name, "' holds no text");
  return whole;
}

absl::StatusOr<std::string> ExampleCleaning::Clean(std::string_view text,
                                                   const std::string& name) const {
  ASSIGN_OR_RETURN(const std::string whole,
                   WithoutNul(text, name, kMaxSentenceBytes, invalid_utf8));
  return CleanWhole(whole, name, *this);
}

absl::Status ExampleCleaning::AddText(std::string_view text, const std::string& name,
                                      WrittenExample& example) const {
  ASSIGN_OR_RETURN(example.parts.emplace_back(), Clean(text, name));
  return absl::OkStatus();
}

absl::Status ExampleCleaning::AddPassage(std::string_view text, const std::string& name,
                                         WrittenExample& example) const {
  ASSIGN_OR_RETURN(example.passage, WithoutNul(text, name, kMaxPassageBytes, invalid_utf8));
  ASSIGN_OR_RETURN(example.parts.emplace_back(), CleanWhole(example.passage, name, *this));
  return absl::OkStatus();
}

absl::Status ExampleCleaning::AddWord(std::string_view text, const std::string& name,
                                      WrittenExample& example) const {
  ASSIGN_OR_RETURN(const std::string whole,
                   WithoutNul(text, name, kMaxSentenceBytes, invalid_utf8));
  std::string word;
  CleanLine(whole, cleaning, word, nullptr, marks);
  if (IsBlank(word))
    return DataLoss("the field '", name, "' holds no text; leave the word out, and its tag");
  if (example.parts.empty()) example.parts.emplace_back();
  std::string& joined = example.parts[0];
  absl::StrAppend(&joined, joined.empty() ? "" : " ", word);
  if (joined.size() > kMaxSentenceBytes) {
    return DataLoss("with the field '", name, "' the words have ", joined.size(),
                    " bytes but may have ", kMaxSentenceBytes, "; make several examples of them");
  }
  example.words.push_back(std::move(word));
  return absl::OkStatus();
}

}  // namespace anyorder::data
