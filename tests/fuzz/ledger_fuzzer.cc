// run-dir/ledger.jsonl. Each line is also tried with a checksum that fits.

#include "absl/strings/str_split.h"

#include "core/base/check.h"
#include "core/base/crc32c.h"
#include "core/base/whole_file.h"
#include "core/train/run/ledger.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_directory.h"

namespace anyorder::fuzz {
namespace {

constexpr char kSealKey[] = ",\"crc32c\":\"";

// Seals each line again that has a seal.
std::string Sealed(absl::string_view text) {
  std::string sealed;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const absl::string_view body = line.substr(0, line.rfind(kSealKey));
    const uint32_t crc = Crc32c(body.data(), static_cast<int64_t>(body.size()));
    absl::StrAppend(&sealed, body, kSealKey, absl::Hex(crc, absl::kZeroPad8), "\"}\n");
  }
  return sealed;
}

std::vector<std::string> Seeds() {
  const ScratchDirectory scratch;
  const std::string path = scratch.path() + "/ledger.jsonl";
  auto ledger = Ledger::Open(path);
  ANYORDER_CHECK_OK(ledger.status());
  const std::vector<ledger::Event> events = {ledger::Created{"run", "digest"},
                                             ledger::Start{"run", 1, 2, 77, 0, {"n1", "n2"}},
                                             ledger::Commit{1, 20, 1, 8},
                                             ledger::Trained{1, 10, 20},
                                             ledger::Skipped{1, 20, 0, 8, "spike", ""},
                                             ledger::Stop{1, 20, 74, 0, "detail"}};
  for (const ledger::Event& event : events) ANYORDER_CHECK_OK(ledger->Append(event));
  const auto text = ReadWholeFile(path);
  ANYORDER_CHECK_OK(text.status());
  return {*text};
}

void Run(absl::string_view text) {
  static const ScratchDirectory scratch;
  for (const std::string& file : {std::string(text), Sealed(text)}) {
    const auto records = ReadLedger(scratch.Store("ledger.jsonl", file));
    if (records.ok()) Summarize(*records);
  }
}

const bool registered = Register({"ledger", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
