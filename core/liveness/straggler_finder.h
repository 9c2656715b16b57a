// Finds ranks that keep the others waiting, from what all ranks say their time went into, by the
// rule of README.md. Has no clock and no files.

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

#include "core/liveness/rank_page.h"

namespace anyorder::liveness {

// What a rank's steps took lately, in milliseconds a step.
struct RankPace {
  int rank = 0;
  std::string node;
  double compute_ms = 0;
  double data_wait_ms = 0;
  double communication_ms = 0;
  double ratio = 1;  // own time / the median rank's
  bool is_straggler = false;

  double own_ms() const { return compute_ms + data_wait_ms; }
};

// A rank is named, or no longer.
struct StragglerNotice {
  int rank = 0;
  int64_t step = 0;  // of the run, the last that was judged
  bool is_over = false;
  // "rank 3 on n1: compute 130 ms a step, the median is 100 ms (own time 1.30 times the median)";
  // of the two parts the one that is further above its median.
  std::string detail;
};

// Not thread-safe.
class StragglerFinder {
 public:
  // The length of a window, which has both at least. Reports that are further apart make longer
  // ones.
  static constexpr int64_t kWindowSteps = 8;
  static constexpr absl::Duration kWindowTime = absl::Seconds(1);
  // A step. Ranks whose steps take so little are slow by chance, or by rank 0's lines of metrics.
  static constexpr absl::Duration kLeastExcess = absl::Milliseconds(5);

  // `ratio` > 1, or 0: nobody is named.
  StragglerFinder(double ratio, int num_ranks) : ratio_(ratio), ranks_(num_ranks) {}

  // In any order; a rank's reports that are older than its newest are left out. Of a rank that was
  // started again, what the process before has told is forgotten.
  void Take(const RankState& state);

  // Judges the last step that all ranks have told of. Nothing new: returns at once.
  std::vector<StragglerNotice> Judge();

  // The paces of the ranks that have told of two steps, by rank.
  std::vector<RankPace> Paces() const;

 private:
  struct Rank {
    int64_t process_id = 0;
    std::string node;
    std::deque<RankTimes> reports;  // of growing steps
    bool is_straggler = false;
  };
  // A rank's reports that bound two windows: (begin, middle] and (middle, end].
  struct Windows {
    RankTimes begin, middle, end;
  };
  using Steps = std::pair<int64_t, int64_t>;  // (first, last]

  static std::optional<Windows> WindowsUntil(const Rank& rank, int64_t step);
  static std::optional<double> OwnTimeUntil(const Rank& rank, int64_t step);
  // Compared with the median rank in the same steps. Nothing if a rank has not told of them all.
  std::optional<bool> IsSlow(const RankTimes& from, const RankTimes& to);
  std::optional<double> MedianOwnTime(Steps steps) const;
  std::string Describe(int rank) const;

  const double ratio_;
  std::vector<Rank> ranks_;
  int64_t judged_step_ = 0;
  std::map<Steps, std::optional<double>> medians_;  // of one judgement: many have the same windows
};

}  // namespace anyorder::liveness
