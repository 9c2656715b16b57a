// What each lane reads at each step, as a pure function of (dataset, configuration, seed, lane,
// step): nothing to save in a checkpoint, nothing that depends on how many ranks there are.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "core/objective/text_sample.h"
#include "data/dataset/text_source.h"

namespace anyorder::data {

class Sampler {
 public:
  // `num_lanes` rows in the global batch; with sampling.bidirectional the second half of them reads
  // backwards what the first half reads forwards. Errors: InvalidArgument (config, num_lanes);
  // FailedPrecondition if the dataset is too short for that many lanes (the message says how many
  // would fit) or, with kExamples, plain text; DataLoss. `text` (a Dataset) must outlive the
  // sampler.
  static absl::StatusOr<std::unique_ptr<Sampler>> Create(const TextSource& text,
                                                         const SamplingConfig& config,
                                                         SampleKind kind, uint64_t seed,
                                                         int64_t num_lanes);
  virtual ~Sampler() = default;

  // Step `step` of the run reads tokens [i, i + seq_len) of the lane's stream, i = (step mod
  // steps_per_epoch()) * A, where A is reuse_len (pairs; the tokens after the reuse part come from
  // DrawSegmentPair) or seq_len (kContiguous); a short sample reads the first of them. With
  // kExamples it reads one example, see sampling/example_sampler.h. REQUIRES 0 <= lane < num_lanes,
  // step >= 0. Errors: DataLoss if the text read fails its checksum. Thread-safe.
  virtual absl::StatusOr<TextSample> Sample(int64_t lane, int64_t step) const = 0;
  virtual bool IsBackward(int64_t lane) const = 0;
  // Steps until every lane has read its stream once; then it starts over with fresh random choices.
  virtual int64_t steps_per_epoch() const = 0;
};

}  // namespace anyorder::data
