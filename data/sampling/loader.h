// Prepares the microbatches of coming steps while the current one is computed.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "core/base/mutex.h"
#include "core/objective/batch.h"
#include "core/objective/objective.h"
#include "data/sampling/sampler.h"

namespace anyorder::data {

// Microbatch (leaf) i of a step holds lanes [i * n, (i + 1) * n), n = lanes_per_microbatch.
struct LoaderOptions {
  std::vector<int64_t> leaves;  // of this rank, in increasing order
  int64_t lanes_per_microbatch = 1;
  int64_t first_step = 0;
  int64_t prefetch_steps = 2;  // steps ready at most; more costs memory and hides longer hiccups
  // Called by Next() with true, once, when it has waited so long, and with false when it no longer
  // does: a rank that hangs can say that it waits for data (TextSource::CurrentRead). May be null.
  std::function<void(bool is_waiting)> on_wait;
  absl::Duration wait_to_tell = absl::Seconds(1);
};

struct StepBatches {
  int64_t step = 0;
  std::vector<Batch> microbatches;  // in leaf order
  StepDigest samples;               // of this rank's lanes
  double wait_ms = 0;               // how long Next() waited for them
};

// One background thread. Next() is for one caller; `sampler` and `objective` must outlive the
// loader.
class BatchLoader {
 public:
  // REQUIRES leaves >= 0, lanes_per_microbatch >= 1, first_step >= 0, prefetch_steps >= 1.
  BatchLoader(const Sampler& sampler, const Objective& objective, const LoaderOptions& options);
  // Stops the thread; prepared steps that nobody took are dropped.
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // The microbatches of first_step, then of the step after it, and so on. Errors: the sampler's, at
  // the step it met them, and at every later call.
  absl::StatusOr<StepBatches> Next();

 private:
  void Run();
  void AwaitBatches() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<StepBatches> Prepare(int64_t step) const;

  const Sampler& sampler_;
  const Objective& objective_;
  const LoaderOptions options_;

  Mutex mutex_;
  std::deque<StepBatches> ready_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // why the thread stopped preparing
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace anyorder::data
