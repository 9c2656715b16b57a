// The labelled examples that ExampleSampler draws from. StoredExamples implements it over a
// dataset; tests over vectors.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "core/config/sampling_config.h"
#include "core/config/task_config.h"

namespace anyorder::data {

struct Example {
  std::vector<std::vector<int32_t>> parts;  // ids of each text, none empty
  int32_t label = -1;                       // -1: not known
};

class ExampleSource {
 public:
  virtual ~ExampleSource() = default;

  virtual ExampleTask task() const = 0;
  // In [1, 2^31).
  virtual int64_t num_examples() const = 0;
  // Labels are below this; 0 for tasks without classes. Of kMultipleChoice: the most choices of an
  // example.
  virtual int64_t num_classes() const = 0;
  virtual VocabularyIds vocabulary() const = 0;

  // REQUIRES 0 <= example < num_examples(). Thread-safe. DataLoss if the stored bytes fail their
  // checksum.
  virtual absl::StatusOr<Example> ReadExample(int64_t example) const = 0;
};

}  // namespace anyorder::data
