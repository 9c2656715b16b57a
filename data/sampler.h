// What each lane reads at each step, as a pure function of (dataset, configuration, seed, lane, step): nothing to
// save in a checkpoint, nothing that depends on how many ranks there are.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "core/model/text_sample.h"

namespace anyorder::data {

class Dataset;

class Sampler {
 public:
  // `num_lanes` rows in the global batch; with sampling.bidirectional the second half of them reads
  // backwards what the first half reads forwards. FailedPrecondition if the dataset is too short for that
  // many lanes (the message says how many would fit). `dataset` must outlive the sampler.
  static absl::StatusOr<std::unique_ptr<Sampler>> Create(const Dataset& dataset,
                                                         const SamplingConfig& config,
                                                         SampleKind kind,
                                                         uint64_t seed,
                                                         int64_t num_lanes);
  virtual ~Sampler() = default;

  // Thread-safe.
  virtual TextSample Sample(int64_t lane, int64_t step) const = 0;
  virtual bool IsBackward(int64_t lane) const = 0;
  // Steps until every lane has read its stream once; then it starts over with fresh random choices.
  virtual int64_t steps_per_epoch() const = 0;
};

}  // namespace anyorder::data
