// What datasets are made of: corpus text and labelled examples. The input's first byte chooses the
// options.

#include <algorithm>

#include "data/prep/examples/example_reader.h"
#include "data/prep/text_reader.h"
#include "tests/data/prep/corpus_text.h"
#include "tests/fuzz/fuzz_target.h"

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

const bool registered[] = {
    Register({"text", TextSeeds, UseText}),
    Register({"example_lines", ExampleSeeds, UseExamples}),
};

}  // namespace
}  // namespace anyorder::fuzz
