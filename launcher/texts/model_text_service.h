// The texts of a checkpoint's model.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "core/generate/any_order/likelihood.h"
#include "core/generate/decoder.h"
#include "core/generate/sampling.h"
#include "core/objective/generation_form.h"
#include "launcher/inference/text_model.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

// A prompt as the model reads it.
struct EncodedPrompt {
  std::vector<int32_t> tokens;
  int64_t max_tokens = 0;  // that may follow
  int64_t spaceless = -1;  // Show's
};

// OutOfRange if a text has more tokens than are read.
absl::Status CheckLength(int64_t num_tokens, int64_t most);

// Whether the last `new_bytes` of a text complete one of `words`, none of which is empty.
bool HasStop(const std::string& text, size_t new_bytes, const std::vector<std::string>& words);

class ModelTextService final : public TextService {
 public:
  // Errors: those of OpenTextModel; FailedPrecondition for a run that neither writes nor scores
  // text.
  static absl::StatusOr<std::unique_ptr<ModelTextService>> Open(const TextModelOptions& options);

  const ModelFacts& facts() const override { return facts_; }
  absl::StatusOr<int64_t> CountTokens(const std::string& text) override;
  absl::StatusOr<std::vector<std::vector<Completion>>> Complete(
      const std::vector<CompletionRequest>& requests) override;
  std::unique_ptr<CompletionLanes> OpenLanes(int64_t most_texts) override;
  absl::StatusOr<std::vector<FilledText>> Fill(const FillRequest& request) override;
  absl::StatusOr<TextScore> Score(const ScoreRequest& request) override;

  // Complete's error for what is wrong with the requests, before any is answered.
  absl::Status CheckComplete(const std::vector<CompletionRequest>& requests) const {
    return Encode(requests).status();
  }
  // InvalidArgument for options that the model cannot write with.
  absl::Status CheckWrite(const WriteOptions& options) const;
  // Checks this, and what else is wrong with a request to Fill whatever its text is.
  absl::Status CheckFill(const FillRequest& request) const;

  const TextModel& model() const { return model_; }
  // FailedPrecondition if it has learned no other way to write or score.
  absl::StatusOr<WritingModel> writing_model() const;

  std::string TextOf(const std::vector<int32_t>& tokens) const {
    return model_.vocabulary.TextOf(tokens);
  }
  // `spaceless`: the position whose token loses the space that it begins with; -1: none.
  ShownToken Show(const WrittenToken& token, int64_t spaceless = -1) const;

  // What a request is written with, for those that write it: its prompt, or what is wrong with it;
  // the rules of its texts; a text of it as it is answered.
  absl::StatusOr<EncodedPrompt> Encode(const CompletionRequest& request) const;
  TokenRules RulesOf(const CompletionRequest& request, int64_t max_tokens) const;
  Completion ToCompletion(const CompletionRequest& request, const std::vector<int32_t>& prompt,
                          const Hypothesis& text, const std::vector<WrittenToken>& written) const;
  // Scores each token of the prompt given those before it if the request asks for it, for each of
  // its completions.
  absl::Status ScorePrompt(const CompletionRequest& request, const std::vector<int32_t>& prompt,
                           std::vector<Completion>* completions) const;
  // Left to right.
  absl::StatusOr<std::unique_ptr<Decoder>> OpenDecoder(const std::vector<Prompt>& prompts,
                                                       WantedCheck before_pass) const {
    return Decoder::Create(model_.config.model, model_.vocabulary.size(), model_.weights.values,
                           *left_to_right_, prompts, *model_.backend, std::move(before_pass));
  }
  // [V] pieces that stand for no text: 1.
  const std::vector<uint8_t>& non_text() const { return non_text_; }

 private:
  class CanvasTexts;
  // What Complete is asked, and answers.
  struct Call {
    const std::vector<CompletionRequest>& requests;
    std::vector<EncodedPrompt> prompts;                // of each
    std::vector<std::vector<Completion>> completions;  // of each
  };
  // Requests, of a call's, that are written together.
  using Group = std::vector<size_t>;

  explicit ModelTextService(TextModel model) : model_(std::move(model)) {}
  void FindForms(const Objective& objective);
  bool IsBounded(WriteMethod method) const;
  int64_t MostRead() const;  // ModelFacts::max_prompt
  // Whether what follows this prompt begins without the space that its first token may have.
  bool DropsSpace(const CompletionRequest& request, const std::vector<int32_t>& prompt) const;
  // The text; if it is long, and a part of it less than half of it has more than `most` tokens:
  // OutOfRange, or with `cuts` that end of it.
  absl::StatusOr<std::string> PartToEncode(const std::string& text, int64_t most, bool cuts) const;
  // How many tokens may follow the prompt: as many as the request asks for, or what fits. The
  // prompt loses its first ones if the request says so. REQUIRES: its method is one of facts().
  absl::StatusOr<int64_t> MaxTokens(const CompletionRequest& request,
                                    std::vector<int32_t>* prompt) const;
  absl::StatusOr<ScoredText> AskedText(const ScoreRequest& request, int64_t given,
                                       std::vector<int32_t> tokens) const;
  absl::StatusOr<std::vector<EncodedPrompt>> Encode(
      const std::vector<CompletionRequest>& requests) const;
  absl::StatusOr<EncodedPrompt> Check(const CompletionRequest& request,
                                      std::vector<int32_t> prompt) const;
  // The completions of a group's requests.
  absl::Status Draw(Call& call, const Group& group) const;
  absl::Status Search(Call& call, const Group& group) const;
  absl::Status WriteCanvases(Call& call, const Group& group) const;

  TextModel model_;
  ModelFacts facts_;
  std::unique_ptr<GenerationForm> left_to_right_;  // null if it has not learned to write so
  absl::StatusOr<CanvasForm> canvas_ = absl::UnknownError("");
  std::vector<uint8_t> non_text_;
  int32_t end_of_document_ = 0;
};

}  // namespace anyorder::launcher
