// How a conversation becomes one text: what a chat model reads around its messages.
//
// A template is a text with {role} and {content}, once each, written once for every message; what
// stands before {message} is written once, before all of them.

#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace anyorder::data {

struct ChatMessage {
  std::string role;
  std::string content;
};

// Text of a template stands between two of these, so that special tokens are looked for in it and
// not in what people wrote. No text of an example has any.
inline constexpr char kTemplateMark = '\0';
// Without them, for tokenizers that know no special token in a text.
std::string WithoutTemplateMarks(std::string_view text);

class ChatTemplate {
 public:
  // "llada": <|startoftext|>, then <|start_header_id|>ROLE<|end_header_id|>, two line ends, CONTENT
  // and <|eot_id|>. "chatml": <|im_start|>ROLE, a line end,
  // CONTENT<|im_end|> and a line end (Qwen, Dream), without their default system message.
  // "tokenizer": the program that a tokenizer's directory has, which tokenize_texts.py runs. Else a
  // template itself, in which \n, \t and \\ stand for a line end, a tab and a backslash. Errors:
  // InvalidArgument for any other text.
  static absl::StatusOr<ChatTemplate> Read(const std::string& name_or_text);

  // The prompt, which ends where the last message's content begins, and the answer, that content
  // and what closes it; both with kTemplateMark. The prompt begins behind the first `told`
  // messages, which an earlier call has written. REQUIRES told < messages.size().
  // With the tokenizer's own template both are what tokenize_texts.py takes in their place.
  std::pair<std::string, std::string> Render(absl::Span<const ChatMessage> messages,
                                             size_t told = 0) const;

  bool is_tokenizers() const { return is_tokenizers_; }

 private:
  bool is_tokenizers_ = false;
  std::string begin_;        // of the conversation
  std::string before_role_;  // of each message
  std::string before_content_;
  std::string after_content_;
};

}  // namespace anyorder::data
