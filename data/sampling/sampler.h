// What each lane reads at each step, as a pure function of (dataset, configuration, seed, lane,
// step): nothing to save in a checkpoint, nothing that depends on how many ranks there are.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/mutex.h"
#include "core/objective/text_sample.h"
#include "data/dataset/text_source.h"
#include "data/sampling/passage_windows.h"

namespace anyorder::data {

class Sampler {
 public:
  // `num_lanes` rows in the global batch; with sampling.bidirectional the second half of them reads
  // backwards what the first half reads forwards. Errors: InvalidArgument (config, num_lanes;
  // with kExamples, plain text); FailedPrecondition if the dataset is too short for that many lanes
  // (the message says how many would fit); those of PassageWindows; DataLoss. `text` (a Dataset)
  // must outlive the sampler. With kExamples of kSpans the samples are the `windows` of passages,
  // with config.pack_examples several examples, which are together by their lengths alone: the
  // longest first, each in the fullest sequence that has room for it and an <eod>.
  static absl::StatusOr<std::unique_ptr<Sampler>> Create(const TextSource& text,
                                                         const SamplingConfig& config,
                                                         SampleKind kind, uint64_t seed,
                                                         int64_t num_lanes,
                                                         WindowUse windows = WindowUse::kTraining);
  // For reading everything once, by one lane in each direction that `config` asks for: lane 0, and
  // with sampling.bidirectional 1, has all of the text; as many lanes after these have one step,
  // the last that fits before the end of the text. Examples have one lane and no last step. Errors:
  // as Create.
  static absl::StatusOr<std::unique_ptr<Sampler>> CreateWhole(const TextSource& text,
                                                              const SamplingConfig& config,
                                                              SampleKind kind, uint64_t seed);
  virtual ~Sampler() = default;

  // The most lanes, up to `num_lanes`, that text is long enough for; 0: not even the fewest.
  // REQUIRES: not kExamples, which take any number.
  static int64_t MostLanes(const TextSource& text, const SamplingConfig& config, SampleKind kind,
                           int64_t num_lanes);

  // Step `step` of the run reads tokens [i, i + seq_len) of the lane's stream, i = (step mod
  // steps_per_epoch()) * A, where A is reuse_len (pairs; the tokens after the reuse part come from
  // DrawSegmentPair) or seq_len (kContiguous); a short sample reads the first of them. With
  // kExamples it reads one example, see ExampleSampler. REQUIRES 0 <= lane < num_lanes,
  // step >= 0. Errors: DataLoss if the text read fails its checksum. Thread-safe.
  virtual absl::StatusOr<TextSample> Sample(int64_t lane, int64_t step) const = 0;
  virtual bool IsBackward(int64_t lane) const = 0;
  // Steps until every lane has read its stream once; then it starts over with fresh random choices.
  virtual int64_t steps_per_epoch() const = 0;
  // Tokens that a lane reads of its stream in an epoch; the rest is too short for a step. 0 of
  // examples.
  virtual int64_t tokens_per_lane() const { return 0; }
  // Examples, or windows, that all lanes together read in an epoch; 0 of plain text.
  virtual int64_t num_examples() const { return 0; }
  // PassageWindows::num_cut_answers() of spans, else 0.
  virtual int64_t num_cut_answers() const { return 0; }
};

// Labelled examples, epoch after epoch (SampleKind::kExamples), each in a random order of its own
// that depends on the seed and the epoch alone. Lane b of step s reads turn s * num_lanes + b of
// the endless row of epochs. So all lanes together read every example once before any is read
// again, and epochs begin in the middle of a step where the lanes do not divide the number of
// examples.
class ExampleSampler : public Sampler {
 public:
  // `examples` must outlive it, or be what it is `made` of; with has_step_lengths, which is for
  // examples of generation, samples have step_lengths. REQUIRES num_lanes >= 1, 1 <= num_examples <
  // 2^31.
  ExampleSampler(const ExampleSource& examples, uint64_t seed, int64_t num_lanes,
                 std::unique_ptr<const ExampleSource> made = nullptr,
                 bool has_step_lengths = false);

  absl::StatusOr<TextSample> Sample(int64_t lane, int64_t step) const override;
  bool IsBackward(int64_t) const override { return false; }
  // Steps that read every example, rounded up.
  int64_t steps_per_epoch() const override { return (num_examples_ + num_lanes_ - 1) / num_lanes_; }
  int64_t num_examples() const override { return num_examples_; }
  int64_t num_cut_answers() const override { return examples_.num_cut_answers(); }

 private:
  int64_t ExampleAt(int64_t turn) const;
  absl::StatusOr<std::shared_ptr<const std::vector<PartLengths>>> StepLengths(int64_t step) const;

  const std::unique_ptr<const ExampleSource> made_;  // examples_, or null
  const ExampleSource& examples_;
  const uint64_t seed_;
  const int64_t num_lanes_;
  const int64_t num_examples_;
  const bool has_step_lengths_;
  mutable Mutex orders_mutex_;
  // The orders of the last two epochs that were asked for, by epoch: prefetching reads across an
  // epoch's end. 4 bytes an example each.
  mutable std::map<int64_t, std::vector<int32_t>> orders_ ABSL_GUARDED_BY(orders_mutex_);
  mutable Mutex lengths_mutex_ ABSL_ACQUIRED_BEFORE(orders_mutex_);
  // The lengths of the last step that was asked for.
  mutable int64_t lengths_step_ ABSL_GUARDED_BY(lengths_mutex_) = -1;
  mutable std::shared_ptr<const std::vector<PartLengths>> lengths_ ABSL_GUARDED_BY(lengths_mutex_);
};

// What a sampler makes of one example, or of one of the windows that `examples` are; lane and step
// are 0.
absl::StatusOr<TextSample> SampleOfExample(const ExampleSource& examples, int64_t example,
                                           uint64_t seed);

// Names what a step trained on in a few bytes, so that histories of runs can be compared
// (metrics.jsonl, `samples`).

// XXH3 over everything in `sample`: lane, step, tokens, targets, order. Depends on nothing else.
uint64_t SampleDigest(const TextSample& sample);

// The digest of all lanes of a step: the sums of the digests' halves. Sums of whole numbers below
// 2^53 are exact in double in any order, so ranks can sum theirs together with the gradient, and
// any number of ranks gets the same. Exact up to 2^21 lanes.
struct StepDigest {
  double high = 0;
  double low = 0;

  void Add(uint64_t sample_digest) {
    high += static_cast<double>(sample_digest >> 32);
    low += static_cast<double>(sample_digest & 0xffffffff);
  }
  // 16 hex digits.
  std::string Hex() const;
};

}  // namespace anyorder::data
