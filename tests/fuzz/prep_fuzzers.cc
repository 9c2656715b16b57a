// What datasets are made of: corpus text, also compressed, tables, labelled examples, conversations
// and the files of official tasks. The input's first byte chooses the options.

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "core/base/json_members.h"
#include "data/prep/examples/chat_template.h"
#include "data/prep/examples/example_reader.h"
#include "data/prep/examples/official_tasks.h"
#include "data/prep/text_reader.h"
#include "tests/data/prep/corpus_text.h"
#include "tests/data/prep/stored_forms.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/official_files.h"

namespace anyorder::fuzz {
namespace {

// What cleaning yields is valid UTF-8, not empty, and of bounded length: NFKD makes at most 11
// times the bytes.
void CheckClean(std::string_view text) {
  ANYORDER_CHECK(!text.empty() && text.size() <= 11 * data::kMaxSentenceBytes);
  ANYORDER_CHECK(data::FirstInvalidByte(text) == text.size());
}

class CheckingSink final : public data::SentenceSink {
 public:
  absl::Status OnSentence(std::string_view sentence) override {
    CheckClean(sentence);
    return absl::OkStatus();
  }
  absl::Status OnDocumentEnd() override { return absl::OkStatus(); }
};

std::vector<std::string> TextSeeds() {
  const std::string json =
      "{\"text\":\"a b\\nc\\r\\n\\n d\",\"id\":[1,{\"text\":\"no\"}]}\n\n"
      "{\"id\":1,\"text\":\"\\u00e9 \\ud83d\\ude00\"}\r\n";
  const std::string plain =
      "\xEF\xBB\xBF"
      "One ``sentence''.\r\n\r\n \t\n\xC2\xA0 caf\xC3\xA9\n";
  const std::string table = "id,text,x\r\n1,\"a, \"\"b\"\"\nc\",\n\n2,d \"e\",f\n";
  return {'\x01' + json,  '\x0f' + json,  std::string(1, '\0') + plain,
          '\x0e' + plain, '\x10' + table, "\x39id\ttext\n1\t\"a\n"};
}

data::TextKind KindOf(uint8_t choice) {
  const bool is_odd = (choice & 1) != 0;
  if ((choice & 16) != 0) return is_odd ? data::TextKind::kTsv : data::TextKind::kCsv;
  return is_odd ? data::TextKind::kJsonl : data::TextKind::kTxt;
}

// .txt, .jsonl and tables.
void UseText(absl::string_view text) {
  if (text.empty()) return;
  const uint8_t choice = static_cast<uint8_t>(text[0]);
  const data::TextReadOptions options = {
      .path = "in",
      .kind = KindOf(choice),
      .cleaning = {(choice & 2) != 0 ? data::LetterCase::kUncased : data::LetterCase::kCased},
      .invalid_utf8 = (choice & 4) != 0 ? data::InvalidUtf8::kReplace : data::InvalidUtf8::kError,
      .table = {.has_header = true, .has_quotes = (choice & 32) == 0}};
  data::PortionSource source(text.substr(1), (choice & 8) != 0 ? 3 : 1 << 20);
  CheckingSink sink;
  data::TextReadCounts counts;
  data::ReadText(source, options, sink, counts, nullptr).IgnoreError();
  ANYORDER_CHECK(counts.bytes <= text.size() - 1);
}

std::vector<std::string> ExampleSeeds() {
  return {
      "\x01{\"text\": \"caf\\u00e9 au lait\", \"label\": 3}\n{\"text\": \"b\", \"label\": \"x\"}\n",
      "\x02{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": true}\n\n",
      "\x03{\"a\": \"one\", \"b\": \"two\", \"label\": null}",
      "\x04{\"context\": \"c\", \"choices\": [\"d\", \"e\", \"f\"], \"label\": 2}\r\n",
      "\x05{\"source\": \"s\", \"target\": \"t\"}\n{\"source\": \"s\", \"target\": \"t\"}",
      "\x18text,label\n\"a, \"\"b\"\"\nc\",1\nd,\n",
      "\x30"
      "context,b,c,label\nx,y,z,1\n"};
}

void UseExamples(absl::string_view text) {
  if (text.empty()) return;
  static const ScratchDirectory& scratch = *new ScratchDirectory();
  data::InputFile file{.path = scratch.Store("input", text.substr(1)),
                       .kind = data::TextKind::kJsonl,
                       .stored_bytes = text.size() - 1};
  data::ExampleReadOptions options;
  if (static_cast<uint8_t>(text[0]) & 1)
    options.cleaning.cleaning.letter_case = data::LetterCase::kUncased;
  if (static_cast<uint8_t>(text[0]) & 2)
    options.cleaning.invalid_utf8 = data::InvalidUtf8::kReplace;
  if (static_cast<uint8_t>(text[0]) & 16) file.kind = data::TextKind::kCsv;
  if (static_cast<uint8_t>(text[0]) & 32) options.names = {{"choices", "b,c"}};
  const auto take = [](const std::string& where, const data::WrittenExample& example) {
    ANYORDER_CHECK(where.find(':') != where.npos && !example.parts.empty());
    for (const std::string& part : example.parts) CheckClean(part);
    const auto choices = static_cast<int32_t>(example.parts.size()) - 1;
    ANYORDER_CHECK(example.choice >= -1 && example.choice < std::max(choices, 0));
    return absl::OkStatus();
  };
  data::ReadExamples(file, options, take).IgnoreError();
}

// --- Compressed text and UTF-16

// Data of a few bytes may be decompressed to any number: so many are read.
constexpr size_t kMostRead = 4 << 20;
constexpr uint64_t kWindow = 1 << 23;

class FirstBytes final : public data::ByteSource {
 public:
  explicit FirstBytes(data::ByteSource& source) : source_(source) {}
  absl::StatusOr<size_t> Read(char* out, size_t capacity) override {
    if (read_ > kMostRead) return 0;
    const absl::StatusOr<size_t> bytes = source_.Read(out, capacity);
    ANYORDER_CHECK(!bytes.ok() || *bytes <= capacity);
    read_ += bytes.value_or(0);
    return bytes;
  }
  Digest128 StoredDigest() const override { return source_.StoredDigest(); }

 private:
  data::ByteSource& source_;
  size_t read_ = 0;
};

std::vector<std::string> CompressedSeeds() {
  const std::string text = "One line, caf\xC3\xA9.\n\nTwo \xF0\x9F\x98\x80\n";
  const std::string zeros(1 << 20, '\0'), gzip = data::Gzip(text), zstd = data::Zstd(text);
  std::vector<std::string> seeds = {
      '\1' + gzip,
      '\1' + gzip + gzip,
      '\1' + data::Gzip(zeros),
      '\2' + zstd,
      '\2' + zstd + std::string("\x50\x2A\x4D\x18\1\0\0\0x", 9) + zstd,
      '\2' + data::Zstd(zeros)};
  for (const int form : {0, 1, 2, 3})
    seeds.push_back('\0' + data::AsUtf16(text, (form & 1) != 0, (form & 2) != 0));
  return seeds;
}

void UseCompressed(absl::string_view input) {
  static const ScratchDirectory& scratch = *new ScratchDirectory();
  if (input.empty()) return;
  const auto compression = static_cast<data::Compression>(static_cast<uint8_t>(input[0]) % 3);
  const auto source = data::OpenByteSource(scratch.Store("stored", input.substr(1)), compression, 0,
                                           input.size() - 1, kWindow);
  if (!source.ok()) return;
  FirstBytes first(**source);
  CheckingSink sink;
  data::TextReadCounts counts;
  data::ReadText(first, {.path = "in", .invalid_utf8 = data::InvalidUtf8::kReplace}, sink, counts,
                 nullptr)
      .IgnoreError();
}

// --- Tables

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

absl::StatusOr<Table> ReadTable(absl::string_view text, char separator,
                                const data::TableOptions& options) {
  data::TableReader reader("t", separator, options);
  Table table;
  uint64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::StatusOr<bool> is_row = reader.AddLine({line.data(), line.size()}, ++number);
    if (!is_row.ok()) return is_row.status();
    if (*is_row) table.rows.push_back(reader.cells());
  }
  table.columns = reader.columns();
  const absl::Status status = reader.Finish();
  return status.ok() ? absl::StatusOr<Table>(std::move(table)) : status;
}

std::vector<std::string> TableSeeds() {
  return {std::string("\0", 1) + "id,text\n1,\"a, \"\"b\"\"\nc\"\n\n2,d\n",
          "\1id\ttext\n1\t\"a\"\n", "\2a,b\nc,\"d\"\n", "\4id,text\n1,a \"b\n",
          std::string("\0;;\n", 4)};
}

// What was taken is taken again when it is written with all cells in quotes.
void UseTable(absl::string_view input) {
  if (input.empty()) return;
  const auto choice = static_cast<uint8_t>(input[0]);
  const char separator = (choice & 1) != 0 ? '\t' : ',';
  const data::TableOptions options = {.has_header = (choice & 2) == 0,
                                      .has_quotes = (choice & 4) == 0};
  const auto table = ReadTable(input.substr(1), separator, options);
  if (!table.ok()) return;
  std::string written;
  const auto write = [&](const std::vector<std::string>& cells) {
    ANYORDER_CHECK(cells.size() == table->columns.size()) << cells.size();
    absl::StrAppend(
        &written,
        absl::StrJoin(
            cells, std::string(1, separator),
            [](std::string* out, const std::string& cell) {
              absl::StrAppend(out, "\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}), "\"");
            }),
        "\n");
  };
  if (options.has_header && !table->columns.empty()) write(table->columns);
  for (const auto& row : table->rows) write(row);
  const auto again =
      ReadTable(written, separator, {.has_header = options.has_header, .has_quotes = true});
  ANYORDER_CHECK_OK(again.status());
  ANYORDER_CHECK(again->rows == table->rows && again->columns == table->columns) << written;
}

// --- Conversations

constexpr char kPart = '\x1f';  // between the template, roles and contents

std::vector<std::string> ChatSeeds() {
  std::vector<std::string> seeds;
  for (const char* chat : {"llada", "chatml", "tokenizer", "<s>{message}\\n{role}: {content}"})
    seeds.push_back(absl::StrJoin({chat, "system", "", "user", "Hi {content}", "assistant", "\xff"},
                                  std::string(1, kPart)));
  return seeds;
}

// All messages, and all but the first ones.
void UseChat(absl::string_view input) {
  const std::vector<std::string> parts = absl::StrSplit(input, kPart);
  const auto chat = data::ChatTemplate::Read(parts[0]);
  if (!chat.ok()) return;
  std::vector<data::ChatMessage> messages;
  for (size_t i = 1; i + 1 < parts.size(); i += 2) messages.push_back({parts[i], parts[i + 1]});
  for (const size_t told : {size_t{0}, messages.size() / 2}) {
    if (told >= messages.size()) continue;
    const auto [prompt, answer] = chat->Render(messages, told);
    const std::string marks(2, data::kTemplateMark);
    if (chat->is_tokenizers()) {
      for (const std::string& request : {prompt, answer}) {
        ANYORDER_CHECK(absl::StartsWith(request, marks)) << request;
        ANYORDER_CHECK(TryParseJson(request.substr(marks.size())).is_object()) << request;
      }
      continue;
    }
    ANYORDER_CHECK(absl::StartsWith(answer, messages.back().content)) << answer;
    ANYORDER_CHECK(!absl::StrContains(data::WithoutTemplateMarks(prompt), marks[0]));
  }
}

// --- Official tasks

// Tasks by their number in the first byte.
std::vector<std::string> OfficialSeeds() {
  std::vector<std::string> seeds;
  const std::vector<data::OfficialTask>& tasks = data::OfficialTasks();
  for (const auto& [name, text] : kOfficialFiles) {
    for (size_t i = 0; i < tasks.size(); ++i)
      if (tasks[i].name == name) seeds.push_back(static_cast<char>(i) + std::string(text));
  }
  return seeds;
}

void UseOfficial(absl::string_view input) {
  static const ScratchDirectory& scratch = *new ScratchDirectory();
  if (input.empty()) return;
  const std::vector<data::OfficialTask>& tasks = data::OfficialTasks();
  const data::OfficialTask& task = tasks[static_cast<uint8_t>(input[0]) % tasks.size()];
  const auto take = [&](const std::string& where, const data::WrittenExample& example) {
    ANYORDER_CHECK(!where.empty() && example.task == task.kind) << where;
    ANYORDER_CHECK(!example.parts.empty()) << where;
    for (const std::string& part : example.parts) {
      ANYORDER_CHECK(!part.empty() && data::FirstInvalidByte(part) == part.size()) << where;
    }
    ANYORDER_CHECK(example.choice >= -1 && example.choice + 1 < std::ssize(example.parts)) << where;
    ANYORDER_CHECK(example.tags.empty() || example.tags.size() == example.words.size()) << where;
    return absl::OkStatus();
  };
  data::OfficialReading reading(task, StoreOfficial(scratch, task, input.substr(1)), {}, take);
  task.read(reading).IgnoreError();
}

const bool registered[] = {
    Register({"text", TextSeeds, UseText}),
    Register({"example_lines", ExampleSeeds, UseExamples}),
    Register({"compressed_text", CompressedSeeds, UseCompressed}),
    Register({"table", TableSeeds, UseTable}),
    Register({"chat_template", ChatSeeds, UseChat}),
    Register({"official_tasks", OfficialSeeds, UseOfficial}),
};

}  // namespace
}  // namespace anyorder::fuzz
