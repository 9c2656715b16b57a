// Labelled examples, epoch after epoch, each in a fresh random order (SampleKind::kExamples).

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"

#include "data/dataset/example_source.h"
#include "data/sampling/sampler.h"

namespace anyorder::data {

// Which example comes `turn`-th in epoch `epoch`: a uniformly random permutation of [0,
// num_examples) each epoch, a pure function of (seed, epoch, turn). Keeps the last two epochs'
// orders, 4 bytes an example each, since prefetching reads across an epoch's end.
class ExampleOrder {
 public:
  // REQUIRES 1 <= num_examples < 2^31.
  ExampleOrder(int64_t num_examples, uint64_t seed);

  // REQUIRES epoch >= 0, 0 <= turn < num_examples. Thread-safe.
  int64_t At(int64_t epoch, int64_t turn) const;

 private:
  using Order = std::shared_ptr<const std::vector<int32_t>>;

  const int64_t num_examples_;
  const uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, Order> orders_;  // by epoch; guarded by mutex_
};

// Lane b of step s reads turn s * num_lanes + b of the endless row of epochs. So all lanes together
// read every example once before any is read again, and epochs begin in the middle of a step where
// the lanes do not divide the number of examples.
class ExampleSampler : public Sampler {
 public:
  // `examples` must outlive it. REQUIRES num_lanes >= 1.
  ExampleSampler(const ExampleSource& examples, uint64_t seed, int64_t num_lanes);

  absl::StatusOr<TextSample> Sample(int64_t lane, int64_t step) const override;
  bool IsBackward(int64_t) const override { return false; }
  // Steps that read every example, rounded up.
  int64_t steps_per_epoch() const override;

 private:
  const ExampleSource& examples_;
  const uint64_t seed_;
  const int64_t num_lanes_;
  const ExampleOrder order_;
};

// What a sampler makes of one example; lane and step are 0.
absl::StatusOr<TextSample> SampleOfExample(const ExampleSource& examples, int64_t example,
                                           uint64_t seed);

}  // namespace anyorder::data
