// Curves of a run in a bounded number of points: a page that shows a million steps must not hold a
// million numbers, and a spike of a single step must still be seen on it.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace anyorder::launcher {

enum ReportCurve {
  kLossCurve,
  kLearningRateCurve,
  kGradNormCurve,
  kThroughputCurve,
  kStallCurve,  // ms in which the ranks waited for a checkpoint
  kNumReportCurves
};

// Of the finite values of a bucket; the others are only counted.
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
// much past as future, so that it does not lag behind. One value a bucket; NaN without any finite
// value.
std::vector<double> Smoothed(const std::vector<Bucket>& buckets, ReportCurve curve);

// At most `limit` of `values`, evenly chosen, first and last included.
template <typename T>
std::vector<T> Thinned(const std::vector<T>& values, size_t limit) {
  if (values.size() <= limit || limit < 2) return values;
  std::vector<T> thin;
  for (size_t i = 0; i < limit; ++i) thin.push_back(values[i * (values.size() - 1) / (limit - 1)]);
  return thin;
}

}  // namespace anyorder::launcher
