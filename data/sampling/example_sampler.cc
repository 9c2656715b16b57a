#include "data/sampling/example_sampler.h"

#include <utility>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "data/sampling/permutation.h"

namespace anyorder::data {

ExampleOrder::ExampleOrder(int64_t num_examples, uint64_t seed)
    : num_examples_(num_examples), seed_(seed) {
  ANYORDER_CHECK(num_examples >= 1 && num_examples < int64_t{1} << 31) << num_examples;
}

int64_t ExampleOrder::At(int64_t epoch, int64_t turn) const {
  ANYORDER_CHECK(epoch >= 0 && turn >= 0 && turn < num_examples_)
      << "turn " << turn << " of " << num_examples_ << ", epoch " << epoch;
  const std::lock_guard<std::mutex> lock(mutex_);
  Order& order = orders_[epoch];
  if (order == nullptr) {
    RandomStream random(seed_, RandomPurpose::kExamples, static_cast<uint64_t>(epoch), 0);
    order = std::make_shared<const std::vector<int32_t>>(DrawPermutation(num_examples_, random));
  }
  const int64_t example = (*order)[static_cast<size_t>(turn)];
  while (orders_.size() > 2)
    orders_.erase(orders_.begin()->first == epoch ? std::prev(orders_.end()) : orders_.begin());
  return example;
}

ExampleSampler::ExampleSampler(const ExampleSource& examples, uint64_t seed, int64_t num_lanes)
    : examples_(examples),
      seed_(seed),
      num_lanes_(num_lanes),
      order_(examples.num_examples(), seed) {
  ANYORDER_CHECK(num_lanes >= 1) << num_lanes;
}

int64_t ExampleSampler::steps_per_epoch() const {
  return (examples_.num_examples() + num_lanes_ - 1) / num_lanes_;
}

absl::StatusOr<TextSample> ExampleSampler::Sample(int64_t lane, int64_t step) const {
  ANYORDER_CHECK(lane >= 0 && lane < num_lanes_ && step >= 0)
      << "lane " << lane << " of " << num_lanes_ << ", step " << step;
  const int64_t turn = step * num_lanes_ + lane;
  const int64_t count = examples_.num_examples();
  ANYORDER_ASSIGN_OR_RETURN(
      TextSample sample, SampleOfExample(examples_, order_.At(turn / count, turn % count), seed_));
  sample.lane = lane;
  sample.step = step;
  return sample;
}

absl::StatusOr<TextSample> SampleOfExample(const ExampleSource& examples, int64_t example,
                                           uint64_t seed) {
  ANYORDER_ASSIGN_OR_RETURN(Example read, examples.ReadExample(example));
  TextSample sample;
  sample.seed = seed;
  sample.vocabulary = examples.vocabulary();
  sample.example = example;
  sample.parts = std::move(read.parts);
  sample.label = read.label;
  return sample;
}

}  // namespace anyorder::data
