// Labelled examples, JSON lines. The input's first byte chooses the options.

#include <algorithm>

#include "core/base/check.h"
#include "data/prep/example_reader.h"
#include "tests/fuzz/fuzz_target.h"

namespace anyorder::fuzz {
namespace {

class TextSource final : public data::ByteSource {
 public:
  explicit TextSource(absl::string_view text) : rest_(text) {}
  absl::StatusOr<size_t> Read(char* out, size_t capacity) override {
    const size_t count = std::min({capacity, size_t{100}, rest_.size()});
    std::copy_n(rest_.data(), count, out);
    rest_.remove_prefix(count);
    return count;
  }
  Digest128 StoredDigest() const override { return {}; }

 private:
  absl::string_view rest_;
};

std::vector<std::string> Seeds() {
  return {
      "\x01{\"text\": \"caf\\u00e9 au lait\", \"label\": 3}\n{\"text\": \"b\", \"label\": \"x\"}\n",
      "\x02{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": true}\n\n",
      "\x03{\"a\": \"one\", \"b\": \"two\", \"label\": null}",
      "\x04{\"context\": \"c\", \"choices\": [\"d\", \"e\", \"f\"], \"label\": 2}\r\n",
      "\x05{\"source\": \"s\", \"target\": \"t\"}\n{\"source\": \"s\", \"target\": \"t\"}"};
}

void Run(absl::string_view text) {
  using data::WrittenExample;
  if (text.empty()) return;
  data::ExampleReadOptions options;
  options.path = "input";
  if (static_cast<uint8_t>(text[0]) & 1) options.letter_case = data::LetterCase::kUncased;
  if (static_cast<uint8_t>(text[0]) & 2) options.invalid_utf8 = data::InvalidUtf8::kReplace;
  TextSource source(text.substr(1));
  const auto take = [](uint64_t line, const WrittenExample& example) {
    ANYORDER_CHECK(line > 0 && !example.parts.empty());
    for (const std::string& part : example.parts) {
      ANYORDER_CHECK(!part.empty() && part.size() <= 11 * data::kMaxSentenceBytes);
      ANYORDER_CHECK(data::FirstInvalidByte(part) == part.size());
    }
    const auto choices = static_cast<int32_t>(example.parts.size()) - 1;
    ANYORDER_CHECK(example.choice >= -1 && example.choice < std::max(choices, 0));
    return absl::OkStatus();
  };
  data::ReadExamples(source, options, take).IgnoreError();
}

const bool registered = Register({"example_lines", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
