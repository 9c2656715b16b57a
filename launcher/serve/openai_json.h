// The forms of POST /v1/completions and /v1/chat/completions: OpenAI's, as far as a model that
// writes in any order can honour them. README.md has a table of the keys.

#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "launcher/serve/chat_session.h"
#include "launcher/texts/request_json.h"

namespace anyorder::launcher {

struct OpenAiRequest {
  std::vector<TextRequest> prompts;  // completions, one a prompt, `samples` choices each
  bool is_chat = false;              // choices are messages
  bool streams = false;
  bool echoes = false;         // the prompt begins the text
  bool has_logprobs = false;   // of what is written, and of what is echoed
  bool streams_usage = false;  // a last chunk counts tokens
};

// With `chat` a conversation, to which the model's answer is asked for; else prompts. Errors:
// InvalidArgument as ParseRequest's, also for what cannot be honoured; NotFound for another
// model than `model`.
absl::StatusOr<OpenAiRequest> ParseOpenAi(const nlohmann::json& object, const std::string& model,
                                          const ModelFacts& facts, const RequestLimits& limits,
                                          const ChatSession* chat = nullptr);

// What all parts of one response begin with.
struct OpenAiHead {
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
  bool is_chat = false;
};

// `completions[p]`: those of prompt p. Log-probabilities and the counted tokens are those that
// begin in the returned text; an end token does not, nor does what a stop word has cut off. With
// the prompt's there is an entry for the end token, too: one for each token that was read or
// written.
nlohmann::ordered_json OpenAiResponse(const OpenAiHead& head, const OpenAiRequest& request,
                                      const std::vector<std::vector<Completion>>& completions);
// A part of a stream: text of choice `index`; "stop" or "length" if it was the last, else "".
nlohmann::ordered_json OpenAiChunk(const OpenAiHead& head, int64_t index, const std::string& text,
                                   bool is_first, const std::string& finish_reason);
// The chunk with the number of tokens.
nlohmann::ordered_json OpenAiUsageChunk(const OpenAiHead& head,
                                        const std::vector<std::vector<Completion>>& completions);
inline const char* FinishReason(const Completion& completion) {
  return completion.ended ? "stop" : "length";
}

// {"error": {"message", "type", "param", "code"}} for a response with that HTTP status.
nlohmann::ordered_json OpenAiError(int http_status, const absl::Status& status);

}  // namespace anyorder::launcher
