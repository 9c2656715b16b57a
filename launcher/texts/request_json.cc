#include "launcher/texts/request_json.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_replace.h"

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "launcher/texts/object_reader.h"
#include "launcher/texts/write_flags.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostStops = 16;

// What a request is asked with, besides `id` and `op`.
class RequestParser {
 public:
  RequestParser(ObjectReader& reader, const ModelFacts& facts, const RequestLimits& limits,
                TextRequest& request, std::string usual_method = "")
      : reader_(reader),
        facts_(facts),
        limits_(limits),
        request_(request),
        usual_method_(std::move(usual_method)) {}

  void Parse(RequestOp op) {
    switch (op) {
      case RequestOp::kComplete: return Complete(request_.what.emplace<CompletionRequest>());
      case RequestOp::kFill: return Fill(request_.what.emplace<FillRequest>());
      case RequestOp::kScore: return Score(request_.what.emplace<ScoreRequest>());
      case RequestOp::kRolling: return Rolling(request_.what.emplace<RollingRequest>());
      case RequestOp::kFacts: request_.what = FactsRequest{}; return;
      case RequestOp::kTokens:
        return reader_.RequiredText("text", request_.what.emplace<TokensRequest>().text);
      case RequestOp::kRender:
        return ReadMessages(reader_, request_.what.emplace<RenderRequest>().messages);
    }
  }

  void Fill(FillRequest& request) {
    request.max_blank_tokens = std::min(request.max_blank_tokens, limits_.max_tokens);
    reader_.RequiredText("text", request.text);
    if (request.text.empty()) reader_.AddFault("text", "is empty, so it has no blank");
    FillRequest::VisitFields(request, *this);
    Written(FactsForFilling(facts_), request.write);
  }

  // A field, of whose unit a request may ask for so many.
  template <typename Value>
  void operator()(const char* key, Value& value, const char*, FieldBounds bounds) {
    const absl::string_view unit = bounds.unit;
    const int64_t most = unit == kUnitTokens  ? limits_.max_tokens
                         : unit == kUnitTexts ? limits_.max_texts
                         : unit == kUnitMasks ? limits_.max_samples
                                              : INT64_MAX;
    bounds.most = std::min(bounds.most, static_cast<double>(most));
    reader_.Read(key, value, bounds);
  }

 private:
  void Complete(CompletionRequest& request) {
    request.max_tokens = std::min(kDefaultMaxTokens, limits_.max_tokens);
    reader_.RequiredText("prompt", request.prompt);
    reader_.Read("max_tokens", request.max_tokens, Between(1, limits_.max_tokens));
    reader_.Read("min_tokens", request.min_tokens, Between(0, limits_.max_tokens));
    reader_.Read("block_ngram", request.block_ngram, Between(0, limits_.max_tokens));
    reader_.Read("samples", request.samples, Between(1, limits_.max_texts));
    reader_.Texts("stop", request.stop, kMostStops);
    reader_.Read("first_stream", request.first_stream, AtLeast(0));
    reader_.Read("cut_context", request.cut_context);
    Written(facts_, request.write);
  }

  void Score(ScoreRequest& request) {
    reader_.Read("context", request.context);
    reader_.RequiredText("continuation", request.continuation);
    if (request.continuation.empty()) reader_.AddFault("continuation", "is empty");
    VisitBoundSamples(request.bound_samples, *this);
    reader_.Read("seed", request.seed, AtLeast(0));
    reader_.Read("wants_greedy", request.wants_greedy);
    reader_.Read("cut_context", request.cut_context);
  }

  void Rolling(RollingRequest& request) {
    reader_.RequiredText("text", request.text);
    if (request.text.empty()) reader_.AddFault("text", "is empty");
    reader_.Read("stride", request.stride, Between(0, facts_.seq_len));
    VisitBoundSamples(request.bound_samples, *this);
    reader_.Read("seed", request.seed, AtLeast(0));
  }

  void Written(const ModelFacts& facts, WriteOptions& options) {
    reader_.Read("show_written", request_.show_written);
    ReadWriteOptions(reader_, facts, options, usual_method_);
  }

  ObjectReader& reader_;
  const ModelFacts& facts_;
  const RequestLimits& limits_;
  TextRequest& request_;
  const std::string usual_method_;  // where none is said; "": the model's first
};

// The same with options as JSON calls them.
absl::Status WithJsonNames(const absl::Status& status, const WriteOptions& options) {
  std::string message(status.message());
  auto rename = [&message](const char* key, const auto&...) {
    message = absl::StrReplaceAll(message, {{absl::StrReplaceAll(key, {{"_", "-"}}), key}});
  };
  WriteOptions::VisitFields(options, rename);
  return {status.code(), message};
}

// One of the parts of a message's content, which is a list.
void ReadPart(const Json& part, ObjectReader& message, std::string& content) {
  if (!part.is_object() || part.value("type", Json()) != "text")
    return message.AddFault("content", "has a part that is no {\"type\": \"text\", \"text\"}");
  ObjectReader keys(part);
  keys.Find("type");
  std::string text;
  keys.RequiredText("text", text);
  message.AddFault(keys.End());
  content += text;
}

void ReadId(const Json& object, ObjectReader& reader, Json& id) {
  if (reader.Find("id") == nullptr) return;
  id = IdOf(object);
  if (id.is_null()) reader.AddFault("id", "must be a text of at most 256 bytes or a number");
}

}  // namespace

void LimitTexts(const ModelFacts& facts, const RequestLimits& limits, TextRequest& request) {
  const int64_t most = limits.max_prompt > 0 ? limits.max_prompt : facts.max_prompt;
  const auto limit = [most](auto& what) {
    if constexpr (requires { what.max_prompt; }) what.max_prompt = most;
  };
  std::visit(limit, request.what);
}

absl::StatusOr<Json> ParseJson(absl::string_view text) {
  auto json = TryParseJson<Json>(text);
  if (json.is_discarded()) return InvalidArgument("the request is ", WhyNoJsonObject(text));
  return json;
}

void ReadWriteOptions(ObjectReader& reader, const ModelFacts& facts, WriteOptions& options,
                      const std::string& usual_method) {
  WriteFlags flags{.write = options};  // what is not said is as it was: `fill` has temperature 0
  flags.method = reader.OneOf("method", facts.methods).value_or(usual_method);
  if (flags.method.empty() && !facts.methods.empty()) flags.method = facts.methods.front();
  // Options of the whole call that do not act on a line's own method are not meant for it.
  ParseEnum(flags.method, flags.write.method);
  flags.write.ResetIdle();
  auto read = [&](const char* key, auto& value, const char*, const FieldBounds& bounds,
                  const WriteMethods& methods = {}) {
    reader.Read(key, value, bounds);
    if (std::count(methods.begin(), methods.end(), flags.write.method) == 0 && !methods.empty())
      reader.DoNotOffer(key);
  };
  WriteOptions::VisitFields(flags.write, read);
  if (!reader.fault().ok()) return;
  absl::StatusOr<WriteOptions> chosen = OptionsOf(flags, facts);
  if (chosen.ok()) options = *std::move(chosen);
  reader.AddFault(WithJsonNames(chosen.status(), options));
}

void ReadMessages(ObjectReader& reader, std::vector<data::ChatMessage>& messages) {
  const Json* const list = reader.Find("messages");
  if (list == nullptr || !list->is_array() || list->empty())
    return reader.AddFault("messages", "must be a list of messages, {\"role\", \"content\"}");
  for (const Json& message : *list) {
    if (!message.is_object())
      return reader.AddFault("messages", "has what is no object, {\"role\", \"content\"}");
    ObjectReader keys(message);
    data::ChatMessage& read = messages.emplace_back();
    keys.RequiredText("role", read.role);
    const Json* const content = keys.Find("content");
    if (content == nullptr || !content->is_array()) {
      keys.RequiredText("content", read.content);
    } else {
      for (const Json& part : *content) ReadPart(part, keys, read.content);
    }
    // Clients send answers back with all keys that these had.
    for (const char* key : {"refusal", "annotations", "audio", "function_call", "tool_calls",
                            "tool_call_id", "reasoning_content"}) {
      const Json* const value = keys.Find(key);
      keys.DoNotOffer(key);
      if (value != nullptr && !value->empty()) keys.AddFault(key, "is not supported; leave it out");
    }
    reader.AddFault(keys.End());
  }
}

absl::StatusOr<TextRequest> ParseRequest(const Json& object, const ModelFacts& facts,
                                         const RequestLimits& limits) {
  if (!object.is_object()) return InvalidArgument("a request is an object, {\"op\": ...}");
  TextRequest request;
  ObjectReader reader(object);
  ReadId(object, reader, request.id);
  RequestOp op = RequestOp::kComplete;
  if (!reader.Has("op"))
    reader.AddFault("op", "is missing: complete, fill, score, rolling, facts, tokens or render");
  reader.Read("op", op);
  // Which keys are known depends on `op`.
  RETURN_IF_ERROR(reader.fault());
  RequestParser(reader, facts, limits, request).Parse(op);
  RETURN_IF_ERROR(reader.End());
  LimitTexts(facts, limits, request);
  return request;
}

absl::Status ParseFillLine(const Json& object, const ModelFacts& facts, TextRequest& request) {
  constexpr RequestLimits limits{INT64_MAX, INT64_MAX, INT64_MAX};
  ObjectReader reader(object);
  ReadId(object, reader, request.id);
  auto& fill = std::get<FillRequest>(request.what);
  RequestParser(reader, facts, limits, request, EnumName(fill.write.method)).Fill(fill);
  return reader.End();
}

Json IdOf(const Json& object) {
  constexpr size_t kMostIdBytes = 256;
  const Json* const id = FindMember(object, "id");
  if (id == nullptr) return nullptr;
  if (id->is_number()) return *id;
  const bool is_text = id->is_string() && id->get_ref<const std::string&>().size() <= kMostIdBytes;
  return is_text ? *id : Json(nullptr);
}

}  // namespace anyorder::launcher
