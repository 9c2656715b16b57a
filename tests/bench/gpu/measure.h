// Times operations of a device: medians of samples between two marks in its queue, over rotated
// buffers, as JSON lines.

#pragma once

#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/platform/runtime.h"

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

// By the events of a CUDA runtime, a GPU's or the emulation's.
class EventTimer final : public Timer {
 public:
  // The runtime outlives the timer.
  explicit EventTimer(kernels::cuda::Runtime& runtime) : runtime_(runtime) {}
  ~EventTimer() override {
    for (const auto& [key, event] : events_) runtime_.DestroyEvent(event);
  }
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;

  void Begin(int sample) override { runtime_.Record(At(2 * sample), {}); }
  void End(int sample) override { runtime_.Record(At(2 * sample + 1), {}); }
  double Milliseconds(int sample) override {
    return runtime_.MillisecondsBetween(At(2 * sample), At(2 * sample + 1));
  }

 private:
  kernels::cuda::EventView At(int key) {
    const auto found = events_.find(key);
    if (found != events_.end()) return found->second;
    return events_.emplace(key, runtime_.MakeTimedEvent()).first->second;
  }

  kernels::cuda::Runtime& runtime_;
  std::map<int, kernels::cuda::EventView> events_;
};

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
  Measured Measure(const Case& what, size_t sets, const std::function<void(size_t set)>& operation);
  // The line of a case that was measured elsewhere.
  void Report(const Case& what, const Measured& measured, size_t sets);
  // What was measured is a ceiling of its kind; the highest counts.
  void SetCeiling(const Case& what, const Measured& measured);
  void Print(const std::string& line);

  // How many sets of `bytes` each are more than any cache holds: 1 to 8.
  static size_t SetsFor(double bytes);

 private:
  Measured Sample(size_t sets, const std::function<void(size_t set)>& operation);

  kernels::Backend& backend_;
  Timer& timer_;
  const int samples_;
  const double sample_ms_;
  std::ostream& out_;
  std::map<Work, double> ceilings_;  // rate per second
};

}  // namespace anyorder::bench
