// Passages that are longer than a sequence are read in windows, as in the run_squad.py of BERT and
// XLNet: window w begins w * stride tokens into the passage, and the last one is the first that
// reaches its end. (Hugging Face's run_qa.py calls the overlap "stride".)

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/config/sampling_config.h"
#include "data/dataset/text_source.h"

namespace anyorder::data {

enum class WindowUse {
  // What can be learnt from. A window without its question's answer counts as one of a question
  // that has none (label 0), as in the released run_squad.py of XLNet and BERT and in Hugging
  // Face's run_qa.py, which keep such windows of SQuAD 1.1, too. Here they are left out where every
  // question of the dataset has an answer: without a class for "no answer" no span is right in
  // them.
  kTraining,
  kAll,  // to predict and evaluate
};

// Tokens [begin, end) of a passage.
struct PassageWindow {
  int64_t begin = 0;
  int64_t end = 0;

  friend bool operator==(const PassageWindow&, const PassageWindow&) = default;
};

// The windows of a passage of `length` tokens in sequences with room for `room` of them. All tokens
// are in some window. REQUIRES that all arguments are positive.
std::vector<PassageWindow> WindowsOf(int64_t length, int64_t room, int64_t stride);

// The windows of a dataset of kSpans as examples: parts are the question, cut to
// sampling.max_question tokens, and the window; label and answer are those of the window, and
// window_of and window_begin say where it comes from. They are numbered question by question.
class PassageWindows : public ExampleSource {
 public:
  // `examples` must outlive it. Errors: InvalidArgument if sampling.seq_len leaves no token
  // for the passage of some question; FailedPrecondition if no window is left to train on; those of
  // examples.Outline.
  static absl::StatusOr<std::unique_ptr<PassageWindows>> Create(const ExampleSource& examples,
                                                                const SamplingConfig& config,
                                                                WindowUse use);

  ExampleTask task() const override { return examples_.task(); }
  int64_t num_examples() const override { return static_cast<int64_t>(windows_.size()); }
  int64_t num_classes() const override { return examples_.num_classes(); }
  VocabularyIds vocabulary() const override { return examples_.vocabulary(); }
  absl::StatusOr<Example> ReadExample(int64_t window) const override;

  // Questions whose answer no window holds whole: training leaves them out where all have an
  // answer, and else reads them as questions without.
  int64_t num_cut_answers() const override { return num_cut_answers_; }

 private:
  // 8 bytes, because there may be many.
  struct Place {
    int32_t example;
    uint32_t begin;
  };

  PassageWindows(const ExampleSource& examples, const SamplingConfig& config)
      : examples_(examples),
        config_(config),
        num_specials_(examples.has_narrow_windows() ? 4 : config.pair_specials) {}
  absl::Status AddAll(WindowUse use);
  int64_t Room(int64_t question_tokens) const {
    return config_.seq_len - num_specials_ - std::min(question_tokens, config_.max_question);
  }

  const ExampleSource& examples_;
  const SamplingConfig config_;
  const int64_t num_specials_;  // of a sequence
  std::vector<Place> windows_;
  int64_t num_cut_answers_ = 0;
};

}  // namespace anyorder::data
