// The JSON form of what a TextService is asked and answers. Everything that speaks JSON (`serve`,
// JSON lines of `fill`) uses it, so that a request means the same wherever it comes from.
//
// A request is one object: {"id": ..., "op": "complete", ...}; README.md has the keys of each op.
// The response is {"id": ..., ...} or {"id": ..., "error": {"code": ..., "message": ...}}.

#pragma once

#include <nlohmann/json.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "data/prep/examples/chat_template.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

// In the order of TextRequest::what and TextResult.
enum class RequestOp { kComplete, kFill, kScore, kRolling, kFacts, kTokens, kRender };
constexpr auto SpellingsOf(RequestOp) {
  return std::array{"complete", "fill", "score", "rolling", "facts", "tokens", "render"};
}

// How probable a text is that may be longer than the model reads at once (ScoreRolling of
// serve/answer.h).
struct RollingRequest {
  std::string text;
  int64_t stride = 0;  // tokens whose probability one window asks for; 0: half of what fits
  int64_t bound_samples = 128;
  uint64_t seed = 1;
  WantedCheck check_wanted = {};
};
struct FactsRequest {};
struct TokensRequest {
  std::string text;
};
// The prompt whose continuation is the content of the last message.
struct RenderRequest {
  std::vector<data::ChatMessage> messages;  // at least one
};

struct TextRequest {
  nlohmann::json id;          // a string, a number or null
  bool show_written = false;  // whether the response names each token
  std::variant<CompletionRequest, FillRequest, ScoreRequest, RollingRequest, FactsRequest,
               TokensRequest, RenderRequest>
      what;

  RequestOp op() const { return static_cast<RequestOp>(what.index()); }
  // Texts that the network computes at the same time for it.
  int64_t num_texts() const {
    const auto* complete = std::get_if<CompletionRequest>(&what);
    return complete == nullptr ? 1 : complete->samples;
  }
};

struct RollingScore {
  TextScore sum;  // of all windows: each token once
  int64_t windows = 0;
};

// What op() asked for.
using TextResult = std::variant<std::vector<Completion>, std::vector<FilledText>, TextScore,
                                RollingScore, ModelFacts, int64_t, std::string>;

// What one request may ask for at most.
struct RequestLimits {
  int64_t max_tokens = 1024;   // of a completion or a blank
  int64_t max_texts = 8;       // samples, alternatives
  int64_t max_samples = 4096;  // masks of a bound
  int64_t max_prompt = 0;      // tokens to read; 0: ModelFacts'
};

// The request's texts are to have max_prompt tokens at most: more are its answer's error.
void LimitTexts(const ModelFacts& facts, const RequestLimits& limits, TextRequest& request);

// One JSON value. InvalidArgument for what is not JSON, for text that is not UTF-8, and for values
// that are nested deeper than any request is.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text);

// Errors: InvalidArgument, naming the key (FaultyKey), its value and what is right: for unknown
// keys, wrong types, numbers out of bounds, and methods that the model cannot use.
absl::StatusOr<TextRequest> ParseRequest(const nlohmann::json& object, const ModelFacts& facts,
                                         const RequestLimits& limits);

// A line of `anyorder fill`: keys of a fill request, without `op`, that stand for what `request`, a
// FillRequest, has so far. Errors: as above.
absl::Status ParseFillLine(const nlohmann::json& object, const ModelFacts& facts,
                           TextRequest& request);

class ObjectReader;
// How tokens are written: `method`, and WriteOptions::VisitFields; none that has no effect.
// `usual_method` stands where there is no method; "": the model's first.
void ReadWriteOptions(ObjectReader& reader, const ModelFacts& facts, WriteOptions& options,
                      const std::string& usual_method = "");
// `messages`: at least one, {"role", "content"}, as OpenAI writes them: the content may be a list
// of {"type": "text", "text"}, whose texts are joined, and keys that say nothing may be there.
void ReadMessages(ObjectReader& reader, std::vector<data::ChatMessage>& messages);
// The `id` of an object that may be no request; null if it has none that could be given back.
nlohmann::json IdOf(const nlohmann::json& object);

// Without the id.
nlohmann::ordered_json ResultJson(const TextRequest& request, const TextResult& result);
// {"code": ErrorCode, "message": ...}
nlohmann::ordered_json ErrorJson(const absl::Status& status);
// invalid_request, cannot_do, too_long, not_found, unauthenticated, forbidden, queue_full,
// out_of_memory, deadline_exceeded, unavailable or internal_error.
const char* ErrorCode(const absl::Status& status);
// ResourceExhausted because too many requests wait; any other is for want of memory.
absl::Status QueueFull(absl::string_view message);
bool IsQueueFull(const absl::Status& status);
// Each token: pass, position, piece, log_prob, confidence.
nlohmann::ordered_json WrittenJson(const std::vector<ShownToken>& written);

}  // namespace anyorder::launcher
