#include "data/sampling/loader.h"

#include <pthread.h>

#include <utility>

#include "core/base/check.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"

namespace anyorder::data {

BatchLoader::BatchLoader(const Sampler& sampler, const Objective& objective,
                         const LoaderOptions& options)
    : sampler_(sampler), objective_(objective), options_(options) {
  ANYORDER_CHECK((options.leaves.empty() || options.leaves.front() >= 0) &&
                 options.lanes_per_microbatch >= 1 && options.first_step >= 0 &&
                 options.prefetch_steps >= 1);
  thread_ = std::thread(&BatchLoader::Run, this);
}

BatchLoader::~BatchLoader() {
  {
    const MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

absl::StatusOr<StepBatches> BatchLoader::Next() {
  const absl::Time start = MonotonicNow();
  const MutexLock lock(&mutex_);
  AwaitBatches();
  if (ready_.empty()) return status_;
  StepBatches next = std::move(ready_.front());
  ready_.pop_front();
  next.wait_ms = absl::ToDoubleMilliseconds(MonotonicNow() - start);
  return next;
}

void BatchLoader::AwaitBatches() {
  const auto is_ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !ready_.empty() || !status_.ok();
  };
  if (!options_.on_wait) return mutex_.Await(is_ready);
  if (mutex_.AwaitWithTimeout(is_ready, options_.wait_to_tell)) return;
  mutex_.Unlock();
  options_.on_wait(true);
  mutex_.Lock();
  mutex_.Await(is_ready);
  options_.on_wait(false);
}

void BatchLoader::Run() {
  // For debuggers and top; tests/faults finds the thread by it, to make a step wait for its data.
  ::pthread_setname_np(::pthread_self(), "batch-loader");
  for (int64_t step = options_.first_step;; ++step) {
    {
      // Before preparing, so that no more than prefetch_steps steps ever exist here.
      const MutexLock lock(&mutex_);
      mutex_.Await([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stop_ || static_cast<int64_t>(ready_.size()) < options_.prefetch_steps;
      });
      if (stop_) return;
    }
    absl::StatusOr<StepBatches> prepared = Prepare(step);
    const MutexLock lock(&mutex_);
    if (!prepared.ok()) {
      status_ = prepared.status();
      return;
    }
    ready_.push_back(*std::move(prepared));
  }
}

absl::StatusOr<StepBatches> BatchLoader::Prepare(int64_t step) const {
  const int64_t lanes = options_.lanes_per_microbatch;
  StepBatches result;
  result.step = step;
  for (const int64_t leaf : options_.leaves) {
    Batch& batch = result.microbatches.emplace_back(objective_.Shape(lanes));
    batch.step = step;
    for (int64_t b = 0; b < lanes; ++b) {
      const int64_t lane = leaf * lanes + b;
      ASSIGN_OR_RETURN(const TextSample sample, sampler_.Sample(lane, step));
      objective_.BuildLane(sample, b, batch);
      result.samples.Add(SampleDigest(sample));
    }
  }
  return result;
}

}  // namespace anyorder::data
