#include "core/train/plan/run_cost.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/train/run/config_file.h"
#include "core/train/run/ledger.h"
#include "core/train/run/metrics.h"
#include "core/train/run/run_directory.h"

namespace anyorder {
namespace {

// More are not gone through: it would take seconds.
constexpr int64_t kMostMicrobatches = 4096;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct MeasuredSteps {
  double step_seconds = 0;  // without waiting for data and for saves
  double update_seconds = 0;
  size_t count = 0;
};

absl::StatusOr<MeasuredSteps> ReadSteps(const std::string& path, int64_t attempt) {
  ASSIGN_OR_RETURN(const std::vector<StepMetrics> metrics, ReadMetrics(path));
  std::vector<double> steps, updates;
  bool is_first = true;
  for (const StepMetrics& step : metrics) {
    if (step.attempt != attempt || std::exchange(is_first, false)) continue;
    steps.push_back(step.step_ms - step.data_wait_ms - step.ckpt_stall_ms);
    updates.push_back(step.optimizer_ms);
  }
  if (steps.empty())
    return NotFound("'", path, "' has no two steps of the last start; train a few more");
  return MeasuredSteps{Median(steps) / 1000, Median(updates) / 1000, steps.size()};
}

}  // namespace

StepRates RatesOf(const KnownDevice& device, DType dtype) {
  return {.flops_per_second = kAssumedEfficiency * DevicePeakFlops(device.words, dtype),
          .bytes_per_second = 1e12 * device.memory_rate,
          .source = absl::StrCat(100 * kAssumedEfficiency,
                                 " % of the data sheet's peak, which one "
                                 "run of XLNet-Large reached on an H100")};
}

absl::StatusOr<StepRates> CalibratedRates(const std::string& run_dir, int64_t vocab_size,
                                          const Cluster& cluster) {
  const RunDirectory paths(run_dir);
  ASSIGN_OR_RETURN(const RunConfig config, LoadRunConfig(paths.config, {}));
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths));
  ledger::Start start;
  for (const LedgerRecord& record : records)
    if (const auto* found = record.As<ledger::Start>()) start = *found;
  ASSIGN_OR_RETURN(const MeasuredSteps measured, ReadSteps(paths.metrics, start.attempt));
  const int64_t nodes = std::max<int64_t>(1, std::ssize(start.nodes));
  Cluster there = cluster;
  there.ranks = start.ranks;
  there.ranks_per_node = (start.ranks + nodes - 1) / nodes;
  there.device.flops_per_second = there.device.bytes_per_second = 0;
  ASSIGN_OR_RETURN(const StepCost cost, PlanStep(config, vocab_size, there));
  StepRates rates{.origin = FigureOrigin::kMeasured};
  rates.bytes_per_second = cost.step.update_bytes / measured.update_seconds;
  const double multiplying = measured.step_seconds - cost.step.seconds -
                             cost.step.cost.flat_bytes / rates.bytes_per_second;
  if (multiplying <= 0) {
    return FailedPrecondition("'", run_dir, "': no time of a step is left for its products beside ",
                              "the optimizer and messages; give the links' rates (--link-node)");
  }
  rates.flops_per_second = cost.step.cost.flops / multiplying;
  if (!cluster.device.is_gpu) {
    const double share =
        static_cast<double>(there.ranks_per_node) / static_cast<double>(cluster.ranks_on_node());
    rates.flops_per_second *= share;
    rates.bytes_per_second *= share;
  }
  rates.source = absl::StrCat(measured.count, " steps of '", run_dir, "'");
  return rates;
}

absl::StatusOr<StepCost> PlanStep(const RunConfig& config, int64_t vocab_size,
                                  const Cluster& cluster) {
  const int64_t leaves = config.train.num_microbatches() / cluster.ranks;
  if (leaves > kMostMicrobatches) {
    return OutOfRange(leaves, " microbatches a rank are more than the ", kMostMicrobatches,
                      " that a plan goes through");
  }
  ASSIGN_OR_RETURN(const auto rank, PlannedRank::Create(config, vocab_size, cluster));
  StepCost cost{.step = rank->Step()};
  for (const ckpt::TensorRange& range : rank->Ranges())
    cost.checkpoint_bytes += static_cast<double>((range.end - range.begin) * SizeOf(range.dtype));
  Cluster quick = cluster;
  quick.node_bytes_per_second = quick.net_bytes_per_second = 0;
  ASSIGN_OR_RETURN(const auto alone, PlannedRank::Create(config, vocab_size, quick));
  cost.exposed_seconds = cost.step.seconds - alone->Step().seconds;
  return cost;
}

absl::StatusOr<double> NeededFlops(RunConfig config, int64_t vocab_size) {
  const auto microbatches = static_cast<double>(config.train.num_microbatches());
  config.train.recompute = Recompute::kNone;
  config.train.global_batch_size = config.train.micro_batch_size;
  config.eval.every = 0;
  ASSIGN_OR_RETURN(const auto rank,
                   PlannedRank::Create(config, vocab_size, {.device = {.is_gpu = true}}));
  const kernels::OperationCost cost = rank->Step().cost;
  return microbatches * (cost.flops - cost.repeated_flops);
}

double BestInterval(double save, double mean) {
  if (save >= 2 * mean) return mean;
  const double ratio = std::sqrt(save / (2 * mean));
  return std::sqrt(2 * save * mean) * (1 + ratio / 3 + ratio * ratio / 9) - save;
}

}  // namespace anyorder
