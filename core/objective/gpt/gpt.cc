#include "core/objective/gpt/gpt.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

// <s>, <sep>, <cls> and a token of each text.
constexpr int64_t kLeastSeqLen = 5;
// Ids of Batch::loss_ids.
constexpr int32_t kLanguageModel = 1;

void Append(const std::vector<int32_t>& text, int64_t length, std::vector<int32_t>& sequence) {
  sequence.insert(sequence.end(), text.begin(), text.begin() + length);
}

std::vector<int32_t> OfOne(const VocabularyIds& ids, const std::vector<int32_t>& text,
                           int64_t seq_len) {
  std::vector<int32_t> sequence = {ids.begin};
  Append(text, std::min(static_cast<int64_t>(text.size()), seq_len - 2), sequence);
  sequence.push_back(ids.classifier);
  return sequence;
}

std::vector<int32_t> OfTwo(const VocabularyIds& ids, const std::vector<int32_t>& first,
                           const std::vector<int32_t>& second, int64_t seq_len) {
  const int64_t room = seq_len - 3;
  const auto first_size = static_cast<int64_t>(first.size());
  const auto second_size = static_cast<int64_t>(second.size());
  // Half of the room, or what the other leaves.
  const int64_t first_length = std::min(first_size, std::max(room - room / 2, room - second_size));
  const int64_t second_length = std::min(second_size, room - first_length);
  std::vector<int32_t> sequence = {ids.begin};
  Append(first, first_length, sequence);
  sequence.push_back(ids.separator);
  Append(second, second_length, sequence);
  sequence.push_back(ids.classifier);
  return sequence;
}

class GptClassifier final : public Objective {
 public:
  explicit GptClassifier(const ObjectiveSettings& settings)
      : Objective(settings.traits),
        task_(settings.model.task),
        seq_len_(settings.sampling.seq_len) {}

  std::string quantity() const override {
    return has_language_model()
               ? "loss of the task plus lambda times that of the language model of its text"
               : "loss of the task";
  }

  BatchShape Shape(int64_t batch_size) const override {
    BatchShape shape;
    shape.batch_size = batch_size;
    shape.content_rows = task_.num_sequences() * seq_len_;
    shape.targets = has_language_model() ? shape.content_rows : 0;
    shape.advance = shape.content_rows;
    shape.min_distance = 0;  // nobody looks ahead
    shape.num_distances = seq_len_;
    shape.content_readout = true;
    shape.own_divisor = true;
    shape.loss_names = {"task"};
    if (has_language_model()) shape.loss_names.emplace_back("lm");
    shape.task_rows = task_.num_sequences();
    return shape;
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    FillLaneIdentity(sample, b, batch);
    const std::vector<std::vector<int32_t>> sequences = TaskSequences(task_.task, sample, seq_len_);
    const auto count = static_cast<int64_t>(sequences.size());
    ANYORDER_CHECK(count <= task_.num_sequences())
        << count << " sequences of example " << sample.example << ", at most "
        << task_.num_sequences() << " were announced";
    for (int64_t r = 0; r < task_.num_sequences(); ++r) {
      // An example of fewer choices leaves whole sequences to padding.
      const std::vector<int32_t> none;
      const std::vector<int32_t>& sequence = r < count ? sequences[static_cast<size_t>(r)] : none;
      FillSlots(sequence, r, b, batch);
      if (has_language_model()) FillTargets(sequence, count, r, b, batch);
      const int64_t first = ContentRow(batch.shape, b) + r * seq_len_;
      const auto end = std::max<int64_t>(static_cast<int64_t>(sequence.size()), 1);
      batch.task_rows[b * batch.shape.task_rows + r] = static_cast<int32_t>(first + end - 1);
    }
    const bool has_label = sample.label >= 0;
    batch.task_labels[b] = has_label ? sample.label : 0;
    batch.task_weights[b] = has_label ? 1.0f : 0.0f;
    batch.task_choices[b] = static_cast<int32_t>(count);
    batch.divisors[b] = has_label ? 1.0 : 0.0;
  }

 private:
  bool has_language_model() const { return task_.lm_weight > 0; }

  void FillSlots(const std::vector<int32_t>& sequence, int64_t r, int64_t b, Batch& batch) const {
    const auto size = static_cast<int64_t>(sequence.size());
    for (int64_t i = 0; i < seq_len_; ++i) {
      Slot slot = PadSlot(i);
      if (i < size) {
        slot = CausalSlot(sequence[static_cast<size_t>(i)], i);
        // The sequences of an example do not see one another.
        slot.doc = static_cast<int32_t>(r);
      }
      SetContentSlot(b, r * seq_len_ + i, slot, batch);
    }
  }

  // Every token after the first is predicted, <sep> and <cls> included, as the released code does;
  // weights make the sum over an example lambda times the mean over its sequences of the mean over
  // a sequence.
  void FillTargets(const std::vector<int32_t>& sequence, int64_t num_sequences, int64_t r,
                   int64_t b, Batch& batch) const {
    const int64_t targets = static_cast<int64_t>(sequence.size()) - 1;
    for (int64_t i = 0; i < seq_len_; ++i) {
      const int64_t entry = r * seq_len_ + i;
      const int64_t row = ContentRow(batch.shape, b) + entry;
      const bool is_target = i < targets;
      const double weight = task_.lm_weight / static_cast<double>(num_sequences * targets);
      SetReadout(b, entry, row, is_target ? sequence[static_cast<size_t>(i + 1)] : 0,
                 is_target ? static_cast<float>(weight) : 0.0f, batch);
      batch.loss_ids[row] = kLanguageModel;
    }
  }

  const TaskConfig task_;
  const int64_t seq_len_;
};

}  // namespace

std::vector<std::vector<int32_t>> TaskSequences(ExampleTask task, const TextSample& sample,
                                                int64_t seq_len) {
  const std::vector<std::vector<int32_t>>& parts = sample.parts;
  const VocabularyIds& ids = sample.vocabulary;
  ANYORDER_CHECK(parts.size() >= (task == ExampleTask::kClassification ? 1u : 2u))
      << parts.size() << " texts of " << ExampleTaskName(task);
  switch (task) {
    case ExampleTask::kClassification: return {OfOne(ids, parts[0], seq_len)};
    case ExampleTask::kSimilarity:
      return {OfTwo(ids, parts[0], parts[1], seq_len), OfTwo(ids, parts[1], parts[0], seq_len)};
    case ExampleTask::kMultipleChoice: {
      std::vector<std::vector<int32_t>> sequences;
      for (size_t choice = 1; choice < parts.size(); ++choice)
        sequences.push_back(OfTwo(ids, parts[0], parts[choice], seq_len));
      return sequences;
    }
    default: return {OfTwo(ids, parts[0], parts[1], seq_len)};
  }
}

ObjectiveOrStatus MakeGptClassifier(const ObjectiveSettings& settings) {
  FaultList faults;
  const TaskConfig& task = settings.model.task;
  const int64_t seq_len = settings.sampling.seq_len;
  faults.Require(task.task != ExampleTask::kGeneration,
                 "objective.task is generation, which has no classes; use an objective that "
                 "generates text, or another task");
  faults.Require(task.num_classes >= 2 && task.num_classes <= 1 << 16,
                 absl::StrCat("objective.num_classes is ", task.num_classes,
                              " but must be the number of classes, or the most choices of an "
                              "example, at least 2"));
  faults.Require(seq_len >= kLeastSeqLen,
                 absl::StrCat("sampling.seq_len is ", seq_len, " but must be at least ",
                              kLeastSeqLen, ": three special tokens and one of each text"));
  ANYORDER_RETURN_IF_ERROR(faults.ToStatus());
  return std::make_unique<GptClassifier>(settings);
}

}  // namespace anyorder
