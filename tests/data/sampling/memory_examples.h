// Labelled examples over vectors.

#pragma once

#include <cstdint>
#include <vector>

#include "core/base/philox.h"
#include "data/dataset/text_source.h"
#include "tests/data/sampling/memory_text.h"

namespace anyorder::data {

class MemoryExamples : public ExampleSource {
 public:
  // `count` examples of `parts` texts of 1 to `longest` tokens from [20, vocab_size).
  static MemoryExamples Random(ExampleTask task, int64_t count, int64_t parts, int64_t longest,
                               uint64_t seed) {
    RandomStream random(seed, RandomPurpose::kPrep, 0, 0);
    MemoryExamples source;
    source.kind = task;
    source.classes = task == ExampleTask::kMultipleChoice ? parts - 1 : 3;
    for (int64_t i = 0; i < count; ++i) {
      Example& example = source.examples.emplace_back();
      example.label = static_cast<int32_t>(random.Below64(source.classes));
      for (int64_t part = 0; part < parts; ++part) {
        std::vector<int32_t>& tokens = example.parts.emplace_back(1 + random.Below64(longest));
        for (int32_t& token : tokens)
          token = static_cast<int32_t>(20 + random.Below(kVocabSize - 20));
      }
    }
    return source;
  }

  ExampleTask task() const override { return kind; }
  int64_t num_examples() const override { return static_cast<int64_t>(examples.size()); }
  int64_t num_classes() const override { return classes; }
  VocabularyIds vocabulary() const override { return {4, 3, 6, kVocabSize, 1, 2}; }
  bool has_narrow_windows() const override { return is_old; }
  absl::StatusOr<Example> ReadExample(int64_t example) const override {
    return examples[static_cast<size_t>(example)];
  }

  static constexpr int32_t kVocabSize = 60;
  ExampleTask kind = ExampleTask::kClassification;
  int64_t classes = 2;
  bool is_old = false;
  std::vector<Example> examples;
};

// Text that consists of the examples.
class ExampleText : public MemoryText {
 public:
  explicit ExampleText(const ExampleSource& examples) : examples_(examples) {}
  const ExampleSource* examples() const override { return &examples_; }

 private:
  const ExampleSource& examples_;
};

}  // namespace anyorder::data
