// The text files of a run: its configuration, ledger.jsonl and metrics.jsonl.

#include "absl/strings/str_split.h"

#include "core/base/crc32c.h"
#include "core/train/run/config_file.h"
#include "core/train/run/ledger.h"
#include "core/train/run/metrics.h"
#include "tests/fuzz/fuzz_target.h"

namespace anyorder::fuzz {
namespace {

std::vector<std::string> ConfigSeeds() {
  std::vector<std::string> seeds = {"train.global_batch_size=4", "model.attention=bi",
                                    "run.seed=-1"};
  for (const char* name : {"xlnet-tiny", "xlnet-base", "dae-tiny", "transformer-xl-tiny"}) {
    const std::string path = absl::StrCat(ANYORDER_FUZZ_CONFIGS, "/", name, ".toml");
    seeds.push_back(ValueOrDie(ReadWholeFile(path, kMaxTextBytes)));
  }
  return seeds;
}

// A TOML file, or an override of the command line.
void UseConfig(absl::string_view text) {
  const absl::StatusOr<RunConfig> config = ParseRunConfig(text, "c");
  if (config.ok()) {
    config->Validate();
    config->ValidateWorldSize(3).IgnoreError();
  }
  RunConfig changed;
  if (ApplyOverride(text, changed).ok()) changed.Validate();
}

// Seals each line of a ledger again that has a seal.
std::string Sealed(absl::string_view text) {
  constexpr char kSealKey[] = ",\"crc32c\":\"";
  std::string sealed;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const absl::string_view body = line.substr(0, line.rfind(kSealKey));
    const uint32_t crc = Crc32c(body.data(), static_cast<int64_t>(body.size()));
    absl::StrAppend(&sealed, body, kSealKey, absl::Hex(crc, absl::kZeroPad8), "\"}\n");
  }
  return sealed;
}

std::vector<std::string> LedgerSeeds() {
  const ScratchDirectory scratch;
  auto ledger = Ledger::Open(scratch.path() + "/ledger.jsonl");
  ANYORDER_CHECK_OK(ledger.status());
  const std::vector<ledger::Event> events = {ledger::Created{"run", "digest"},
                                             ledger::Start{"run", 1, 2, 77, 0, {"n1", "n2"}},
                                             ledger::Commit{1, 20, 1, 8},
                                             ledger::Trained{1, 10, 20},
                                             ledger::Skipped{1, 20, 0, 8, "spike", ""},
                                             ledger::Stop{1, 20, 74, 0, 12, "diverged", "detail"}};
  for (const ledger::Event& event : events) ANYORDER_CHECK_OK(ledger->Append(event));
  return {scratch.Load("ledger.jsonl")};
}

void UseLedger(absl::string_view text) {
  static const ScratchDirectory scratch;
  for (const std::string& file : {std::string(text), Sealed(text)}) {
    const auto records = ReadLedgerFile(scratch.Store("ledger.jsonl", file));
    if (records.ok()) Summarize(*records);
  }
}

std::vector<std::string> MetricsSeeds() {
  const ScratchDirectory scratch;
  auto log = MetricsLog::Open(scratch.path() + "/metrics.jsonl");
  ANYORDER_CHECK_OK(log.status());
  for (int64_t step = 1; step <= 4; ++step) {
    StepMetrics metrics = {.step = step,
                           .attempt = 1,
                           .loss = 5.5,
                           .means = {{"loss_ae", 3.5}, {"nsp_accuracy", 0.5}}};
    metrics.held_out.emplace();
    metrics.held_out->means = metrics.means;
    ANYORDER_CHECK_OK(log->Append(metrics));
  }
  return {scratch.Load("metrics.jsonl")};
}

// Read at once, as a stream, and cut back for a restart.
void UseMetrics(absl::string_view text) {
  static const ScratchDirectory scratch;
  const std::string path = scratch.Store("metrics.jsonl", text);
  const auto all = ReadMetrics(path);
  if (!all.ok()) return;
  size_t streamed = 0;
  MetricsStream stream(path);
  const absl::Status read = stream.Read([] {}, [&](StepMetrics, absl::string_view) { ++streamed; });
  ANYORDER_CHECK(!read.ok() || streamed == all->size()) << streamed << " of " << all->size();
  constexpr int64_t kLastStep = 2;
  if (!SetAsideLaterSteps(path, scratch.path() + "/redone.jsonl", kLastStep).ok()) return;
  for (const StepMetrics& metrics : ValueOrDie(ReadMetrics(path)))
    ANYORDER_CHECK(metrics.step <= kLastStep) << metrics.step;
  std::filesystem::remove(scratch.path() + "/redone.jsonl");
}

const bool registered[] = {
    Register({"config", ConfigSeeds, UseConfig}),
    Register({"ledger", LedgerSeeds, UseLedger}),
    Register({"metrics", MetricsSeeds, UseMetrics}),
};

}  // namespace
}  // namespace anyorder::fuzz
