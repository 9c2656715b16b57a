#include "data/sampling/loader.h"

#include <pthread.h>

#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder::data {

BatchLoader::BatchLoader(const Sampler& sampler, const Objective& objective,
                         const LoaderOptions& options)
    : sampler_(sampler), objective_(objective), options_(options) {
  ANYORDER_CHECK(options.begin_leaf >= 0 && options.begin_leaf <= options.end_leaf &&
                 options.lanes_per_microbatch >= 1 && options.first_step >= 0 &&
                 options.prefetch_steps >= 1)
      << "leaves " << options.begin_leaf << ".." << options.end_leaf;
  thread_ = std::thread(&BatchLoader::Run, this);
}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

absl::StatusOr<StepBatches> BatchLoader::Next() {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock<std::mutex> lock(mutex_);
  AwaitBatches(lock);
  if (ready_.empty()) return status_;
  StepBatches next = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  next.wait_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return next;
}

void BatchLoader::AwaitBatches(std::unique_lock<std::mutex>& lock) {
  const auto is_ready = [&] { return !ready_.empty() || !status_.ok(); };
  if (!options_.on_wait) return changed_.wait(lock, is_ready);
  if (changed_.wait_for(lock, options_.wait_to_tell, is_ready)) return;
  lock.unlock();
  options_.on_wait(true);
  lock.lock();
  changed_.wait(lock, is_ready);
  options_.on_wait(false);
}

void BatchLoader::Run() {
  // For debuggers and top; tests/faults finds the thread by it, to make a step wait for its data.
  ::pthread_setname_np(::pthread_self(), "batch-loader");
  for (int64_t step = options_.first_step;; ++step) {
    {
      // Before preparing, so that no more than prefetch_steps steps ever exist here.
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] {
        return stop_ || static_cast<int64_t>(ready_.size()) < options_.prefetch_steps;
      });
      if (stop_) return;
    }
    absl::StatusOr<StepBatches> prepared = Prepare(step);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (prepared.ok()) {
        ready_.push_back(*std::move(prepared));
      } else {
        status_ = prepared.status();
      }
    }
    changed_.notify_all();
    if (!prepared.ok()) return;
  }
}

absl::StatusOr<StepBatches> BatchLoader::Prepare(int64_t step) const {
  const int64_t lanes = options_.lanes_per_microbatch;
  StepBatches result;
  result.step = step;
  for (int64_t leaf = options_.begin_leaf; leaf < options_.end_leaf; ++leaf) {
    Batch& batch = result.microbatches.emplace_back(objective_.Shape(lanes));
    batch.step = step;
    for (int64_t b = 0; b < lanes; ++b) {
      const int64_t lane = leaf * lanes + b;
      ANYORDER_ASSIGN_OR_RETURN(const TextSample sample, sampler_.Sample(lane, step));
      objective_.BuildLane(sample, b, batch);
      result.samples.Add(SampleDigest(sample));
    }
  }
  return result;
}

}  // namespace anyorder::data
