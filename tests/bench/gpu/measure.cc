#include "tests/bench/gpu/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/check.h"
#include "tests/bench/gpu/counts.h"
#include "tests/testing/dithered.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::bench {
namespace {

// More than the L2 cache of any GPU so far.
constexpr double kBeyondCaches = 256e6;
constexpr int kMostSets = 8;
constexpr int kMostCalls = 200;

class HostTimer final : public Timer {
 public:
  void Begin(int sample) override { At(sample).begin = Clock::now(); }
  void End(int sample) override { At(sample).end = Clock::now(); }
  double Milliseconds(int sample) override {
    return std::chrono::duration<double, std::milli>(At(sample).end - At(sample).begin).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Marks {
    Clock::time_point begin, end;
  };
  Marks& At(int sample) { return marks_[sample]; }
  std::map<int, Marks> marks_;
};

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

test::HostTensor DrawValues(DType dtype, int64_t count, double deviation, bool dithered) {
  std::vector<double> numbers =
      test::RandomTensor(DType::kBFloat16, {count}, 1, deviation).Values();
  if (dithered) numbers = testing::Dithered(std::move(numbers), 2);
  test::HostTensor values(dtype, {count});
  for (int64_t i = 0; i < count; ++i) values.Set(i, numbers[static_cast<size_t>(i)]);
  return values;
}

}  // namespace

std::unique_ptr<Timer> MakeHostTimer() { return std::make_unique<HostTimer>(); }

void* DeviceMemory::Allocate(int64_t bytes) {
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> buffer = backend_.Allocate(bytes);
  ANYORDER_CHECK_OK(buffer.status());
  buffers_.push_back(*std::move(buffer));
  return buffers_.back()->data();
}

TensorView DeviceMemory::Tensor(DType dtype, Shape shape) {
  return TensorView(Allocate(shape.num_elements() * SizeOf(dtype)), dtype, shape);
}

TensorView DeviceMemory::Random(DType dtype, Shape shape, uint64_t seed, double deviation,
                                bool dithered) {
  // A length that no row divides: lanes are not copies of each other.
  constexpr int64_t kPiece = (1 << 20) - 3;
  constexpr int64_t kPlaces = 1 << 12;
  static std::map<std::tuple<DType, double, bool>, test::HostTensor> drawn;
  test::HostTensor& values = drawn[{dtype, deviation, dithered}];
  if (values.size() == 0) values = DrawValues(dtype, kPiece + kPlaces, deviation, dithered);
  const TensorView tensor = Tensor(dtype, shape);
  const int64_t total = shape.num_elements();
  const auto place = static_cast<int64_t>(seed * 977 % kPlaces);
  for (int64_t begin = 0; begin < total; begin += kPiece) {
    const TensorView piece = tensor.Slice(begin, {std::min(kPiece, total - begin)});
    const TensorView from = values.view().Slice(place, piece.shape());
    backend_.CopyToDevice(from.raw(), piece.raw(), piece.num_bytes(), {});
  }
  return tensor;
}

const void* DeviceMemory::Upload(const void* host, int64_t bytes) {
  void* const device = Allocate(bytes);
  backend_.CopyToDevice(host, device, bytes, {});
  return device;
}

std::vector<float> Download(kernels::Backend& device, const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  if (view.dtype() == DType::kFloat32) {
    device.CopyToHost(view.raw(), values.data(), view.num_bytes(), {});
    device.Synchronize({});
    return values;
  }
  std::vector<BFloat16> narrow(values.size());
  device.CopyToHost(view.raw(), narrow.data(), view.num_bytes(), {});
  device.Synchronize({});
  std::transform(narrow.begin(), narrow.end(), values.begin(),
                 [](BFloat16 x) { return static_cast<float>(x); });
  return values;
}

Measured Summarise(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    return seconds[static_cast<size_t>(share * static_cast<double>(seconds.size() - 1) + 0.5)];
  };
  return {at(0.5), (at(0.9) - at(0.1)) / at(0.5)};
}

int Bench::SetsFor(double bytes) {
  return std::clamp(static_cast<int>(std::ceil(kBeyondCaches / std::max(bytes, 1.0))), 1,
                    kMostSets);
}

Measured Bench::Sample(int sets, const std::function<void(int set)>& operation) {
  // Once to be warm, once to see how many calls make a sample.
  operation(0);
  backend_.Synchronize({});
  timer_.Begin(0);
  operation(sets - 1);
  timer_.End(0);
  backend_.Synchronize({});
  const double once = std::max(timer_.Milliseconds(0), 1e-4);
  const int calls = std::clamp(static_cast<int>(std::ceil(sample_ms_ / once)), 1, kMostCalls);
  int call = 0;
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

Measured Bench::Measure(const Case& what, int sets, const std::function<void(int set)>& operation) {
  const Measured measured = Sample(sets, operation);
  Report(what, measured, sets);
  return measured;
}

void Bench::Report(const Case& what, const Measured& measured, int sets) {
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
