#include "launcher/serve/openai_json.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/counted.h"
#include "core/base/json_members.h"
#include "core/base/status.h"
#include "data/prep/cleaning.h"
#include "launcher/texts/object_reader.h"

namespace anyorder::launcher {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kOpenAiMaxTokens = 16;  // OpenAI's, of completions
constexpr int64_t kMostLikeliest = 5;     // OpenAI's
constexpr size_t kMostOpenAiStops = 16;   // evaluations have more than OpenAI's 4

// Keys that are no error as long as they ask for nothing: by one of these values, of which messages
// name the first. What has "*" tells the server nothing that it uses.
constexpr char kNeutral[] =
    "frequency_penalty 0 0.0;presence_penalty 0 0.0;logit_bias {} [];num_beams 1;top_logprobs 0;"
    "response_format {\"type\":\"text\"};modalities [\"text\"];store false;tools [];functions [];"
    "tool_choice \"none\" \"auto\";function_call \"none\" \"auto\";parallel_tool_calls true false;"
    "audio;prediction;web_search_options;reasoning_effort \"none\";verbosity \"medium\";"
    "service_tier \"auto\" \"default\";user *;metadata *;safety_identifier *;prompt_cache_key *";

void RefuseUnlessNeutral(ObjectReader& reader) {
  for (const absl::string_view entry : absl::StrSplit(kNeutral, ';')) {
    std::vector<std::string> values = absl::StrSplit(entry, ' ');
    const std::string key = std::move(values[0]);
    values.erase(values.begin());
    const nlohmann::json* const value = reader.Find(key);
    if (!values.empty() && values[0] == "*") continue;
    reader.DoNotOffer(key);
    if (value == nullptr || std::count(values.begin(), values.end(), DumpJson(*value)) > 0)
      continue;
    reader.AddFault(
        key, absl::StrCat("is not supported; leave it out", values.empty() ? "" : " or pass ",
                          values.empty() ? "" : values[0]));
  }
}

// The same of one key: by no value but `neutral`. `elsewhere`: where to ask for what it means.
void RefuseUnless(ObjectReader& reader, const std::string& key, const nlohmann::json& neutral,
                  const char* elsewhere) {
  const nlohmann::json* const value = reader.Find(key);
  reader.DoNotOffer(key);
  if (value != nullptr && *value != neutral)
    reader.AddFault(key, absl::StrCat("is not supported here; ", elsewhere));
}

// With what other servers take for "any" and "all", as this one has it.
nlohmann::json WithOwnValues(nlohmann::json object) {
  const auto replace = [&object](const char* key, int64_t from, const nlohmann::json& to) {
    if (object.contains(key) && object[key] == from) object[key] = to;
  };
  replace("seed", -1, nullptr);
  replace("top_k", -1, 0);
  replace("top_p", 0, std::numeric_limits<double>::min());  // the likeliest token alone
  return object;
}

// The texts, or the tokens, of one prompt or several.
void ReadPrompts(ObjectReader& reader, const RequestLimits& limits, int64_t vocab_size,
                 std::vector<CompletionRequest>& prompts) {
  const nlohmann::json* const found = reader.Find("prompt");
  if (found == nullptr) return reader.AddFault("prompt", "is missing");
  const bool is_one = !found->is_array() || (!found->empty() && found->front().is_number());
  const nlohmann::json list = is_one ? nlohmann::json::array({*found}) : *found;
  if (list.empty()) return reader.AddFault("prompt", "is an empty list");
  if (std::ssize(list) > limits.max_texts)
    return reader.AddFault("prompt", absl::StrCat("has ", Counted(std::ssize(list), "text"),
                                                  " but may have ", limits.max_texts));
  for (const nlohmann::json& one : list) {
    CompletionRequest& prompt = prompts.emplace_back();
    if (one.is_string()) prompt.prompt = one.get<std::string>();
    bool is_right =
        one.is_array() || (one.is_string() && prompt.prompt.find('\0') == std::string::npos);
    if (one.is_array()) {
      prompt.prompt_tokens.emplace();
      for (const nlohmann::json& token : one) {
        const int64_t id = token.is_number_integer() ? token.get<int64_t>() : -1;
        is_right &= id >= 0 && id < vocab_size;
        prompt.prompt_tokens->push_back(static_cast<int32_t>(id));
      }
    }
    if (!is_right)
      return reader.AddFault("prompt",
                             absl::StrCat("must be a text without NUL, a list of tokens, 0 to ",
                                          vocab_size - 1, ", or a list of these"));
  }
}

void ReadLogprobs(ObjectReader& reader, OpenAiRequest& request, CompletionRequest& completion) {
  const nlohmann::json* const found = reader.Find("logprobs");
  if (found == nullptr || *found == false) return;
  request.has_logprobs = true;
  completion.scores_prompt = request.echoes;
  if (*found != true) reader.Read("logprobs", completion.likeliest, Between(0, kMostLikeliest));
}

void ReadStream(ObjectReader& reader, OpenAiRequest& request) {
  reader.Read("stream", request.streams);
  const nlohmann::json* const options = reader.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return reader.AddFault("stream_options", "must be an object");
  ObjectReader inner(*options);
  inner.Read("include_usage", request.streams_usage);
  inner.Find("include_obfuscation");  // text that is to be ignored
  if (const absl::Status end = inner.End(); !end.ok())
    reader.AddFault("stream_options", absl::StrCat("has a fault: ", end.message()));
}

// What the request asks for at once must be consistent.
void CheckTogether(ObjectReader& reader, const OpenAiRequest& request, const RequestLimits& limits,
                   const CompletionRequest& alike) {
  const int64_t samples = alike.samples;
  const auto texts = static_cast<int64_t>(request.prompts.size()) * samples;
  if (texts > limits.max_texts)
    reader.AddFault(
        "n", absl::StrCat("is ", samples, " for ", Counted(std::ssize(request.prompts), "prompt"),
                          ", but at most ", Counted(limits.max_texts, "text"),
                          " may be written at once"));
  if (alike.likeliest > 1 && !alike.only_prompt && alike.write.method != WriteMethod::kLeftToRight)
    reader.AddFault("logprobs",
                    "may be 0 or 1 unless the method is left-to-right: only that of "
                    "the token that is written is known");
  if (request.has_logprobs && request.streams)
    reader.AddFault("logprobs", "is not supported with 'stream'");
}

// The tokens that begin in the completion's text, in its order: neither the end token nor what
// stands behind it or from a stop word on. `with_end`: the end token, too.
std::vector<ShownToken> TokensOfText(const Completion& completion, bool with_end = false) {
  std::vector<ShownToken> tokens = completion.written;
  std::ranges::sort(tokens, {}, &ShownToken::position);
  std::string whole;
  for (const ShownToken& token : tokens) whole += token.piece;
  // The text may lack the space that it begins with, and then be empty.
  const bool is_space = completion.text.empty() && !completion.ended;
  if ((is_space || !absl::StartsWith(whole, completion.text)) && absl::StartsWith(whole, " "))
    tokens.front().piece.erase(0, 1);
  size_t count = 0;
  for (size_t bytes = 0; count < tokens.size() && bytes < completion.text.size(); ++count)
    bytes += tokens[count].piece.size();
  if (with_end && count < tokens.size() && tokens[count].piece.empty()) ++count;
  tokens.resize(count);
  return tokens;
}

// As clients read it: what is not UTF-8 is U+FFFD.
std::string AsRead(const std::string& text) {
  return TryParseJson<nlohmann::json>(DumpJson(OrderedJson(text))).get<std::string>();
}

// Of the prompt's tokens, as it was read: cleaned, but with the spaces at its ends.
std::vector<std::string> PiecesOfPrompt(const CompletionRequest& asked,
                                        std::vector<std::string> pieces) {
  if (pieces.empty() || asked.prompt.empty()) return pieces;
  if (asked.prompt[0] != ' ' && pieces[0].starts_with(' ')) pieces[0].erase(0, 1);
  if (pieces.back().empty() || data::SpaceAtEnd(absl::StrJoin(pieces, "")).empty())
    pieces.back() += data::SpaceAtEnd(asked.prompt);
  return pieces;
}

// Of a token, here called `piece`, and of those that are as likely; null if those are not known.
OrderedJson TopLogprobs(const ShownToken& token, const std::string& piece) {
  if (token.likeliest.empty()) return nullptr;
  OrderedJson top = OrderedJson::object();
  // Of tokens with one text the likelier is told.
  const auto add = [&top](const std::string& name, double log_prob) {
    const auto [entry, is_new] = top.emplace(AsRead(name), log_prob);
    if (!is_new) *entry = std::max(entry->get<double>(), log_prob);
  };
  for (const ShownAlternative& one : token.likeliest)
    add(one.token == token.token ? piece : one.piece, one.log_prob);
  add(piece, token.log_prob);
  return top;
}

// With an echo also of the prompt's `parts`.
OrderedJson LogprobsJson(const Completion& completion, const std::string& prompt,
                         const std::vector<std::string>& parts, bool echoes) {
  OrderedJson pieces = OrderedJson::array(), log_probs = pieces, tops = pieces, offsets = pieces;
  std::string begun = echoes ? "" : prompt;  // what was not counted yet
  int64_t characters = 0;
  const auto add = [&](const ShownToken& token, const std::string& piece) {
    // The piece may go on with a character, in which it then begins.
    const bool goes_on = piece.empty() || (piece[0] & 0xC0) == 0x80;
    const size_t complete = goes_on ? data::CompleteBytes(begun) : begun.size();
    for (const char c : AsRead(begun.substr(0, complete))) characters += (c & 0xC0) != 0x80;
    begun.erase(0, complete);
    begun += piece;
    pieces.push_back(piece);
    log_probs.push_back(token.log_prob);
    tops.push_back(TopLogprobs(token, piece));
    offsets.push_back(characters);
  };
  for (size_t i = 0; echoes && i < completion.prompt.size(); ++i)
    add(completion.prompt[i], parts[i]);
  for (const ShownToken& token : TokensOfText(completion, echoes)) add(token, token.piece);
  const bool has_tops =
      std::any_of(tops.begin(), tops.end(), [](auto& top) { return !top.is_null(); });
  return {{"tokens", pieces},
          {"token_logprobs", log_probs},
          {"top_logprobs", has_tops ? tops : OrderedJson(nullptr)},
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

OrderedJson BeginResponse(const OpenAiHead& head, bool is_chunk) {
  const char* const chat = is_chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", head.id},
          {"object", head.is_chat ? chat : "text_completion"},
          {"created", head.created},
          {"model", head.model},
          {"choices", OrderedJson::array()}};
}

// `key`: "text", or where a message stands, of which it may be the first part.
OrderedJson ChoiceJson(int64_t index, const char* key, const std::string& text, bool is_first,
                       OrderedJson logprobs, const std::string& finish_reason) {
  OrderedJson said = text;
  if (key != std::string("text")) said = {{"content", text}};
  if (said.is_object() && is_first) said["role"] = "assistant";
  return {
      {key, std::move(said)},
      {"index", index},
      {"logprobs", std::move(logprobs)},
      {"finish_reason", finish_reason.empty() ? OrderedJson(nullptr) : OrderedJson(finish_reason)}};
}

void ReadCompletion(ObjectReader& reader, const RequestLimits& limits, int64_t vocab_size,
                    OpenAiRequest& request, CompletionRequest& alike,
                    std::vector<CompletionRequest>& prompts) {
  ReadPrompts(reader, limits, vocab_size, prompts);
  alike.max_tokens = std::min(kOpenAiMaxTokens, limits.max_tokens);
  reader.Read("max_tokens", alike.max_tokens, Between(0, limits.max_tokens));
  alike.only_prompt = alike.max_tokens == 0;
  int64_t best_of = alike.samples;
  reader.Read("best_of", best_of, Between(1, limits.max_texts));
  reader.DoNotOffer("best_of");
  if (best_of != alike.samples)
    reader.AddFault("best_of", "is not supported; leave it out or pass what 'n' is");
  RefuseUnless(reader, "suffix", "", "POST /v1/infill fills the blanks of a text");
  reader.Read("echo", request.echoes);
  ReadLogprobs(reader, request, alike);
  const bool has_tokens =
      std::ranges::any_of(prompts, [](const auto& one) { return one.prompt_tokens.has_value(); });
  if (request.echoes && request.streams && has_tokens)
    reader.AddFault("echo", "is not supported with 'stream' and tokens; send the prompt as a text");
}

void ReadChat(ObjectReader& reader, const RequestLimits& limits, ChatSession chat,
              CompletionRequest& alike, std::vector<CompletionRequest>& prompts) {
  std::vector<data::ChatMessage> messages;
  ReadMessages(reader, messages);
  chat.SetMessages(std::move(messages));
  prompts.emplace_back().prompt = chat.Prompt();
  alike.begins_text = true;
  if (!chat.closing().empty()) alike.stop.push_back(chat.closing());
  // 0: kDefaultMaxTokens, or what fits.
  if (limits.max_tokens < kDefaultMaxTokens) alike.max_tokens = limits.max_tokens;
  for (const char* key : {"max_tokens", "max_completion_tokens"})
    reader.Read(key, alike.max_tokens, Between(1, limits.max_tokens));
  RefuseUnless(reader, "logprobs", false, "POST /v1/completions has it");
}

}  // namespace

absl::StatusOr<OpenAiRequest> ParseOpenAi(const nlohmann::json& body, const std::string& model,
                                          const ModelFacts& facts, const RequestLimits& limits,
                                          const ChatSession* chat) {
  if (!body.is_object())
    return InvalidArgument("the body is an object, {\"", chat ? "messages" : "prompt", "\": ...}");
  const nlohmann::json object = WithOwnValues(body);
  ObjectReader reader(object);
  OpenAiRequest request{.is_chat = chat != nullptr};
  std::string asked_model = model;
  CompletionRequest alike;
  std::vector<CompletionRequest> prompts;
  reader.Read("model", asked_model);
  reader.Read("n", alike.samples, Between(1, limits.max_texts));
  reader.Texts("stop", alike.stop, kMostOpenAiStops);
  ReadStream(reader, request);
  RefuseUnlessNeutral(reader);
  if (chat != nullptr) {
    ReadChat(reader, limits, *chat, alike, prompts);
  } else {
    ReadCompletion(reader, limits, facts.vocab_size, request, alike, prompts);
  }
  ReadWriteOptions(reader, facts, alike.write);
  // OpenAI's default is another text each time.
  if (!reader.Has("seed")) alike.write.draw.seed = std::random_device()();
  for (CompletionRequest& prompt : prompts) {
    alike.prompt = std::move(prompt.prompt);
    alike.prompt_tokens = std::move(prompt.prompt_tokens);
    request.prompts.emplace_back().what = alike;
    // Draws of its own, also of a prompt that comes twice.
    alike.first_stream += static_cast<uint64_t>(alike.samples);
  }
  CheckTogether(reader, request, limits, alike);
  RETURN_IF_ERROR(reader.End());
  if (asked_model != model)
    return NotFound("'model' is '", asked_model.substr(0, 80), "' but this server has '", model,
                    "'");
  for (TextRequest& prompt : request.prompts) LimitTexts(facts, limits, prompt);
  return request;
}

OrderedJson OpenAiResponse(const OpenAiHead& head, const OpenAiRequest& request,
                           const std::vector<std::vector<Completion>>& completions) {
  OrderedJson response = BeginResponse(head, /*is_chunk=*/false);
  int64_t index = 0;
  for (size_t p = 0; p < completions.size(); ++p) {
    const auto& asked = std::get<CompletionRequest>(request.prompts[p].what);
    for (const Completion& completion : completions[p]) {
      const auto parts = PiecesOfPrompt(asked, completion.prompt_pieces);
      const bool is_as_read = asked.prompt_tokens || (request.echoes && request.has_logprobs);
      const std::string prompt = is_as_read ? absl::StrJoin(parts, "") : asked.prompt;
      response["choices"].push_back(ChoiceJson(
          index++, request.is_chat ? "message" : "text",
          absl::StrCat(request.echoes ? prompt : "", completion.text), /*is_first=*/true,
          request.has_logprobs ? LogprobsJson(completion, prompt, parts, request.echoes) : nullptr,
          FinishReason(completion)));
    }
  }
  response["usage"] = UsageJson(completions);
  return response;
}

OrderedJson OpenAiChunk(const OpenAiHead& head, int64_t index, const std::string& text,
                        bool is_first, const std::string& finish_reason) {
  OrderedJson chunk = BeginResponse(head, /*is_chunk=*/true);
  chunk["choices"].push_back(
      ChoiceJson(index, head.is_chat ? "delta" : "text", text, is_first, nullptr, finish_reason));
  return chunk;
}

OrderedJson OpenAiUsageChunk(const OpenAiHead& head,
                             const std::vector<std::vector<Completion>>& completions) {
  OrderedJson chunk = BeginResponse(head, /*is_chunk=*/true);
  chunk["usage"] = UsageJson(completions);
  return chunk;
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
