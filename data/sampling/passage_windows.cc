#include "data/sampling/passage_windows.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder::data {
namespace {

bool Holds(const PassageWindow& window, int64_t answer_begin, int64_t answer_end) {
  return answer_begin >= window.begin && answer_end <= window.end;
}

}  // namespace

std::vector<PassageWindow> WindowsOf(int64_t length, int64_t room, int64_t stride) {
  ANYORDER_CHECK(length > 0 && room > 0 && stride > 0) << length << ", " << room << ", " << stride;
  // A longer step would jump over tokens.
  const int64_t step = std::min(stride, room);
  std::vector<PassageWindow> windows = {{0, std::min(room, length)}};
  while (windows.back().end < length) {
    const int64_t begin = windows.back().begin + step;
    windows.push_back({begin, std::min(begin + room, length)});
  }
  return windows;
}

absl::StatusOr<std::unique_ptr<PassageWindows>> PassageWindows::Create(
    const ExampleSource& examples, const SamplingConfig& config, WindowUse use) {
  ANYORDER_CHECK(examples.task() == ExampleTask::kSpans) << EnumName(examples.task());
  std::unique_ptr<PassageWindows> windows(new PassageWindows(examples, config));
  RETURN_IF_ERROR(windows->AddAll(use));
  if (!windows->windows_.empty()) return windows;
  return FailedPrecondition("of ", examples.num_examples(),
                            " questions not one has its answer whole in a window of a sequence of "
                            "sampling.seq_len=",
                            config.seq_len, " tokens; make it larger");
}

absl::Status PassageWindows::AddAll(WindowUse use) {
  const int64_t count = examples_.num_examples();
  bool all_have_answers = true;
  for (int64_t i = 0; i < count && all_have_answers && use == WindowUse::kTraining; ++i) {
    ASSIGN_OR_RETURN(const ExampleOutline outline, examples_.Outline(i));
    all_have_answers = outline.label != 0;
  }
  const bool drops = use == WindowUse::kTraining && all_have_answers;
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const ExampleOutline outline, examples_.Outline(i));
    if (use == WindowUse::kTraining && outline.label < 0) continue;  // nothing to learn
    bool holds_answer = false;
    const int64_t room = Room(outline.lengths[0]);
    if (room < 1) {
      return InvalidArgument("sampling.seq_len=", config_.seq_len,
                             " is too short: the question of example ", i, " takes up to ",
                             config_.max_question,
                             " tokens (sampling.max_question) and special "
                             "tokens take ",
                             num_specials_,
                             ", which leaves none for the passage; "
                             "make seq_len larger or max_question smaller");
    }
    for (const PassageWindow& window :
         WindowsOf(outline.lengths[1], room, config_.passage_stride)) {
      const bool holds = Holds(window, outline.answer_begin, outline.answer_end);
      holds_answer = holds_answer || holds;
      if (!drops || holds)
        windows_.push_back({static_cast<int32_t>(i), static_cast<uint32_t>(window.begin)});
    }
    num_cut_answers_ += outline.label == 1 && !holds_answer ? 1 : 0;
    if (windows_.size() >= size_t{1} << 31) {
      return absl::FailedPreconditionError(
          "the passages are more than 2^31 windows; make sampling.passage_stride larger");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Example> PassageWindows::ReadExample(int64_t window) const {
  ANYORDER_CHECK(window >= 0 && window < num_examples())
      << "window " << window << " of " << num_examples();
  const Place place = windows_[static_cast<size_t>(window)];
  ASSIGN_OR_RETURN(Example example, examples_.ReadExample(place.example));
  std::vector<int32_t>& question = example.parts[0];
  std::vector<int32_t>& passage = example.parts[1];
  const PassageWindow range = {
      place.begin,
      std::min<int64_t>(place.begin + Room(std::ssize(question)), std::ssize(passage))};
  question.resize(std::min(question.size(), static_cast<size_t>(config_.max_question)));
  passage = std::vector<int32_t>(passage.begin() + range.begin, passage.begin() + range.end);
  example.window_of = place.example;
  example.window_begin = range.begin;
  if (example.label != 1) return example;
  example.label = Holds(range, example.answer_begin, example.answer_end) ? 1 : 0;
  for (int32_t* token : {&example.answer_begin, &example.answer_end})
    *token = example.label == 1 ? *token - static_cast<int32_t>(place.begin) : -1;
  return example;
}

}  // namespace anyorder::data
