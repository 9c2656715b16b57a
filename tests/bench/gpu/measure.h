// Times operations of a device: medians of samples between two marks in its queue, over rotated
// buffers, as JSON lines.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "kernels/backend.h"

namespace anyorder::bench {

// Marks of time in the order of the device's queue.
class Timer {
 public:
  virtual ~Timer() = default;
  virtual void Begin(int sample) = 0;
  virtual void End(int sample) = 0;
  // After the device was synchronised.
  virtual double Milliseconds(int sample) = 0;
};
// The host's clock, right where operations end before they return.
std::unique_ptr<Timer> MakeHostTimer();

// Device memory of one case.
class DeviceMemory {
 public:
  explicit DeviceMemory(kernels::Backend& backend) : backend_(backend) {}
  TensorView Tensor(DType dtype, Shape shape);
  // Normal values: a million that are drawn once for each deviation, from a place on that `seed`
  // chooses, again and again. All are numbers of bf16, or, `dithered`, are moved from these by up
  // to half of bf16's distance.
  TensorView Random(DType dtype, Shape shape, uint64_t seed, double deviation = 1.0,
                    bool dithered = false);
  TensorView Floats(const std::vector<float>& values) {
    return TensorView(const_cast<float*>(Array(values)), {static_cast<int64_t>(values.size())});
  }
  template <typename T>
  const T* Array(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    return static_cast<const T*>(Upload(values.data(), bytes));
  }

 private:
  void* Allocate(int64_t bytes);
  const void* Upload(const void* host, int64_t bytes);

  kernels::Backend& backend_;
  std::vector<std::unique_ptr<kernels::Buffer>> buffers_;
};

// A tensor of fp32 or bf16 as fp32, in host memory.
std::vector<float> Download(kernels::Backend& device, const TensorView& view);

// What one call does: flops, whose rate is in TFLOP/s and beside a large product's, or bytes, in
// TB/s and beside a copy's.
enum class Work { kFlops, kBytes };
struct Case {
  std::string name;   // as tests/gpu/goals.json spells it
  std::string shape;  // "38208x1024"
  Work kind = Work::kBytes;
  double work = 0;
  bool value_is_time = false;  // the line's value is the time in ms, not the rate
};

struct Measured {
  double seconds = 0;  // of one call, median
  double spread = 0;   // (90th - 10th percentile) / median
};

// Of seconds of one call each, at least one.
Measured Summarise(std::vector<double> seconds);

class Bench {
 public:
  // Both borrowed. `samples` of at least `sample_ms` each.
  Bench(kernels::Backend& backend, Timer& timer, int samples, double sample_ms, std::ostream& out)
      : backend_(backend), timer_(timer), samples_(samples), sample_ms_(sample_ms), out_(out) {}

  kernels::Backend& backend() { return backend_; }
  Timer& timer() { return timer_; }
  int samples() const { return samples_; }

  // Calls operation(set) with set = 0 ... sets - 1 in turn, and prints a line. Rates are also given
  // as shares of their ceiling, once SetCeiling has said it, and flops as shares of the chip's.
  Measured Measure(const Case& what, int sets, const std::function<void(int set)>& operation);
  // The line of a case that was measured elsewhere.
  void Report(const Case& what, const Measured& measured, int sets);
  // What was measured is a ceiling of its kind; the highest counts.
  void SetCeiling(const Case& what, const Measured& measured);
  void Print(const std::string& line);

  // How many sets of `bytes` each are more than any cache holds: 1 to 8.
  static int SetsFor(double bytes);

 private:
  Measured Sample(int sets, const std::function<void(int set)>& operation);

  kernels::Backend& backend_;
  Timer& timer_;
  const int samples_;
  const double sample_ms_;
  std::ostream& out_;
  std::map<Work, double> ceilings_;  // rate per second
};

}  // namespace anyorder::bench
