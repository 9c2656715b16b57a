#include "data/prep/examples/chat_template.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/base/check.h"
#include "core/base/json_members.h"
#include "core/base/status.h"

namespace anyorder::data {
namespace {

constexpr std::pair<const char*, const char*> kKnownTemplates[] = {
    {"llada",
     "<|startoftext|>{message}<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>"},
    {"chatml", "<|im_start|>{role}\n{content}<|im_end|>\n"}};

constexpr char kTokenizersOwn[] = "tokenizer";
constexpr std::string_view kMessage = "{message}";
constexpr std::string_view kRole = "{role}";
constexpr std::string_view kContent = "{content}";

bool StandsOnce(std::string_view text, std::string_view part) {
  const size_t first = text.find(part);
  return first != text.npos && text.find(part, first + part.size()) == text.npos;
}

std::string Marked(const std::string& text) {
  return text.empty()
             ? ""
             : absl::StrCat(std::string(1, kTemplateMark), text, std::string(1, kTemplateMark));
}

// What tokenize_texts.py reads behind two marks.
std::string Request(absl::Span<const ChatMessage> messages, size_t told, bool answer) {
  nlohmann::json list = nlohmann::json::array();
  for (const ChatMessage& message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  return std::string(2, kTemplateMark) +
         DumpJson(
             nlohmann::json{{"messages", std::move(list)}, {"told", told}, {"answer", answer}});
}

}  // namespace

std::string WithoutTemplateMarks(std::string_view text) {
  std::string plain(text);
  std::erase(plain, kTemplateMark);
  return plain;
}

absl::StatusOr<ChatTemplate> ChatTemplate::Read(const std::string& name_or_text) {
  ChatTemplate chat;
  chat.is_tokenizers_ = name_or_text == kTokenizersOwn;
  if (chat.is_tokenizers_) return chat;
  const auto known = std::find_if(std::begin(kKnownTemplates), std::end(kKnownTemplates),
                                  [&](const auto& one) { return name_or_text == one.first; });
  const std::string text =
      known != std::end(kKnownTemplates)
          ? known->second
          : absl::StrReplaceAll(name_or_text, {{"\\n", "\n"}, {"\\t", "\t"}, {"\\\\", "\\"}});
  const size_t message = text.find(kMessage);
  const size_t first = message == text.npos ? 0 : message + kMessage.size();
  const size_t role = text.find(kRole);
  const size_t content = text.find(kContent);
  if (!StandsOnce(text, kRole) || !StandsOnce(text, kContent) || role < first || content < role ||
      text.find(kMessage, first) != text.npos) {
    return InvalidArgument("--chat-template '", name_or_text,
                           "' is neither llada, chatml or tokenizer nor a text with {role} and, "
                           "behind it, {content}, such as "
                           "'<s>{message}### {role}:\\n{content}\\n\\n'");
  }
  if (message != text.npos) chat.begin_ = text.substr(0, message);
  chat.before_role_ = text.substr(first, role - first);
  chat.before_content_ = text.substr(role + kRole.size(), content - role - kRole.size());
  chat.after_content_ = text.substr(content + kContent.size());
  return chat;
}

std::pair<std::string, std::string> ChatTemplate::Render(absl::Span<const ChatMessage> messages,
                                                         size_t told) const {
  ANYORDER_CHECK(told < messages.size()) << told << " of " << messages.size() << " messages";
  if (is_tokenizers_) return {Request(messages, told, false), Request(messages, told, true)};
  std::string prompt = told > 0 ? "" : Marked(begin_);
  for (const ChatMessage& message : messages.subspan(told)) {
    absl::StrAppend(&prompt, Marked(before_role_), message.role, Marked(before_content_));
    if (&message != &messages.back())
      absl::StrAppend(&prompt, message.content, Marked(after_content_));
  }
  return {prompt, absl::StrCat(messages.back().content, Marked(after_content_))};
}

}  // namespace anyorder::data
