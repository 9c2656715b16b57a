// The texts of a checkpoint's model.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/generate/any_order/likelihood.h"
#include "core/generate/decoder.h"
#include "core/generate/sampling.h"
#include "core/objective/generation_form.h"
#include "launcher/inference/text_model.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

class ModelTextService final : public TextService {
 public:
  // Errors: those of OpenTextModel; FailedPrecondition for a run that neither writes nor scores
  // text.
  static absl::StatusOr<std::unique_ptr<ModelTextService>> Open(const TextModelOptions& options);

  const ModelFacts& facts() const override { return facts_; }
  absl::StatusOr<int64_t> CountTokens(const std::string& text) override;
  absl::StatusOr<std::vector<std::vector<Completion>>> Complete(
      const std::vector<CompletionRequest>& requests) override;
  absl::StatusOr<std::vector<std::vector<FilledText>>> Fill(
      const std::vector<FillRequest>& requests) override;
  absl::StatusOr<std::vector<TextScore>> Score(const std::vector<ScoreRequest>& requests) override;

  // Complete's error for what is wrong with the requests, before any is answered.
  absl::Status CheckComplete(const std::vector<CompletionRequest>& requests) const {
    return GroupsOf(requests).status();
  }
  // How many tokens may follow the prompt: as many as the request asks for, or what fits. The
  // prompt loses its first ones if the request says so. REQUIRES: its method is one of facts().
  absl::StatusOr<int64_t> MaxTokens(const CompletionRequest& request,
                                    std::vector<int32_t>* prompt) const;
  // InvalidArgument for options that the model cannot write with.
  absl::Status CheckWrite(const WriteOptions& options) const;
  // Checks this, and what else is wrong with a request to Fill whatever its text is.
  absl::Status CheckFill(const FillRequest& request) const;

  const TextModel& model() const { return model_; }
  // FailedPrecondition if it has learned no other way to write or score.
  absl::StatusOr<WritingModel> writing_model() const;

  absl::StatusOr<std::vector<std::vector<int32_t>>> Encode(const std::vector<std::string>& texts,
                                                           absl::string_view doing) const;
  std::string TextOf(const std::vector<int32_t>& tokens) const;
  ShownToken Show(const WrittenToken& token) const;
  // [V] pieces that stand for no text: 1.
  const std::vector<uint8_t>& non_text() const { return non_text_; }

 private:
  // Requests of equal options, `members` of all, whose prompts are `prompts`.
  struct Group {
    std::vector<size_t> members;
    std::vector<std::vector<int32_t>> prompts;
    int64_t max_tokens = 0;
  };

  explicit ModelTextService(TextModel model) : model_(std::move(model)) {}
  void FindForms(const Objective& objective);
  bool IsBounded(WriteMethod method) const;
  absl::StatusOr<ScoredText> AskedText(const ScoreRequest& request, int64_t given,
                                       std::vector<int32_t> tokens) const;
  absl::StatusOr<std::vector<Group>> GroupsOf(const std::vector<CompletionRequest>& requests) const;
  // Left to right, each prompt of the group with so many lanes.
  absl::StatusOr<std::unique_ptr<Decoder>> OpenDecoder(const Group& group, int64_t lanes) const;
  // What requests that are alike may be written with.
  TokenRules RulesOf(const CompletionRequest& alike, int64_t max_tokens) const;
  absl::Status Search(const std::vector<CompletionRequest>& requests, const Group& group,
                      std::vector<std::vector<Completion>>* completions);
  absl::Status Sample(const std::vector<CompletionRequest>& requests, const Group& group,
                      std::vector<std::vector<Completion>>* completions);
  // Samples [first, first + samples) of each prompt of the group.
  absl::Status SampleSome(const std::vector<CompletionRequest>& requests, const Group& group,
                          int64_t first, int64_t samples,
                          std::vector<std::vector<Completion>>* completions);
  absl::Status CompleteCanvases(const std::vector<CompletionRequest>& requests, const Group& group,
                                std::vector<std::vector<Completion>>* completions);
  Completion ToCompletion(const CompletionRequest& request, const std::vector<int32_t>& prompt,
                          const Hypothesis& text, const std::vector<WrittenToken>& written) const;

  TextModel model_;
  ModelFacts facts_;
  std::unique_ptr<GenerationForm> left_to_right_;  // null if it has not learned to write so
  absl::StatusOr<CanvasForm> canvas_ = absl::UnknownError("");
  std::vector<uint8_t> non_text_;
  int32_t end_of_document_ = 0;
};

}  // namespace anyorder::launcher
