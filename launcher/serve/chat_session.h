// A conversation with a model that was trained on conversations.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "data/prep/examples/chat_template.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

// The prompt whose continuation is the content of the last message, by the model's own template, as
// plain text. REQUIRES a message. Errors: FailedPrecondition if there is no template, or its
// special tokens would be lost in a text.
absl::StatusOr<std::string> RenderPrompt(const ModelFacts& facts,
                                         const std::vector<data::ChatMessage>& messages);

class ChatSession {
 public:
  // `chat_template`: as `prep --chat-template` takes it, or else a file that holds such a text; "":
  // the model's own, which is no file. `system`: what the first message, of the role `system`,
  // says; "": there is none. Errors: FailedPrecondition if there is no template, or one that this
  // model cannot be asked with; those of ChatTemplate::Read.
  static absl::StatusOr<ChatSession> Start(const ModelFacts& facts,
                                           const std::string& chat_template,
                                           const std::string& system);

  // Replaces the conversation. The messages may have any roles.
  void SetMessages(std::vector<data::ChatMessage> messages) {
    num_system_ = 0;
    messages_ = std::move(messages);
  }
  // The next turn.
  void Ask(const std::string& words) { messages_.push_back({kUser, words}); }
  // Whose continuation is the answer to it.
  std::string Prompt() const;
  // The turn is answered, or it is not and is forgotten.
  void SetAnswer(const std::string& answer) { messages_.push_back({kAssistant, answer}); }
  void TakeBack() { messages_.pop_back(); }
  // Forgets the oldest turn that is answered, and its answer. False if there is none.
  bool ForgetOldest();
  void Reset() { messages_.resize(num_system_); }

  // What closes an answer; "" if only the end token does.
  const std::string& closing() const { return closing_; }

 private:
  // The roles of conversations as `prep --examples` reads them.
  static constexpr char kSystem[] = "system", kUser[] = "user", kAssistant[] = "assistant";

  ChatSession(data::ChatTemplate chat, const ModelFacts& facts, const std::string& system);

  data::ChatTemplate chat_;
  bool keeps_marks_;
  std::string closing_;
  size_t num_system_ = 0;  // messages that stay
  std::vector<data::ChatMessage> messages_;
};

}  // namespace anyorder::launcher
