#include "tests/bench/gpu/measure.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"

#include "tests/bench/gpu/counts.h"

namespace anyorder::bench {
namespace {

// More than the L2 cache of any GPU so far.
constexpr double kBeyondCaches = 256e6;
constexpr size_t kMostSets = 8;
constexpr int kMostCalls = 200;

std::string Shares(Work kind, double rate, double ceiling) {
  const bool is_flops = kind == Work::kFlops;
  std::string text = absl::StrFormat(", \"ceiling\": \"%s\"", is_flops ? "gemm" : "copy");
  if (ceiling > 0) absl::StrAppendFormat(&text, ", \"share_of_ceiling\": %.4f", rate / ceiling);
  if (is_flops) {
    absl::StrAppendFormat(&text, ", \"share_of_989\": %.4f, \"share_of_790\": %.4f", rate / kPeak,
                          rate / kReachable);
  }
  return text;
}

}  // namespace

Measured Summarise(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    return seconds[static_cast<size_t>(share * static_cast<double>(seconds.size() - 1) + 0.5)];
  };
  return {at(0.5), (at(0.9) - at(0.1)) / at(0.5)};
}

size_t Bench::SetsFor(double bytes) {
  return std::clamp(static_cast<size_t>(std::ceil(kBeyondCaches / std::max(bytes, 1.0))), size_t{1},
                    kMostSets);
}

Measured Bench::Sample(size_t sets, const std::function<void(size_t set)>& operation) {
  // Once to be warm, once to see how many calls make a sample.
  operation(0);
  backend_.Synchronize({});
  timer_.Begin(0);
  operation(sets - 1);
  timer_.End(0);
  backend_.Synchronize({});
  const double once = std::max(timer_.Milliseconds(0), 1e-4);
  const int calls = std::clamp(static_cast<int>(std::ceil(sample_ms_ / once)), 1, kMostCalls);
  size_t call = 0;
  for (int sample = 0; sample < samples_; ++sample) {
    timer_.Begin(sample);
    for (int i = 0; i < calls; ++i) operation(call++ % sets);
    timer_.End(sample);
  }
  backend_.Synchronize({});
  std::vector<double> seconds;
  for (int sample = 0; sample < samples_; ++sample)
    seconds.push_back(timer_.Milliseconds(sample) * 1e-3 / calls);
  return Summarise(std::move(seconds));
}

Measured Bench::Measure(const Case& what, size_t sets,
                        const std::function<void(size_t set)>& operation) {
  const Measured measured = Sample(sets, operation);
  Report(what, measured, sets);
  return measured;
}

void Bench::Report(const Case& what, const Measured& measured, size_t sets) {
  const double rate = what.work / measured.seconds;
  const char* const unit = what.kind == Work::kFlops ? "TFLOP/s" : "TB/s";
  Print(absl::StrFormat(
      "{\"name\": \"%s\", \"shape\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"ms\": %.4g, "
      "\"rate\": %.4g, \"spread\": %.4f, \"samples\": %d, \"sets\": %d%s}",
      what.name, what.shape, what.value_is_time ? measured.seconds * 1e3 : rate * 1e-12,
      what.value_is_time ? "ms" : unit, measured.seconds * 1e3, rate * 1e-12, measured.spread,
      samples_, sets, Shares(what.kind, rate, ceilings_[what.kind])));
}

void Bench::SetCeiling(const Case& what, const Measured& measured) {
  double& most = ceilings_[what.kind];
  most = std::max(most, what.work / measured.seconds);
}

void Bench::Print(const std::string& line) { out_ << line << std::endl; }

}  // namespace anyorder::bench
