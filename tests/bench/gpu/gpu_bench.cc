// Speed of one GPU at XLNet's pretraining shapes, one JSON line a case, each as a share of a copy and a large product of the same run:
//   {"name": "layernorm", "shape": "38208x1024", "value": 3.4, "unit": "TB/s", "ms": 0.092, ..., "share_of_ceiling": 0.8}
//
//   gpu_bench [--groups ceilings,steps,attention,rows,gemms] [--batches 16,64] [--sizes large,base] [--samples N] [--dropout RATE]
//             [--device N]
//
// What matters most comes first, in case that time runs out. Attention runs at every batch, everything else at the last; steps in every
// size, everything else in the first. Medians of samples between events in the GPU's queue; operands are random
// and their buffers rotated, so that no cache holds them. Of attention and whole steps only what the algorithm needs is counted
// (counts.h). Without a GPU it ends with one line and status 74.

#include <cstdio>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/bench/gpu/cases.h"
#include "tests/bench/gpu/event_timer.h"

namespace anyorder::bench {
namespace {

// A sample is long beside the marks around it.
constexpr double kSampleMs = 1.0;

struct Options {
  std::vector<std::string> groups = {"ceilings", "steps", "attention", "rows", "gemms"};
  std::vector<int64_t> batches = {16, kGoalBatch};
  std::vector<XlnetSize> sizes = {kXlnetLarge, kXlnetBase};
  int samples = 15;
  double dropout = 0.1;
  int device = 0;

  bool Wants(const std::string& group) const {
    for (const std::string& wanted : groups) {
      if (wanted == group) return true;
    }
    return false;
  }
};

absl::Status SetBatches(const std::string& value, Options* options) {
  options->batches.clear();
  for (const absl::string_view text : absl::StrSplit(value, ',')) {
    int64_t batch = 0;
    if (!absl::SimpleAtoi(text, &batch) || batch < 1)
      return absl::InvalidArgumentError(absl::StrCat("--batches ", value, ": want 1 or more"));
    options->batches.push_back(batch);
  }
  return absl::OkStatus();
}

absl::Status SetSizes(const std::string& value, Options* options) {
  options->sizes.clear();
  for (const absl::string_view text : absl::StrSplit(value, ',')) {
    if (text != "base" && text != "large")
      return absl::InvalidArgumentError(absl::StrCat("--sizes ", value, ": want base, large"));
    options->sizes.push_back(text == "base" ? kXlnetBase : kXlnetLarge);
  }
  return absl::OkStatus();
}

absl::Status SetGroups(const std::string& value, Options* options) {
  const Options all;
  options->groups = absl::StrSplit(value, ',');
  for (const std::string& group : options->groups) {
    if (!all.Wants(group)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--groups ", value, ": want some of ceilings,steps,attention,rows,gemms"));
    }
  }
  return absl::OkStatus();
}

absl::Status SetOption(const std::string& flag, const std::string& value, Options* options) {
  if (flag == "--groups") return SetGroups(value, options);
  if (flag == "--batches") return SetBatches(value, options);
  if (flag == "--sizes") return SetSizes(value, options);
  bool is_good = false;
  if (flag == "--samples") {
    is_good = absl::SimpleAtoi(value, &options->samples) && options->samples >= 1;
  } else if (flag == "--device") {
    is_good = absl::SimpleAtoi(value, &options->device) && options->device >= 0;
  } else if (flag == "--dropout") {
    is_good =
        absl::SimpleAtod(value, &options->dropout) && options->dropout >= 0 && options->dropout < 1;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("unknown option ", flag));
  }
  if (is_good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", value, " is out of range"));
}

absl::StatusOr<Options> ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return absl::InvalidArgumentError(absl::StrCat(argv[i], " needs a value"));
    ANYORDER_RETURN_IF_ERROR(SetOption(argv[i], argv[i + 1], &options));
  }
  return options;
}

void PrintDevice(Bench& bench, const kernels::cuda::Runtime& runtime) {
  const kernels::cuda::DeviceProperties& device = runtime.properties();
  bench.Print(absl::StrFormat(
      "{\"device\": \"%s\", \"chip\": %d, \"multiprocessors\": %d, \"memory_gib\": %.1f, "
      "\"driver\": %d, \"runtime\": %d}",
      device.name,
      device.chip,
      device.multiprocessors,
      static_cast<double>(device.total_bytes) / (int64_t{1} << 30),
      device.driver_version,
      device.runtime_version));
}

// A step that does not fit is told at the end, and left out.
absl::Status RunGroups(const Options& options, Bench& bench) {
  const XlnetSize& size = options.sizes.front();
  const int64_t batch = options.batches.back();
  if (options.Wants("ceilings")) MeasureCeilings(bench, {});
  absl::Status status;
  for (const XlnetSize& each : options.sizes) {
    if (!options.Wants("steps")) break;
    const absl::Status step = MeasureStep(bench, each, batch, options.dropout);
    if (!step.ok()) status.Update(Annotate(step, absl::StrCat("step_", each.name)));
  }
  if (options.Wants("attention")) {
    for (const int64_t each : options.batches)
      MeasureAttention(bench, size, each, options.dropout);
  }
  if (options.Wants("rows")) MeasureRows(bench, size, batch, options.dropout);
  if (options.Wants("gemms")) MeasureGemms(bench, size, batch);
  return status;
}

absl::Status Run(const Options& options) {
  ANYORDER_RETURN_IF_ERROR(kernels::cuda::CountDevices().status());
  ANYORDER_ASSIGN_OR_RETURN(std::unique_ptr<kernels::cuda::Runtime> owned,
                            kernels::cuda::OpenDevice(options.device));
  kernels::cuda::Runtime& runtime = *owned;
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend,
                            kernels::cuda::MakeCudaBackend(std::move(owned), {}));
  EventTimer timer(runtime);
  Bench bench(*backend, timer, options.samples, kSampleMs, std::cout);
  PrintDevice(bench, runtime);
  return RunGroups(options, bench);
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  const absl::StatusOr<anyorder::bench::Options> options =
      anyorder::bench::ParseOptions(argc, argv);
  return anyorder::ReportAndExitStatus(
      "gpu_bench", options.ok() ? anyorder::bench::Run(*options) : options.status());
}
