#include <algorithm>
#include <cmath>
#include <utility>

#include "launcher/report/report_data.h"

namespace anyorder::launcher {
namespace {

void Append(Bucket& bucket, const Bucket& next) {
  bucket.end = next.end;
  bucket.last_step = next.last_step;
  bucket.steps += next.steps;
  for (int i = 0; i < kNumReportCurves; ++i) bucket.curves[i].Add(next.curves[i]);
}

// A running mean with exponential weights.
template <typename Iterator>
std::vector<double> RunningMean(Iterator begin, Iterator end, ReportCurve curve, double keep) {
  std::vector<double> means;
  double sum = 0;
  double weight = 0;
  for (Iterator bucket = begin; bucket != end; ++bucket) {
    const Extent& extent = bucket->curves[curve];
    if (extent.count > 0) {
      // As if its mean came once for each of its steps.
      const double kept = std::pow(keep, static_cast<double>(extent.count));
      sum = kept * sum + (1 - kept) * extent.Mean();
      weight = kept * weight + (1 - kept);
    }
    means.push_back(extent.count > 0 && weight > 0 ? sum / weight : std::nan(""));
  }
  return means;
}

}  // namespace

void Extent::Add(double value) {
  if (!std::isfinite(value)) {
    ++not_finite;
    return;
  }
  min = std::min(min, value);
  max = std::max(max, value);
  sum += value;
  ++count;
}

void Extent::Add(const Extent& other) {
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  sum += other.sum;
  count += other.count;
  not_finite += other.not_finite;
}

double Extent::Mean() const { return count > 0 ? sum / static_cast<double>(count) : std::nan(""); }

void Downsampler::Add(double time, int64_t step, int64_t attempt,
                      const std::array<double, kNumReportCurves>& values) {
  ++num_steps_;
  Bucket one{time, time, step, step, 1, attempt, {}};
  for (int i = 0; i < kNumReportCurves; ++i) one.curves[i].Add(values[i]);
  if (!buckets_.empty() && buckets_.back().attempt == attempt &&
      buckets_.back().steps < steps_per_bucket_) {
    Append(buckets_.back(), one);
    return;
  }
  buckets_.push_back(one);
  if (buckets_.size() >= limit_) Halve();
}

void Downsampler::Halve() {
  // As long as buckets are too small for so many steps; what then is still too much are very many
  // starts of few steps each.
  const auto few = static_cast<int64_t>(limit_ / 4);
  while (buckets_.size() >= limit_ && steps_per_bucket_ * few < num_steps_) {
    steps_per_bucket_ *= 2;
    Merge(/*across_starts=*/false);
  }
  if (buckets_.size() >= limit_) Merge(/*across_starts=*/true);
}

void Downsampler::Merge(bool across_starts) {
  std::vector<Bucket> merged;
  for (const Bucket& bucket : buckets_) {
    const bool fits = !merged.empty() &&
                      (across_starts || merged.back().attempt == bucket.attempt) &&
                      merged.back().steps + bucket.steps <= steps_per_bucket_;
    if (fits) {
      Append(merged.back(), bucket);
    } else {
      merged.push_back(bucket);
    }
  }
  buckets_ = std::move(merged);
}

std::vector<double> Smoothed(const std::vector<Bucket>& buckets, ReportCurve curve) {
  int64_t steps = 0;
  for (const Bucket& bucket : buckets) steps += bucket.curves[curve].count;
  const double keep = 1 - 1 / std::max(1.0, static_cast<double>(steps) / 60);
  const std::vector<double> past = RunningMean(buckets.begin(), buckets.end(), curve, keep);
  const std::vector<double> future = RunningMean(buckets.rbegin(), buckets.rend(), curve, keep);
  std::vector<double> smoothed;
  for (size_t i = 0; i < buckets.size(); ++i)
    smoothed.push_back((past[i] + future[buckets.size() - 1 - i]) / 2);
  return smoothed;
}

}  // namespace anyorder::launcher
