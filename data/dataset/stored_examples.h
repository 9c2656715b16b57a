// The table of a dataset's labelled examples (FORMAT.md, "examples.bin"): which tokens of the
// stream each one is, and its label, score, answer or tags.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/file_system.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/text_source.h"

namespace anyorder::data {

class StoredExamples : public ExampleSource {
 public:
  // Reads DIRECTORY/examples.bin and checks all of it: 12 bytes a part, 12 to 20 an example, and 4
  // a token that has a tag. The last two references must outlive it. DataLoss for a file that is
  // missing, has another length or digest, or holds invalid values, even if its digest fits.
  // REQUIRES index.examples.
  static absl::StatusOr<std::unique_ptr<StoredExamples>> Open(FileSystem& fs,
                                                              const std::string& directory,
                                                              const DatasetIndex& index,
                                                              const TextSource& text);

  ExampleTask task() const override { return index_.examples->task; }
  int64_t num_examples() const override {
    return static_cast<int64_t>(index_.examples->num_examples);
  }
  int64_t num_classes() const override { return num_classes_; }
  // Texts of an example at most.
  int64_t most_parts() const { return most_parts_; }
  VocabularyIds vocabulary() const override { return text_.vocabulary(); }
  bool has_narrow_windows() const override { return index_.settings.count("windows") == 0; }
  absl::StatusOr<Example> ReadExample(int64_t example) const override;
  absl::StatusOr<ExampleOutline> Outline(int64_t example) const override;

  // These read the table alone. REQUIRES 0 <= example < num_examples().
  // -1 where it is not known, or a score.
  int32_t LabelOf(int64_t example) const {
    return At<int32_t>(labels_, static_cast<uint64_t>(example));
  }
  // NaN where it is not known, or a label.
  float ScoreOf(int64_t example) const {
    return scores_ == nullptr ? std::numeric_limits<float>::quiet_NaN()
                              : At<float>(scores_, static_cast<uint64_t>(example));
  }
  // Whether label or score is known.
  bool HasLabel(int64_t example) const {
    return scores_ == nullptr ? LabelOf(example) >= 0 : !std::isnan(ScoreOf(example));
  }

 private:
  StoredExamples(const DatasetIndex& index, const TextSource& text, std::string path,
                 std::string table);
  absl::Status Check();
  absl::Status CheckExample(int64_t example);
  absl::Status CheckLabel(int64_t example) const;
  absl::Status CheckAnswer(int64_t example) const;
  absl::Status CheckPlace(int64_t example) const;
  absl::Status CheckTags(int64_t example) const;
  // Element `i` of an array of the file, which may begin anywhere.
  template <typename Value>
  static Value At(const char* array, uint64_t i) {
    Value value;
    std::memcpy(&value, array + i * sizeof value, sizeof value);
    return value;
  }
  uint64_t FirstPart(int64_t example) const {
    return At<uint64_t>(first_parts_, static_cast<uint64_t>(example));
  }
  int64_t LengthOf(uint64_t part) const { return At<uint32_t>(part_lengths_, part); }
  uint64_t EndOf(uint64_t part) const {
    return At<uint64_t>(part_begins_, part) + At<uint32_t>(part_lengths_, part);
  }
  std::vector<int32_t> TagsOf(int64_t example) const;

  const DatasetIndex& index_;
  const TextSource& text_;
  const std::string path_;
  const std::string table_;
  // In table_, in this order; see FORMAT.md.
  const char* part_begins_;
  const char* first_parts_;
  const char* part_lengths_;
  const char* labels_;
  const char* scores_;   // null where labels are no scores
  const char* answers_;  // null unless kSpans
  const char* tags_;     // null unless kTokens
  int64_t num_classes_ = 0;
  int64_t most_parts_ = 0;
};

// In DatasetIndex::counts: kSpans whose answers all stand elsewhere; they have no label
// (FORMAT.md).
inline constexpr char kMisplacedCount[] = "examples_misplaced";

// Whether the labels of such examples are classes.
constexpr bool HasClasses(ExampleTask task) {
  return task != ExampleTask::kMultipleChoice && task != ExampleTask::kGeneration &&
         task != ExampleTask::kSpans;
}

// Whether the labels of the examples are scores: they would be classes, but there are none.
inline bool HasScores(const ExamplesEntry& entry) {
  return HasClasses(entry.task) && entry.task != ExampleTask::kTokens && entry.classes.empty();
}

// Bytes of examples.bin. REQUIRES index.examples.
inline uint64_t ExampleTableBytes(const DatasetIndex& index) {
  const ExamplesEntry& entry = *index.examples;
  const uint64_t optional = HasScores(entry) ? 4 : entry.task == ExampleTask::kSpans ? 8 : 0;
  // One a token of the stream, but none of the <eod> of each example.
  const uint64_t num_tags =
      entry.task == ExampleTask::kTokens ? index.num_tokens - entry.num_examples : 0;
  return 12 * entry.num_parts + (12 + optional) * entry.num_examples + 8 + 4 * num_tags;
}

}  // namespace anyorder::data
