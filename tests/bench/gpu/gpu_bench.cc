// Speed of one GPU at XLNet's pretraining shapes, one JSON line a case, each as a share of a copy
// and a large product of the same run:
//   {"name": "layernorm", "shape": "38208x1024", "value": 3.4, "unit": "TB/s", "ms": 0.092, ...,
//   "share_of_ceiling": 0.8}
//
//   gpu_bench [--groups ceilings,steps,attention,rows,gemms,step_once,plain] [--batches 16,64]
//   [--sizes large,base] [--samples N] [--config FILE [--set KEY=VALUE,...] [--vocab N]]
//
// With a run's configuration the steps are its microbatches', with a vocabulary of N tokens, in
// place of XLNet's. step_once, which must be asked for, is for profilers: a few steps, and then one
// between cudaProfilerStart and cudaProfilerStop, so that
//   ncu --profile-from-start off gpu_bench --groups step_once --batches 64 --sizes large
// sees that step alone. plain must be asked for, too: attention of networks of Llama's kind, heads
// of 64 and 128. What matters most comes first, in case that time runs out. Attention runs at every
// batch, everything else at the last; steps in every size, everything else in the first.
// Medians of samples between events in the GPU's queue; operands are random and their buffers
// rotated, so that no cache holds them. Of attention and whole steps only what the algorithm needs
// is counted (counts.h). Without a GPU it ends with one line and status 64.

#ifdef ANYORDER_HAS_CUDA
#include <cuda_profiler_api.h>
#endif

#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "core/train/run/config_file.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/bench/gpu/cases.h"
#include "tests/bench/options.h"

namespace anyorder::bench {
namespace {

// A sample is long beside the marks around it.
constexpr double kSampleMs = 1.0;
constexpr double kDropout = 0.1;
constexpr char kStepOnce[] = "step_once";
constexpr char kPlain[] = "plain";
constexpr int64_t kPlainTokens = 16384;  // of all lanes

struct Options {
  std::vector<std::string> groups = {"ceilings", "steps", "attention", "rows", "gemms"};
  std::vector<int64_t> batches = {16, kGoalBatch};
  std::vector<XlnetSize> sizes = {kXlnetLarge, kXlnetBase};
  int64_t samples = 15;
  std::string config;  // empty: XLNet's sizes
  std::vector<std::string> overrides;
  int64_t vocab = 32000;

  bool Wants(const std::string& group) const { return absl::c_linear_search(groups, group); }
};

// Of an option's value, words with commas between them, each as parse(word, &element) makes it; ""
// leaves the list as it is.
template <typename T, typename Parse>
absl::Status SetList(const char* name, const std::string& value, const char* want, Parse parse,
                     std::vector<T>* list) {
  if (value.empty()) return absl::OkStatus();
  list->clear();
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(value, ','))) {
    if (!parse(word, &list->emplace_back()))
      return absl::InvalidArgumentError(absl::StrCat(name, " ", value, ": want ", want));
  }
  return absl::OkStatus();
}

bool ParseBatch(const std::string& word, int64_t* batch) {
  return absl::SimpleAtoi(word, batch) && *batch >= 1;
}
bool ParseSize(const std::string& word, XlnetSize* size) {
  *size = word == "base" ? kXlnetBase : kXlnetLarge;
  return word == size->name;
}
bool ParseGroup(const std::string& word, std::string* group) {
  *group = word;
  return word == kStepOnce || word == kPlain || Options().Wants(word);
}
bool ParseOverride(const std::string& word, std::string* assignment) {
  *assignment = word;
  return absl::StrContains(word, '=');
}

absl::StatusOr<Options> OptionsOf(int argc, char** argv) {
  Options options;
  std::string groups, batches, sizes, overrides;
  RETURN_IF_ERROR(ParseOptions(argc, argv,
                               {{"--groups", &groups},
                                {"--batches", &batches},
                                {"--sizes", &sizes},
                                {"--samples", &options.samples, 1},
                                {"--config", &options.config},
                                {"--set", &overrides},
                                {"--vocab", &options.vocab, 64}}));
  RETURN_IF_ERROR(SetList("--groups", groups,
                          "some of ceilings,steps,attention,rows,gemms,step_once,plain", ParseGroup,
                          &options.groups));
  RETURN_IF_ERROR(SetList("--batches", batches, "1 or more", ParseBatch, &options.batches));
  RETURN_IF_ERROR(SetList("--sizes", sizes, "base, large", ParseSize, &options.sizes));
  RETURN_IF_ERROR(
      SetList("--set", overrides, "section.key=value", ParseOverride, &options.overrides));
  return options;
}

// CUDA's; they do nothing in a program without it. What they return is no matter: without a
// profiler there is nothing to start.
ProfilerMarks CudaProfilerMarks() {
#ifdef ANYORDER_HAS_CUDA
  return {[] { (void)cudaProfilerStart(); }, [] { (void)cudaProfilerStop(); }};
#else
  return {[] {}, [] {}};
#endif
}

void PrintDevice(Bench& bench, const kernels::cuda::Runtime& runtime) {
  const kernels::cuda::DeviceProperties& device = runtime.properties();
  bench.Print(absl::StrFormat(
      "{\"device\": \"%s\", \"chip\": %d, \"multiprocessors\": %d, \"memory_gib\": %.1f, "
      "\"driver\": %d, \"runtime\": %d}",
      device.name, device.chip, device.multiprocessors,
      static_cast<double>(device.total_bytes) / (int64_t{1} << 30), device.driver_version,
      device.runtime_version));
}

// The steps that the options ask for; what does not fit is told at the end, and left out.
absl::Status RunSteps(const Options& options, const ProfilerMarks* marks, Bench& bench) {
  if (!options.config.empty()) {
    ASSIGN_OR_RETURN(const RunConfig config, LoadRunConfig(options.config, options.overrides));
    const std::string name = std::filesystem::path(options.config).stem();
    return Annotate(MeasureStep(bench, name, config, options.vocab, marks), name);
  }
  const int64_t batch = options.batches.back();
  absl::Status status;
  for (const XlnetSize& each : options.sizes) {
    const absl::Status step = MeasureStep(bench, each, batch, kDropout, marks);
    if (!step.ok()) status.Update(Annotate(step, absl::StrCat("step_", each.name)));
    if (marks != nullptr) break;
  }
  return status;
}

// Grouped-query attention of one width, at lengths that hold as many tokens each.
void MeasurePlain(Bench& bench, int64_t head_dim) {
  for (const int64_t length : {512, 1024, 2048, 4096}) {
    for (const bool is_causal : {true, false}) {
      const PlainSize size{.head_dim = head_dim, .length = length, .is_causal = is_causal};
      MeasurePlainAttention(bench, size, kPlainTokens / length);
    }
  }
}

absl::Status RunGroups(const Options& options, Bench& bench) {
  const XlnetSize& size = options.sizes.front();
  const int64_t batch = options.batches.back();
  if (options.Wants("ceilings")) MeasureCeilings(bench, {});
  absl::Status status;
  if (options.Wants("steps")) status.Update(RunSteps(options, nullptr, bench));
  const ProfilerMarks marks = CudaProfilerMarks();
  if (options.Wants(kStepOnce)) status.Update(RunSteps(options, &marks, bench));
  if (options.Wants("attention")) {
    for (const int64_t each : options.batches) MeasureAttention(bench, size, each, kDropout);
  }
  if (options.Wants("rows")) MeasureRows(bench, size, batch, kDropout);
  if (options.Wants("gemms")) MeasureGemms(bench, size, batch);
  if (options.Wants(kPlain)) {
    for (const int64_t head_dim : {64, 128}) MeasurePlain(bench, head_dim);
  }
  return status;
}

absl::Status Run(int argc, char** argv) {
  ASSIGN_OR_RETURN(const Options options, OptionsOf(argc, argv));
  ASSIGN_OR_RETURN(std::unique_ptr<kernels::cuda::Runtime> owned, kernels::cuda::OpenDevice(0));
  kernels::cuda::Runtime& runtime = *owned;
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend,
                   kernels::cuda::MakeCudaBackend(std::move(owned), {}));
  EventTimer timer(runtime);
  Bench bench(*backend, timer, static_cast<int>(options.samples), kSampleMs, std::cout);
  PrintDevice(bench, runtime);
  return RunGroups(options, bench);
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("gpu_bench", anyorder::bench::Run(argc, argv));
}
