#include "core/objective/finetuning.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

// Ids of Batch::loss_ids.
constexpr int32_t kLanguageModel = 1;

// Calls visit(name, segment) for each part of "<cls>:0 A:0 <sep>:0".
template <typename Visit>
void ForEachPart(absl::string_view parts, const Visit& visit) {
  for (const absl::string_view part : absl::StrSplit(parts, ' ')) {
    const std::pair<absl::string_view, absl::string_view> sides = absl::StrSplit(part, ':');
    int32_t segment = 0;
    ANYORDER_CHECK(absl::SimpleAtoi(sides.second, &segment)) << part;
    visit(sides.first, segment);
  }
}

bool IsText(absl::string_view name) { return name.size() == 1; }

// What each text gets of `room` tokens: LayOut says how.
std::vector<int64_t> Shares(const std::vector<const std::vector<int32_t>*>& texts, int64_t room) {
  std::vector<int64_t> sizes;
  for (const auto* text : texts) sizes.push_back(std::ssize(*text));
  std::vector<int64_t> shortest_first = sizes;
  std::sort(shortest_first.begin(), shortest_first.end());
  // The longest that stay whole, and what is left for each of the others.
  int64_t left = room, others = std::ssize(texts);
  for (const int64_t size : shortest_first) {
    if (size > left / others) break;
    left -= size;
    if (--others == 0) return sizes;
  }
  const int64_t share = left / others;
  int64_t odd = left % others;
  for (int64_t& size : sizes) {
    if (size <= share) continue;
    size = share + (odd > 0 ? 1 : 0);
    --odd;
  }
  return sizes;
}

// Appends `count` slots of `segment`.
void Append(const int32_t* tokens, int64_t count, int32_t segment, TaskSequence& sequence) {
  sequence.tokens.insert(sequence.tokens.end(), tokens, tokens + count);
  sequence.segments.insert(sequence.segments.end(), static_cast<size_t>(count), segment);
}

class FineTuning final : public Objective {
 public:
  explicit FineTuning(const ObjectiveSettings& settings) : Objective(settings) {
    // Learned segments are rows of a table, which has those of two texts.
    layout_.has_more_segments &= model_.relative_segments();
  }

  int64_t num_segments() const override {
    int32_t last = 0;
    ForEachPart(layout_.Of(2),
                [&last](absl::string_view, int32_t segment) { last = std::max(last, segment); });
    return last + 1;
  }
  std::string quantity() const override {
    return has_language_model()
               ? "loss of the task plus lambda times that of the language model of its text"
               : "loss of the task";
  }

  BatchShape Shape(int64_t batch_size) const override {
    BatchShape shape;
    shape.batch_size = batch_size;
    shape.content_rows = num_sequences() * seq_len_;
    shape.targets = has_language_model() ? shape.content_rows : 0;
    shape.advance = shape.content_rows;
    shape.min_distance = is_causal() ? 0 : 1 - seq_len_;
    shape.num_distances = is_causal() ? seq_len_ : 2 * seq_len_ - 1;
    shape.content_readout = true;
    shape.own_divisor = true;
    shape.loss_names = {"task"};
    if (has_language_model()) shape.loss_names.emplace_back("lm");
    shape.has_spans = task_.has_spans();
    shape.has_tags = task_.has_tags();
    shape.task_rows = task_.reads_all_tokens() ? shape.content_rows : num_sequences();
    if (has_globals()) shape.global_rows = num_sequences() * globals_of_sequence();
    return shape;
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    FillLaneIdentity(sample, b, batch);
    const std::vector<TaskSequence> sequences = SequencesOf(sample);
    const auto count = static_cast<int64_t>(sequences.size());
    ANYORDER_CHECK(count <= num_sequences())
        << count << " sequences of example " << sample.example << ", at most " << num_sequences()
        << " were announced";
    // An example of fewer choices leaves whole sequences to padding.
    const TaskSequence none;
    for (int64_t r = 0; r < num_sequences(); ++r) {
      const TaskSequence& sequence = r < count ? sequences[static_cast<size_t>(r)] : none;
      FillSlots(sequence, r, b, batch);
      if (has_language_model()) FillTargets(sequence, count, r, b, batch);
      if (!task_.reads_all_tokens())
        SetTaskRow(r, r * seq_len_ + sequence.classifier, r < count, b, batch);
    }
    if (has_globals()) FillGlobals(sequences, b, batch);
    FillLabels(sample, b, batch);
    if (task_.has_spans()) FillSpan(sample, sequences[0], b, batch);
    if (task_.has_tags()) FillTags(sample, sequences[0], b, batch);
  }

 private:
  bool has_globals() const { return traits().has(ObjectiveTraits::kGlobals); }
  bool is_causal() const { return traits().has(ObjectiveTraits::kCausal); }
  bool has_language_model() const { return is_causal() && task_.lm_weight > 0; }
  int64_t num_sequences() const {
    if (task_.has_choices()) return task_.num_classes;
    return task_.task == ExampleTask::kSimilarity && is_causal() ? 2 : 1;
  }
  // CLS, and questions, which windows cut to max_question tokens; of choices the most that stay
  // whole whatever the context is.
  int64_t globals_of_sequence() const {
    if (!task_.has_choices() && !task_.has_spans()) return 1;
    const int64_t half = (seq_len_ - NumSpecials(layout_.Of(2))) / 2;
    return 1 + (task_.has_spans() ? std::min(half, sampling_.max_question) : half);
  }

  TaskSequence OfTwo(const TextSample& sample, size_t first, size_t second) const {
    return LayOut(layout_.Of(2), sample.vocabulary, {&sample.parts[first], &sample.parts[second]},
                  seq_len_);
  }
  std::vector<TaskSequence> SequencesOf(const TextSample& sample) const {
    const std::vector<std::vector<int32_t>>& parts = sample.parts;
    const bool takes_any_number = task_.task == ExampleTask::kClassification;
    ANYORDER_CHECK(parts.size() >= (takes_any_number || task_.has_tags() ? 1u : 2u))
        << parts.size() << " texts of " << EnumName(task_.task);
    if (task_.has_tags()) return {LayOut(layout_.Of(1), sample.vocabulary, {&parts[0]}, seq_len_)};
    if (takes_any_number) {
      std::vector<const std::vector<int32_t>*> texts;
      for (const std::vector<int32_t>& part : parts) texts.push_back(&part);
      return {LayOut(layout_.Of(std::ssize(texts)), sample.vocabulary, texts, seq_len_)};
    }
    if (task_.has_spans() && layout_.passage_first) return {OfTwo(sample, 1, 0)};
    std::vector<TaskSequence> sequences = {OfTwo(sample, 0, 1)};
    if (task_.has_choices()) {
      for (size_t choice = 2; choice < parts.size(); ++choice)
        sequences.push_back(OfTwo(sample, 0, choice));
    } else if (num_sequences() == 2) {
      sequences.push_back(OfTwo(sample, 1, 0));
    }
    return sequences;
  }

  void FillSlots(const TaskSequence& sequence, int64_t r, int64_t b, Batch& batch) const {
    const auto size = static_cast<int64_t>(sequence.tokens.size());
    for (int64_t i = 0; i < seq_len_; ++i) {
      Slot slot = PadSlot(i);
      if (i < size) {
        slot = RankedSlot(sequence.tokens[static_cast<size_t>(i)], i, is_causal() ? i : 0,
                          sequence.segments[static_cast<size_t>(i)]);
        // The sequences of an example do not see one another.
        slot.doc = static_cast<int32_t>(r);
      }
      SetContentSlot(b, r * seq_len_ + i, slot, batch);
    }
  }

  // Entry `entry` of lane b's task rows is content slot `slot`.
  void SetTaskRow(int64_t entry, int64_t slot, bool is_valid, int64_t b, Batch& batch) const {
    const int64_t place = b * batch.shape.task_rows + entry;
    batch.task_rows[place] = static_cast<int32_t>(ContentRow(batch.shape, b) + slot);
    batch.task_valid[place] = is_valid ? 1 : 0;
  }

  // Every token after the first is predicted, <sep> and <cls> included, as the released code does;
  // weights make the sum over an example lambda times the mean over its sequences of the mean over
  // a sequence.
  void FillTargets(const TaskSequence& sequence, int64_t num_sequences, int64_t r, int64_t b,
                   Batch& batch) const {
    const int64_t targets = static_cast<int64_t>(sequence.tokens.size()) - 1;
    for (int64_t i = 0; i < seq_len_; ++i) {
      const int64_t entry = r * seq_len_ + i;
      const int64_t row = ContentRow(batch.shape, b) + entry;
      const bool is_target = i < targets;
      const double weight = task_.lm_weight / static_cast<double>(num_sequences * targets);
      SetReadout(b, entry, row, is_target ? sequence.tokens[static_cast<size_t>(i + 1)] : 0,
                 is_target ? static_cast<float>(weight) : 0.0f, batch);
      batch.loss_ids[row] = kLanguageModel;
    }
  }

  // CLS of each sequence, and the question of kSpans or the choice, as far as there is room.
  void FillGlobals(const std::vector<TaskSequence>& sequences, int64_t b, Batch& batch) const {
    std::vector<uint8_t> is_global(static_cast<size_t>(batch.shape.content_rows), 0);
    const size_t question = task_.has_spans() && !layout_.passage_first ? 0 : 1;
    for (size_t r = 0; r < sequences.size(); ++r) {
      const TaskSequence& sequence = sequences[r];
      const int64_t first = static_cast<int64_t>(r) * seq_len_;
      is_global[first + sequence.classifier] = 1;
      if (globals_of_sequence() == 1) continue;
      const int64_t size = std::min(sequence.size[question], globals_of_sequence() - 1);
      std::fill_n(is_global.begin() + first + sequence.begin[question], size, uint8_t{1});
    }
    int64_t next = b * batch.shape.global_rows;
    const int64_t end = next + batch.shape.global_rows;
    for (const uint8_t wanted : {1, 0}) {
      for (int64_t slot = 0; slot < batch.shape.content_rows && next < end; ++slot) {
        if (is_global[slot] != wanted) continue;
        const int64_t row = ContentRow(batch.shape, b) + slot;
        batch.row_glob[row] = batch.key_glob[ContentKey(batch.shape, b) + slot] = wanted;
        batch.global_slots[next++] = static_cast<int32_t>(row);
      }
    }
  }

  void FillLabels(const TextSample& sample, int64_t b, Batch& batch) const {
    const bool has_label = task_.has_score() ? sample.score == sample.score : sample.label >= 0;
    batch.task_weights[b] = has_label ? 1.0f : 0.0f;
    batch.task_labels[b] = has_label ? sample.label : 0;
    batch.task_scores[b] = has_label ? sample.score : 0.0f;
    batch.divisors[b] = has_label ? 1.0 : 0.0;
  }

  void FillSpan(const TextSample& sample, const TaskSequence& sequence, int64_t b,
                Batch& batch) const {
    const size_t passage = layout_.passage_first ? 0 : 1;
    const int64_t first = sequence.begin[passage];
    const int64_t size = sequence.size[passage];
    for (int64_t slot = 0; slot < seq_len_; ++slot) {
      const bool is_passage = slot >= first && slot < first + size;
      SetTaskRow(slot, slot, is_passage || slot == sequence.classifier, b, batch);
    }
    // An answer that was cut off is none.
    const bool has_answer = sample.answer_begin >= 0 && sample.answer_end <= size;
    batch.task_labels[b] = has_answer ? 0 : 1;
    const int64_t begin = has_answer ? first + sample.answer_begin : sequence.classifier;
    const int64_t last = has_answer ? first + sample.answer_end - 1 : sequence.classifier;
    batch.task_starts[b] = static_cast<int32_t>(begin);
    batch.task_ends[b] = static_cast<int32_t>(last);
    batch.task_classifiers[b] = static_cast<int32_t>(sequence.classifier);
    batch.task_passages[b] = static_cast<int32_t>(first);
  }

  // A word that is cut off is not valid and has no say in the loss, the mean over all tags of a
  // step.
  void FillTags(const TextSample& sample, const TaskSequence& sequence, int64_t b,
                Batch& batch) const {
    int64_t known = 0;
    for (int64_t slot = 0; slot < seq_len_; ++slot) {
      const int64_t token = slot - sequence.begin[0];
      const bool is_text = token >= 0 && token < sequence.size[0];
      const int32_t tag = is_text ? sample.tags[static_cast<size_t>(token)] : kNoTag;
      SetTaskRow(slot, slot, tag != kNoTag, b, batch);
      batch.task_tags[b * seq_len_ + slot] = tag;
      known += tag >= 0 ? 1 : 0;
    }
    batch.task_weights[b] = static_cast<float>(known);
    batch.divisors[b] = static_cast<double>(known);
  }

  InputLayout layout_ = traits().layout;
  const TaskConfig task_ = model_.task;
};

}  // namespace

void CheckTaskHead(const TaskConfig& task, FaultList& faults) {
  const int64_t least = task.has_choices() || task.has_tags() ? 2 : 1;
  faults.Require(
      task.has_spans() || (task.num_classes >= least && task.num_classes <= 1 << 16),
      absl::StrCat("objective.num_classes is ", task.num_classes, " but must be ",
                   task.has_choices() ? "the most choices of an example, at least 2"
                   : task.has_tags()  ? "the number of classes, at least 2"
                                      : "the number of classes, at least 2, or 1 for a score"));
  faults.Require(!task.reads_all_tokens() || !task.pooler,
                 absl::StrCat("objective.pooler is for a class of a whole text, not for ",
                              EnumName(task.task), "; leave it out"));
  faults.Require(!task.has_score() || task.label_smoothing == 0,
                 "objective.label_smoothing is for classes, not for a score; leave it out");
  faults.Require(!task.has_spans() || task.num_classes == 0,
                 "objective.num_classes must be 0: span_extraction has no classes");
  faults.Require(
      !task.answer_class || (task.has_spans() && task.span_head == SpanHeadKind::kConditional),
      "objective.answer_class is for span_extraction with objective.span_head = "
      "\"conditional\"");
}

int64_t NumSpecials(absl::string_view parts) {
  int64_t specials = 0;
  ForEachPart(parts, [&](absl::string_view name, int32_t) { specials += IsText(name) ? 0 : 1; });
  return specials;
}

TaskSequence LayOut(absl::string_view parts, const VocabularyIds& ids,
                    const std::vector<const std::vector<int32_t>*>& texts, int64_t seq_len) {
  TaskSequence sequence;
  sequence.size = Shares(texts, seq_len - NumSpecials(parts));
  ForEachPart(parts, [&](absl::string_view name, int32_t segment) {
    const auto place = static_cast<int64_t>(sequence.tokens.size());
    if (IsText(name)) {
      const size_t text = sequence.begin.size();
      sequence.begin.push_back(place);
      return Append(texts[text]->data(), sequence.size[text], segment, sequence);
    }
    if (name == "<cls>") sequence.classifier = place;
    const int32_t id = name == "<cls>"   ? ids.classifier
                       : name == "<sep>" ? ids.separator
                                         : ids.begin;
    Append(&id, 1, segment, sequence);
  });
  return sequence;
}

ObjectiveOrStatus MakeFineTuning(const ObjectiveSettings& settings) {
  const int64_t seq_len = settings.sampling.seq_len;
  const int64_t least_slots = NumSpecials(settings.traits.layout.Of(2)) + 2;
  if (seq_len >= least_slots) return std::make_unique<FineTuning>(settings);
  return InvalidArgument("sampling.seq_len is ", seq_len, " but must be at least ", least_slots,
                         ": the special tokens and one of each text");
}

}  // namespace anyorder
