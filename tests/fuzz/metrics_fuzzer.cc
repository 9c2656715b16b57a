// run-dir/metrics.jsonl, read at once, as a stream, and cut back for a restart.

#include "core/base/check.h"
#include "core/base/whole_file.h"
#include "core/train/run/metrics.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_directory.h"

namespace anyorder::fuzz {
namespace {

std::vector<std::string> Seeds() {
  const ScratchDirectory scratch;
  const std::string path = scratch.path() + "/metrics.jsonl";
  auto log = MetricsLog::Open(path);
  ANYORDER_CHECK_OK(log.status());
  for (int64_t step = 1; step <= 4; ++step) {
    StepMetrics metrics;
    metrics.step = step;
    metrics.attempt = 1;
    metrics.loss = 5.5;
    metrics.means = {{"loss_ae", 3.5}, {"nsp_accuracy", 0.5}};
    metrics.held_out.emplace();
    metrics.held_out->means = metrics.means;
    ANYORDER_CHECK_OK(log->Append(metrics));
  }
  const auto text = ReadWholeFile(path);
  ANYORDER_CHECK_OK(text.status());
  return {*text};
}

void Run(absl::string_view text) {
  static const ScratchDirectory scratch;
  const std::string path = scratch.Store("metrics.jsonl", text);
  const auto all = ReadMetrics(path);
  if (!all.ok()) return;
  size_t streamed = 0;
  MetricsStream stream(path);
  const absl::Status read = stream.Read([] {}, [&](StepMetrics) { ++streamed; });
  ANYORDER_CHECK(!read.ok() || streamed == all->size()) << streamed << " of " << all->size();
  constexpr int64_t kLastStep = 2;
  if (!SetAsideLaterSteps(path, scratch.path() + "/redone.jsonl", kLastStep).ok()) return;
  const auto kept = ReadMetrics(path);
  ANYORDER_CHECK_OK(kept.status());
  for (const StepMetrics& metrics : *kept)
    ANYORDER_CHECK(metrics.step <= kLastStep) << metrics.step;
  std::filesystem::remove(scratch.path() + "/redone.jsonl");
}

const bool registered = Register({"metrics", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
