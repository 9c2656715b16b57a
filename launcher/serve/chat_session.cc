#include "launcher/serve/chat_session.h"

#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"

#include "core/base/status.h"
#include "core/base/whole_file.h"

namespace anyorder::launcher {
namespace {

// What is a name or a text is no file, whatever files there are in the current directory.
absl::StatusOr<std::string> TemplateText(const std::string& name_text_or_file) {
  std::error_code none;
  if (data::ChatTemplate::Read(name_text_or_file).ok() ||
      !std::filesystem::is_regular_file(name_text_or_file, none))
    return name_text_or_file;
  ASSIGN_OR_RETURN(std::string text, ReadWholeFile(name_text_or_file, kMaxSettingsBytes));
  // The line end that an editor puts behind the last line is not the template's; \n is.
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

absl::Status NoTemplate(const ModelFacts& facts, absl::string_view next) {
  return FailedPrecondition(
      facts.run_dir,
      ": no chat template is known, so the model was not trained on conversations, or its "
      "dataset is gone",
      next);
}

absl::StatusOr<data::ChatTemplate> ReadTemplate(const ModelFacts& facts, const std::string& text) {
  ASSIGN_OR_RETURN(data::ChatTemplate chat, data::ChatTemplate::Read(text));
  if (!chat.is_tokenizers() || facts.takes_template_marks) return chat;
  return FailedPrecondition(facts.run_dir,
                            ": the chat template is a tokenizer's own, and the run's is no "
                            "tokenizer.json; pass --chat-template llada, chatml or a text");
}

}  // namespace

absl::StatusOr<std::string> RenderPrompt(const ModelFacts& facts,
                                         const std::vector<data::ChatMessage>& messages) {
  if (facts.chat_template.empty()) return NoTemplate(facts, "; leave out what asks for one");
  ASSIGN_OR_RETURN(const data::ChatTemplate chat, ReadTemplate(facts, facts.chat_template));
  if (facts.takes_template_marks) {
    return FailedPrecondition(facts.run_dir,
                              ": a prompt is text, in which the special tokens of the chat "
                              "template would be text, too; use `anyorder chat`");
  }
  return data::WithoutTemplateMarks(chat.Render(messages).first);
}

absl::StatusOr<ChatSession> ChatSession::Start(const ModelFacts& facts,
                                               const std::string& chat_template,
                                               const std::string& system) {
  std::string text = facts.chat_template;
  if (!chat_template.empty()) {
    ASSIGN_OR_RETURN(text, TemplateText(chat_template));
  } else if (text.empty()) {
    return NoTemplate(facts,
                      "; pass --chat-template llada, chatml or what 'prep --chat-template' got");
  }
  ASSIGN_OR_RETURN(data::ChatTemplate chat, ReadTemplate(facts, text));
  return ChatSession(std::move(chat), facts, system);
}

ChatSession::ChatSession(data::ChatTemplate chat, const ModelFacts& facts,
                         const std::string& system)
    : chat_(std::move(chat)), keeps_marks_(facts.takes_template_marks) {
  if (!system.empty()) messages_.push_back({kSystem, system});
  num_system_ = messages_.size();
  const data::ChatMessage empty_answer[] = {{kAssistant, ""}};
  const std::string after = chat_.is_tokenizers()
                                ? facts.own_closing
                                : data::WithoutTemplateMarks(chat_.Render(empty_answer).second);
  closing_ = std::string(absl::StripAsciiWhitespace(after));
}

std::string ChatSession::Prompt() const {
  std::vector<data::ChatMessage> turns;
  for (const data::ChatMessage& message : messages_)
    turns.push_back(
        {data::WithoutTemplateMarks(message.role), data::WithoutTemplateMarks(message.content)});
  turns.push_back({kAssistant, ""});
  const std::string prompt = chat_.Render(turns).first;
  return keeps_marks_ ? prompt : data::WithoutTemplateMarks(prompt);
}

bool ChatSession::ForgetOldest() {
  if (messages_.size() < num_system_ + 3) return false;
  const auto oldest = messages_.begin() + static_cast<int64_t>(num_system_);
  messages_.erase(oldest, oldest + 2);
  return true;
}

}  // namespace anyorder::launcher
