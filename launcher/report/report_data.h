// Everything a report shows of one run, read in one pass over its files and of bounded size,
// whatever the number of steps (the times of all steps, 80 bytes each, are held while they are
// summed up). Curves are kept in a bounded number of points, too: a page that shows a million steps
// must not hold a million numbers, and a spike of a single step must still be seen on it.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "core/train/run/ledger.h"
#include "core/train/run/metrics.h"
#include "core/train/run/run_config.h"
#include "launcher/inspect/run_history.h"
#include "launcher/start/run_pace.h"

namespace anyorder::launcher {

enum ReportCurve {
  kLossCurve,
  kLearningRateCurve,
  kGradNormCurve,
  kThroughputCurve,
  kStallCurve,     // ms in which the ranks waited for a checkpoint
  kAccuracyCurve,  // of a head; NaN where there is none
  kNumReportCurves
};

// The extent of the finite values of a bucket; the others are only counted.
struct Extent {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  int64_t count = 0;
  int64_t not_finite = 0;

  void Add(double value);
  void Add(const Extent& other);
  // NaN without a finite value.
  double Mean() const;
};

// Consecutive steps of one start.
struct Bucket {
  double begin = 0;  // time of the first and last step, in seconds
  double end = 0;
  int64_t first_step = 0;
  int64_t last_step = 0;
  int64_t steps = 0;
  int64_t attempt = 0;
  std::array<Extent, kNumReportCurves> curves;
};

// One pass over any number of steps in memory of `limit` buckets. Each bucket holds as many steps
// as every other (but the last of a start), a power of two; when there are too many, neighbours
// become one. So minima, maxima and sums are exact.
class Downsampler {
 public:
  // At least 4.
  explicit Downsampler(size_t limit) : limit_(limit) {}

  void Add(double time, int64_t step, int64_t attempt,
           const std::array<double, kNumReportCurves>& values);
  // In the order they were added: fewer than `limit`, and not much fewer than half of it once that
  // many came.
  const std::vector<Bucket>& buckets() const { return buckets_; }

 private:
  void Halve();
  void Merge(bool across_starts);

  const size_t limit_;
  int64_t num_steps_ = 0;
  int64_t steps_per_bucket_ = 1;
  std::vector<Bucket> buckets_;
};

// The curve's mean over about a sixtieth of all steps on both sides, with exponential weights: as
// much past as future, so that it does not lag behind. One value a bucket; NaN without a finite
// value in it, which leaves a gap.
std::vector<double> Smoothed(const std::vector<Bucket>& buckets, ReportCurve curve);

// At most `limit` of `values`, evenly chosen, first and last included.
template <typename T>
std::vector<T> Thinned(const std::vector<T>& values, size_t limit) {
  if (values.size() <= limit || limit < 2) return values;
  std::vector<T> thin;
  for (size_t i = 0; i < limit; ++i) thin.push_back(values[i * (values.size() - 1) / (limit - 1)]);
  return thin;
}

// Times of the structures below are seconds after ReportRun::origin.
struct ReportStart : ledger::Start {
  double begin = 0;
  double end = 0;           // its last trace
  double train_begin = -1;  // its ranks were ready; -1: never
  int64_t from_step = -1;   // it went on after this step; -1: its ranks never trained
  int64_t last_step = -1;   // that it trained, lost ones included
  int64_t exit_status = -1;
  bool is_running = false;
  std::string detail;  // the ranks' own last words
  std::vector<liveness::RankPace> slowest;
  // Nodes that the next start did without although the allocation stayed the same: they were lost.
  std::vector<std::string> lost_nodes;
};

// One moment that deserves a mark: skipped and held back steps, changed settings.
struct ReportEvent {
  double time = 0;
  int64_t step = -1;
  int64_t attempt = 0;
  std::string kind;  // the ledger's event
  std::string text;
};

struct ReportPoint {
  double time = 0;
  int64_t step = 0;
  double value = 0;
  double error = 0;
  double accuracy = std::numeric_limits<double>::quiet_NaN();
};

struct ReportRun {
  std::string name;  // of its directory
  std::string run_dir;
  std::string run_id;
  std::string config_digest;
  std::string dataset_digest;
  std::string config_text;
  RunConfig config;
  std::string state;   // running, or a RunEnd's
  std::string error;   // as in RunEnd
  absl::Time origin;   // the first start
  double seconds = 0;  // to the last trace
  std::vector<Bucket> buckets;
  std::vector<Bucket> lost;  // of steps that a crash lost
  std::vector<double> smoothed_loss;
  // value: held-out loss, error: its standard error
  std::vector<ReportPoint> evaluations;
  std::vector<ReportPoint> commits;
  int64_t num_commits = 0;
  std::vector<ReportStart> starts;
  int64_t num_starts = 0;  // of which `starts` has the first and the last
  std::vector<ReportEvent> events;
  int64_t num_events = 0;
  int64_t restarts = 0;
  WallTime wall;
  // Totals of the steps that count.
  int64_t step = 0;
  int64_t tokens = 0;
  int64_t skipped_steps = 0;
  int64_t redone_steps = 0;
  double training_seconds = 0;
  double skipped_seconds = 0;         // of them: in steps without an update
  double device_tokens = 0;           // tokens a second and device x seconds of each step
  double utilised_seconds = 0;        // mfu x seconds
  double last_loss = 0;               // NaN without a step
  std::vector<NamedMean> last_means;  // of the heads
  int64_t peak_rss_bytes = 0;
};

// InvalidArgument if `run_dir` is no run, or one that never started; DataLoss for a damaged ledger.
absl::StatusOr<ReportRun> ReadReportRun(const std::string& run_dir);

// "done", "stopped to be requeued (75)", "killed (137: SIGKILL)", ...
std::string ExitWords(int64_t exit_status);

}  // namespace anyorder::launcher
