// What runs that differ in train.seed alone came to: the best evaluation of each, and their spread.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/train/run/best_evaluation.h"

namespace anyorder::launcher {

inline constexpr char kNotStarted[] = "not started";

struct SeedRun {
  int64_t seed = 0;
  std::string run_dir;
  std::string state = kNotStarted;  // or as in StatusFacts
  std::string error;                // of one that failed: why, in a line
  std::string log;                  // what its ranks printed; "" if none has started
  int64_t starts = 0;               // of the whole run
  int exit_status = -1;             // of its launch; -1: it needed none, or has had none yet
  BestEvaluationState best;         // step -1: no evaluation yet

  bool is_finished() const { return state == "finished" || state == "finished early"; }
};

struct Spread {
  int64_t count = 0;
  // NaN without values.
  double median = 0;  // of an even number the mean of the middle two
  double mean = 0;
  double min = 0;
  double max = 0;
  double standard_deviation = 0;  // sqrt(sum of (x - mean)^2 / (count - 1)); NaN of less than two
};
Spread SpreadOf(std::vector<double> values);

// Lines for people: a row a seed, the spread, and the error and log of each that failed.
std::string SeedTable(const std::string& metric, const std::vector<SeedRun>& runs);

// The object of --json (README.md).
std::string SeedJson(const std::string& metric, const std::vector<SeedRun>& runs);

}  // namespace anyorder::launcher
