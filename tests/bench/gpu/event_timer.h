// Time by the events of a CUDA runtime, a GPU's or the emulation's.

#pragma once

#include <map>

#include "kernels/cuda/platform/runtime.h"
#include "tests/bench/gpu/measure.h"

namespace anyorder::bench {

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

}  // namespace anyorder::bench
