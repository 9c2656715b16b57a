#include "launcher/texts/request_json.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_replace.h"

#include "core/base/status.h"
#include "launcher/texts/object_reader.h"
#include "launcher/texts/write_flags.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::json;

// Deeper values would only cost memory, and a parser or printer that calls itself its stack.
constexpr int kMostDepth = 16;
constexpr size_t kMostStops = 16;

bool IsTooDeep(absl::string_view text) {
  int depth = 0;
  bool is_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      is_string = !is_string;
    } else if (!is_string && (text[i] == '[' || text[i] == '{')) {
      if (++depth > kMostDepth) return true;
    } else if (!is_string && (text[i] == ']' || text[i] == '}')) {
      --depth;
    }
  }
  return false;
}

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
      case RequestOp::kRender: return Render(request_.what.emplace<RenderRequest>());
    }
  }

  void Fill(FillRequest& request) {
    request.max_blank_tokens = std::min(request.max_blank_tokens, limits_.max_tokens);
    reader_.RequiredText("text", request.text);
    if (request.text.empty()) reader_.AddFault("text", "is empty, so it has no blank");
    reader_.Count("alternatives", request.alternatives, 1, limits_.max_texts);
    reader_.Count("max_blank_tokens", request.max_blank_tokens, 1, limits_.max_tokens);
    reader_.Number("length_penalty", request.length_penalty, AtLeast(0));
    reader_.Number("mean_length", request.mean_length, AtLeast(0));
    reader_.Count("fit_tokens", request.fit_tokens, 0, limits_.max_tokens);
    reader_.Count("bound_samples", request.bound_samples, 1, limits_.max_samples);
    Written(FactsForFilling(facts_), request.write);
  }

 private:
  void Complete(CompletionRequest& request) {
    request.max_tokens = std::min(kDefaultMaxTokens, limits_.max_tokens);
    reader_.RequiredText("prompt", request.prompt);
    reader_.Count("max_tokens", request.max_tokens, 1, limits_.max_tokens);
    reader_.Count("min_tokens", request.min_tokens, 0, limits_.max_tokens);
    reader_.Count("block_ngram", request.block_ngram, 0, limits_.max_tokens);
    reader_.Count("samples", request.samples, 1, limits_.max_texts);
    reader_.Texts("stop", request.stop, kMostStops);
    reader_.Seed("first_stream", request.first_stream);
    reader_.Flag("cut_context", request.cut_context);
    Written(facts_, request.write);
  }

  void Score(ScoreRequest& request) {
    reader_.Text("context", request.context);
    reader_.RequiredText("continuation", request.continuation);
    if (request.continuation.empty()) reader_.AddFault("continuation", "is empty");
    reader_.Count("bound_samples", request.bound_samples, 1, limits_.max_samples);
    reader_.Seed("seed", request.seed);
    reader_.Flag("wants_greedy", request.wants_greedy);
    reader_.Flag("cut_context", request.cut_context);
  }

  void Rolling(RollingRequest& request) {
    reader_.RequiredText("text", request.text);
    if (request.text.empty()) reader_.AddFault("text", "is empty");
    reader_.Count("stride", request.stride, 0, facts_.seq_len);
    reader_.Count("bound_samples", request.bound_samples, 1, limits_.max_samples);
    reader_.Seed("seed", request.seed);
  }

  void Render(RenderRequest& request) {
    const Json* const list = reader_.Find("messages");
    if (list == nullptr || !list->is_array() || list->empty())
      return reader_.AddFault("messages", "must be a list of messages, {\"role\", \"content\"}");
    for (const Json& message : *list) {
      if (!message.is_object())
        return reader_.AddFault("messages", "has what is no object, {\"role\", \"content\"}");
      ObjectReader keys(message);
      data::ChatMessage& read = request.messages.emplace_back();
      keys.RequiredText("role", read.role);
      keys.RequiredText("content", read.content);
      reader_.AddFault(keys.End());
    }
  }

  void Written(const ModelFacts& facts, WriteOptions& options) {
    reader_.Flag("show_written", request_.show_written);
    ReadWriteOptions(reader_, facts, options, usual_method_);
  }

  ObjectReader& reader_;
  const ModelFacts& facts_;
  const RequestLimits& limits_;
  TextRequest& request_;
  const std::string usual_method_;  // where none is said; "": the model's first
};

void ReadId(const Json& object, ObjectReader& reader, Json& id) {
  if (reader.Find("id") == nullptr) return;
  id = IdOf(object);
  if (id.is_null()) reader.AddFault("id", "must be a text of at most 256 bytes or a number");
}

}  // namespace

int64_t TextRequest::num_texts() const {
  if (const auto* complete = std::get_if<CompletionRequest>(&what)) return complete->samples;
  return 1;
}

absl::StatusOr<Json> ParseJson(absl::string_view text) {
  if (IsTooDeep(text))
    return InvalidArgument("the JSON is nested deeper than ", kMostDepth, " levels");
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("the request is not JSON in UTF-8");
  return json;
}

namespace {

// Options of the whole call that do not act on a line's own method are not meant for it.
void KeepOptionsOf(absl::string_view method_name, WriteOptions& options) {
  for (const auto& [method, name] : kEnumNames<WriteMethod>) {
    if (name != method_name) continue;
    for (const MethodOption& option : MethodOptions())
      if (!option.ActsOn(method)) option.reset(options);
  }
}

// The same with options as JSON calls them.
absl::Status WithJsonNames(const absl::Status& status) {
  std::string message(status.message());
  for (const MethodOption& option : MethodOptions()) {
    message = absl::StrReplaceAll(message,
                                  {{option.name, absl::StrReplaceAll(option.name, {{"-", "_"}})}});
  }
  return {status.code(), message};
}

}  // namespace

void ReadWriteOptions(ObjectReader& reader, const ModelFacts& facts, WriteOptions& options,
                      const std::string& usual_method) {
  WriteFlags flags{.write = options};  // what is not said is as it was: `fill` has temperature 0
  WriteOptions& write = flags.write;
  flags.method = reader.OneOf("method", facts.methods).value_or(usual_method);
  KeepOptionsOf(flags.method, write);
  reader.Number("temperature", write.draw.cuts.temperature, AtLeast(0));
  reader.Count("top_k", write.draw.cuts.top_k, 0, kMostTokens);
  reader.Number("top_p", write.draw.cuts.top_p, PositiveFraction());
  reader.Seed("seed", write.draw.seed);
  reader.Count("steps", write.steps, 0, kMostTokens);
  reader.Count("block_length", write.block_len, 0, kMostTokens);
  reader.Choice("confidence", write.confidence);
  reader.Flag("random_positions", write.origin);
  reader.Number("order_temperature", write.order_temperature, AtLeast(0));
  reader.Number("guidance", write.guidance, AtLeast(0));
  reader.Number("threshold", write.threshold, Between(0, 1));
  reader.Choice("cache", write.cache);
  reader.Flag("end_last", write.delay_end);
  reader.Count("group_length", write.group_len, 1, kMostTokens);
  if (reader.Has("draft")) reader.Count("draft", write.draft.emplace(0), 0, kMostTokens);
  reader.Count("orders", write.orders, 1, kMostOrders);
  reader.Flag("random_order", write.random_order);
  reader.Flag("recompute", write.recompute);
  reader.Flag("literal", write.literal);
  if (!reader.fault().ok()) return;
  absl::StatusOr<WriteOptions> chosen = OptionsOf(flags, facts);
  if (chosen.ok()) options = *std::move(chosen);
  reader.AddFault(WithJsonNames(chosen.status()));
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
  reader.Choice("op", op);
  // Which keys are known depends on `op`.
  ANYORDER_RETURN_IF_ERROR(reader.fault());
  RequestParser(reader, facts, limits, request).Parse(op);
  ANYORDER_RETURN_IF_ERROR(reader.End());
  return request;
}

absl::Status ParseFillLine(const Json& object, const ModelFacts& facts, const RequestLimits& limits,
                           TextRequest& request) {
  ObjectReader reader(object);
  ReadId(object, reader, request.id);
  auto& fill = std::get<FillRequest>(request.what);
  RequestParser(reader, facts, limits, request, EnumName(fill.write.method)).Fill(fill);
  return reader.End();
}

Json IdOf(const Json& object) {
  constexpr size_t kMostIdBytes = 256;
  if (!object.is_object()) return nullptr;
  const auto id = object.find("id");
  if (id == object.end()) return nullptr;
  if (id->is_number()) return *id;
  const bool is_text = id->is_string() && id->get_ref<const std::string&>().size() <= kMostIdBytes;
  return is_text ? *id : Json(nullptr);
}

}  // namespace anyorder::launcher
