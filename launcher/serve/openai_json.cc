#include "launcher/serve/openai_json.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/counted.h"
#include "core/base/status.h"
#include "launcher/texts/object_reader.h"

namespace anyorder::launcher {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kOpenAiMaxTokens = 16;  // OpenAI's
constexpr size_t kMostOpenAiStops = 4;    // OpenAI's

// Keys that are no error as long as they ask for nothing.
void RefuseUnlessNeutral(ObjectReader& reader) {
  const auto require = [&reader](const char* key, bool (*is_neutral)(const nlohmann::json&),
                                 const char* why) {
    const nlohmann::json* const value = reader.Find(key);
    reader.DoNotOffer(key);
    if (value != nullptr && !is_neutral(*value)) reader.AddFault(key, why);
  };
  const auto is_zero = [](const nlohmann::json& value) { return value == 0; };
  const auto is_empty = [](const nlohmann::json& value) { return value.empty(); };
  require("frequency_penalty", is_zero, "is not supported; leave it out or pass 0");
  require("presence_penalty", is_zero, "is not supported; leave it out or pass 0");
  require("logit_bias", is_empty, "is not supported; leave it out");
  require(
      "suffix", [](const nlohmann::json& value) { return value == ""; },
      "is not supported here; POST /v1/infill fills the blanks of a text");
  reader.Find("user");  // tells the server nothing that it uses
}

void ReadPrompts(ObjectReader& reader, const RequestLimits& limits,
                 std::vector<std::string>& prompts) {
  const nlohmann::json* const found = reader.Find("prompt");
  if (found == nullptr) return reader.AddFault("prompt", "is missing");
  if (found->is_string()) {
    reader.RequiredText("prompt", prompts.emplace_back());
    return;
  }
  if (found->is_array() && !found->empty() && !found->front().is_string())
    return reader.AddFault("prompt", "holds token ids; send a text or a list of texts");
  reader.Texts("prompt", prompts, static_cast<size_t>(limits.max_texts));
  if (prompts.empty()) reader.AddFault("prompt", "is an empty list");
}

void ReadLogprobs(ObjectReader& reader, bool& has_logprobs) {
  const nlohmann::json* const found = reader.Find("logprobs");
  if (found == nullptr || *found == false) return;
  has_logprobs = true;
  if (*found != 0 && *found != 1 && *found != true)
    reader.AddFault("logprobs", "may be 0 or 1: only that of the token that is written is known");
}

void ReadStream(ObjectReader& reader, OpenAiRequest& request) {
  reader.Read("stream", request.streams);
  const nlohmann::json* const options = reader.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return reader.AddFault("stream_options", "must be an object");
  ObjectReader inner(*options);
  inner.Read("include_usage", request.streams_usage);
  if (const absl::Status end = inner.End(); !end.ok())
    reader.AddFault("stream_options", absl::StrCat("has a fault: ", end.message()));
}

// What the request asks for at once must be consistent.
void CheckTogether(ObjectReader& reader, const OpenAiRequest& request, const RequestLimits& limits,
                   int64_t samples) {
  const auto texts = static_cast<int64_t>(request.prompts.size()) * samples;
  if (texts > limits.max_texts)
    reader.AddFault(
        "n", absl::StrCat("is ", samples, " for ", Counted(std::ssize(request.prompts), "prompt"),
                          ", but at most ", Counted(limits.max_texts, "text"),
                          " may be written at once"));
  if (request.has_logprobs && request.echoes)
    reader.AddFault("logprobs", "is not supported with 'echo'; POST /v1/score scores a text");
  if (request.has_logprobs && request.streams)
    reader.AddFault("logprobs", "is not supported with 'stream'");
}

// The tokens that begin in the completion's text, in its order: neither the end token nor what
// stands behind it or from a stop word on.
std::vector<ShownToken> TokensOfText(const Completion& completion) {
  std::vector<ShownToken> tokens = completion.written;
  std::sort(tokens.begin(), tokens.end(),
            [](const auto& a, const auto& b) { return a.position < b.position; });
  std::string whole;
  for (const ShownToken& token : tokens) whole += token.piece;
  // A text without a prompt before it loses the space that it begins with.
  if (!absl::StartsWith(whole, completion.text) && absl::StartsWith(whole, " "))
    tokens.front().piece.erase(0, 1);
  size_t count = 0;
  for (size_t bytes = 0; count < tokens.size() && bytes < completion.text.size(); ++count)
    bytes += tokens[count].piece.size();
  tokens.resize(count);
  return tokens;
}

OrderedJson LogprobsJson(const Completion& completion, const std::string& prompt) {
  OrderedJson pieces = OrderedJson::array(), log_probs = OrderedJson::array(),
              offsets = OrderedJson::array();
  size_t offset = prompt.size();
  for (const ShownToken& token : TokensOfText(completion)) {
    pieces.push_back(token.piece);
    log_probs.push_back(token.log_prob);
    offsets.push_back(offset);
    offset += token.piece.size();
  }
  return {{"tokens", pieces},
          {"token_logprobs", log_probs},
          {"top_logprobs", nullptr},
          {"text_offset", offsets}};
}

OrderedJson UsageJson(const std::vector<std::vector<Completion>>& completions) {
  int64_t prompt_tokens = 0, written = 0;
  for (const std::vector<Completion>& of_prompt : completions) {
    if (!of_prompt.empty())
      prompt_tokens += static_cast<int64_t>(of_prompt.front().prompt_pieces.size());
    for (const Completion& completion : of_prompt) written += std::ssize(TokensOfText(completion));
  }
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", written},
          {"total_tokens", prompt_tokens + written}};
}

OrderedJson BeginResponse(const OpenAiHead& head) {
  return {{"id", head.id},
          {"object", "text_completion"},
          {"created", head.created},
          {"model", head.model},
          {"choices", OrderedJson::array()}};
}

OrderedJson ChoiceJson(int64_t index, const std::string& text, OrderedJson logprobs,
                       const std::string& finish_reason) {
  return {
      {"text", text},
      {"index", index},
      {"logprobs", std::move(logprobs)},
      {"finish_reason", finish_reason.empty() ? OrderedJson(nullptr) : OrderedJson(finish_reason)}};
}

}  // namespace

absl::StatusOr<OpenAiRequest> ParseOpenAi(const nlohmann::json& object, const std::string& model,
                                          const ModelFacts& facts, const RequestLimits& limits) {
  if (!object.is_object()) return InvalidArgument("the body is an object, {\"prompt\": ...}");
  ObjectReader reader(object);
  OpenAiRequest request;
  std::string asked_model = model;
  std::vector<std::string> prompts;
  CompletionRequest completion;
  completion.max_tokens = std::min(kOpenAiMaxTokens, limits.max_tokens);
  reader.Read("model", asked_model);
  ReadPrompts(reader, limits, prompts);
  reader.Read("max_tokens", completion.max_tokens, Between(1, limits.max_tokens));
  reader.Read("n", completion.samples, Between(1, limits.max_texts));
  int64_t best_of = completion.samples;
  reader.Read("best_of", best_of, Between(1, limits.max_texts));
  reader.DoNotOffer("best_of");
  if (best_of != completion.samples)
    reader.AddFault("best_of", "is not supported; leave it out or pass what 'n' is");
  reader.Texts("stop", completion.stop, kMostOpenAiStops);
  reader.Read("echo", request.echoes);
  ReadLogprobs(reader, request.has_logprobs);
  ReadStream(reader, request);
  RefuseUnlessNeutral(reader);
  ReadWriteOptions(reader, facts, completion.write);
  // OpenAI's default is another text each time.
  if (!reader.Has("seed")) completion.write.draw.seed = std::random_device()();
  for (std::string& prompt : prompts) {
    completion.prompt = std::move(prompt);
    request.prompts.emplace_back().what = completion;
    // Draws of its own, also of a prompt that comes twice.
    completion.first_stream += static_cast<uint64_t>(completion.samples);
  }
  CheckTogether(reader, request, limits, completion.samples);
  RETURN_IF_ERROR(reader.End());
  if (asked_model != model)
    return NotFound("'model' is '", asked_model.substr(0, 80), "' but this server has '", model,
                    "'");
  return request;
}

OrderedJson OpenAiResponse(const OpenAiHead& head, const OpenAiRequest& request,
                           const std::vector<std::vector<Completion>>& completions) {
  OrderedJson response = BeginResponse(head);
  int64_t index = 0;
  for (size_t p = 0; p < completions.size(); ++p) {
    const std::string& prompt = std::get<CompletionRequest>(request.prompts[p].what).prompt;
    for (const Completion& completion : completions[p]) {
      OrderedJson logprobs =
          request.has_logprobs ? LogprobsJson(completion, prompt) : OrderedJson(nullptr);
      const std::string text = absl::StrCat(request.echoes ? prompt : "", completion.text);
      response["choices"].push_back(
          ChoiceJson(index++, text, std::move(logprobs), FinishReason(completion)));
    }
  }
  response["usage"] = UsageJson(completions);
  return response;
}

OrderedJson OpenAiChunk(const OpenAiHead& head, int64_t index, const std::string& text,
                        const std::string& finish_reason) {
  OrderedJson chunk = BeginResponse(head);
  chunk["choices"].push_back(ChoiceJson(index, text, nullptr, finish_reason));
  return chunk;
}

OrderedJson OpenAiUsageChunk(const OpenAiHead& head,
                             const std::vector<std::vector<Completion>>& completions) {
  OrderedJson chunk = BeginResponse(head);
  chunk["usage"] = UsageJson(completions);
  return chunk;
}

const char* FinishReason(const Completion& completion) {
  return completion.ended ? "stop" : "length";
}

OrderedJson OpenAiError(int http_status, const absl::Status& status) {
  const std::string key = FaultyKey(status);
  const char* const type = http_status == 429   ? "rate_limit_error"
                           : http_status >= 500 ? "server_error"
                           : http_status == 401 ? "authentication_error"
                                                : "invalid_request_error";
  return {{"error",
           {{"message", std::string(status.message())},
            {"type", type},
            {"param", key.empty() ? OrderedJson(nullptr) : OrderedJson(key)},
            {"code", ErrorCode(status)}}}};
}

}  // namespace anyorder::launcher
