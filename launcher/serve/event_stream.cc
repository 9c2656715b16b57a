#include "launcher/serve/event_stream.h"

#include "absl/strings/str_cat.h"

#include "core/base/json_members.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "launcher/serve/answer.h"
#include "launcher/serve/http_guard.h"

namespace anyorder::launcher {
namespace {

const CompletionRequest& CompletionOf(const TextRequest& request) {
  return std::get<CompletionRequest>(request.what);
}

}  // namespace

EventStream::EventStream(OpenAiHead head, OpenAiRequest request,
                         std::vector<std::shared_ptr<Ticket>> tickets)
    : head_(std::move(head)),
      request_(std::move(request)),
      samples_(CompletionOf(request_.prompts.front()).samples),
      completions_(tickets.size()) {
  for (std::shared_ptr<Ticket>& ticket : tickets) {
    const CompletionRequest& asked = CompletionOf(ticket->request());
    const StreamedText text(asked.write.method == WriteMethod::kLeftToRight, asked.stop);
    const std::string echo = request_.echoes ? asked.prompt : "";
    prompts_.push_back({std::move(ticket), std::vector<StreamedText>(samples_, text),
                        std::vector<std::optional<std::string>>(samples_, echo)});
  }
}

bool EventStream::Await(absl::Duration limit) {
  bool is_waiting = events_.empty();
  bool are_finished = true;
  for (size_t p = 0; p < prompts_.size() && !is_done_; ++p) {
    if (prompts_[p].is_finished) continue;
    // Only the first that is not finished is waited for.
    const bool has_answer = prompts_[p].ticket->Await(is_waiting ? limit : absl::ZeroDuration());
    is_waiting = false;
    Tell(p);
    if (has_answer) {
      Finish(p);
    } else if (MonotonicNow() > prompts_[p].ticket->deadline()) {
      Fail(LateError());
    }
    are_finished &= prompts_[p].is_finished;
  }
  if (!is_done_ && are_finished) {
    if (request_.streams_usage) AddEvent(DumpJson(OpenAiUsageChunk(head_, completions_)));
    AddEvent("[DONE]");
    is_done_ = true;
  }
  return !events_.empty();
}

void EventStream::AddEvent(const std::string& data) {
  absl::StrAppend(&events_, "data: ", data, "\n\n");
}

void EventStream::AddChunk(size_t prompt, int64_t sample, const std::string& text,
                           const std::string& reason) {
  const auto echo = std::exchange(prompts_[prompt].echoes[sample], std::nullopt);
  const int64_t index = static_cast<int64_t>(prompt) * samples_ + sample;
  AddEvent(DumpJson(OpenAiChunk(head_, index, echo.value_or("") + text, echo.has_value(), reason)));
  has_told_ = true;
}

void EventStream::Tell(size_t prompt) {
  for (const SampledToken& token : prompts_[prompt].ticket->TakeTokens()) {
    const std::string text = prompts_[prompt].texts[token.sample].Add(token.token.piece);
    if (!text.empty()) AddChunk(prompt, token.sample, text, "");
  }
}

void EventStream::Finish(size_t prompt) {
  Prompt& one = prompts_[prompt];
  const absl::StatusOr<TextResult>& answer = one.ticket->answer();
  if (!answer.ok()) return Fail(answer.status());
  one.is_finished = true;
  completions_[prompt] = std::get<std::vector<Completion>>(*answer);
  for (size_t s = 0; s < completions_[prompt].size() && s < one.texts.size(); ++s) {
    const Completion& completion = completions_[prompt][s];
    AddChunk(prompt, static_cast<int64_t>(s), one.texts[s].Finish(completion.text),
             FinishReason(completion));
  }
}

void EventStream::Fail(const absl::Status& fault) {
  if (!has_told_) early_fault_ = fault;
  AddEvent(DumpJson(OpenAiError(HttpStatus(fault), fault)));
  GiveUp();
  is_done_ = true;
}

}  // namespace anyorder::launcher
