// Completions as server-sent events, told while they are written.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "launcher/serve/openai_json.h"
#include "launcher/serve/request_queue.h"
#include "launcher/serve/streamed_text.h"

namespace anyorder::launcher {

// Used by one thread.
class EventStream {
 public:
  EventStream(OpenAiHead head, OpenAiRequest request, std::vector<std::shared_ptr<Ticket>> tickets);

  // Waits for something to tell, `limit` at the longest. Whether there is.
  bool Await(absl::Duration limit);
  // The events that tell it.
  std::string Take() { return std::exchange(events_, {}); }
  // Whether nothing is told after those.
  bool is_done() const { return is_done_; }
  // What went wrong before anything was told, so that a plain response can say so.
  const absl::Status& early_fault() const { return early_fault_; }
  void GiveUp() {
    for (const Prompt& prompt : prompts_) prompt.ticket->GiveUp();
  }

 private:
  struct Prompt {
    std::shared_ptr<Ticket> ticket;
    std::vector<StreamedText> texts;                 // one a sample
    std::vector<std::optional<std::string>> echoes;  // what each begins with, until it is told
    bool is_finished = false;
  };
  void Tell(size_t prompt);
  void Finish(size_t prompt);
  void Fail(const absl::Status& fault);
  void AddEvent(const std::string& data);
  void AddChunk(size_t prompt, int64_t sample, const std::string& text, const std::string& reason);

  const OpenAiHead head_;
  const OpenAiRequest request_;
  const int64_t samples_;
  std::vector<Prompt> prompts_;
  std::vector<std::vector<Completion>> completions_;
  std::string events_;
  absl::Status early_fault_;
  bool has_told_ = false;
  bool is_done_ = false;
};

}  // namespace anyorder::launcher
