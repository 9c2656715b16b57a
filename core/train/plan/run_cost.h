// What a step costs in time, from what it asks of a device and of the links between devices
// (planned_rank.h) and how much of that they do in a second.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "core/train/plan/planned_rank.h"
#include "core/train/run/device.h"
#include "core/train/run/run_config.h"

namespace anyorder {

// Where a figure comes from.
enum class FigureOrigin { kMeasured, kComputed, kAssumed };
constexpr auto SpellingsOf(FigureOrigin) { return std::array{"measured", "computed", "assumed"}; }

struct StepRates {
  double flops_per_second = 0;  // of each rank's device
  double bytes_per_second = 0;
  FigureOrigin origin = FigureOrigin::kAssumed;
  std::string source;  // in a few words
};

// The share of a GPU's peak that one run reached, of XLNet-Large on an H100
// (tests/bench/reports/2026-11-26-h100.md).
inline constexpr double kAssumedEfficiency = 0.28;
// Of the data sheet, at kAssumedEfficiency.
StepRates RatesOf(const KnownDevice& device, DType dtype);

// What the last start in `run_dir` measured: the median of its steps in metrics.jsonl, without the
// first. Its messages are taken to have gone at the rates of `cluster`. Ranks on CPUs share their
// machine: rates of all of a node's ranks together are parted by those of `cluster`. NotFound for a
// run without steps.
absl::StatusOr<StepRates> CalibratedRates(const std::string& run_dir, int64_t vocab_size,
                                          const Cluster& cluster);

struct StepCost {
  PlannedStep step;             // of the rank with the most to do
  double exposed_seconds = 0;   // of step.seconds: those in which its device waits for messages
  double checkpoint_bytes = 0;  // of this rank
};
// Errors: as PlannedRank::Create; OutOfRange for more microbatches a rank than are gone through.
absl::StatusOr<StepCost> PlanStep(const RunConfig& config, int64_t vocab_size,
                                  const Cluster& cluster);

// FLOPs that a step of all ranks needs, for the share of a device's peak that a run reaches (MFU):
// those of its matrix products, without what is computed twice. Errors: as PlannedRank::Create.
absl::StatusOr<double> NeededFlops(RunConfig config, int64_t vocab_size);

// The time between two checkpoints with which least is lost where one costs the run `save` seconds
// and it fails once in `mean` seconds (Young 1974; Daly 2006, equation 37).
double BestInterval(double save, double mean);

}  // namespace anyorder
