// Answers as JSON (request_json.h).

#include "absl/strings/cord.h"

#include "launcher/texts/request_json.h"

namespace anyorder::launcher {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kQueueFull[] = "anyorder/queue_full";

// One overload a kind of TextResult.
struct ResultWriter {
  bool show_written = false;

  OrderedJson operator()(const std::vector<Completion>& completions) const {
    OrderedJson list = OrderedJson::array();
    for (const Completion& completion : completions) {
      OrderedJson json = {{"text", completion.text},
                          {"log_prob", completion.log_prob},
                          {"tokens", completion.tokens},
                          {"ended", completion.ended},
                          {"passes", completion.passes}};
      if (show_written) json["written"] = WrittenJson(completion.written);
      list.push_back(std::move(json));
    }
    const size_t prompt_tokens = completions.empty() ? 0 : completions[0].prompt_pieces.size();
    return {{"prompt_tokens", prompt_tokens}, {"completions", std::move(list)}};
  }

  OrderedJson operator()(const std::vector<FilledText>& texts) const {
    OrderedJson list = OrderedJson::array();
    for (const FilledText& text : texts) {
      OrderedJson json = {{"text", text.text},         {"blanks", text.blanks},
                          {"lengths", text.lengths},   {"log_prob", text.log_prob},
                          {"is_exact", text.is_exact}, {"standard_error", text.standard_error},
                          {"score", text.score}};
      if (show_written) json["written"] = WrittenJson(text.written);
      list.push_back(std::move(json));
    }
    return {{"alternatives", std::move(list)}};
  }

  OrderedJson operator()(const TextScore& score) const {
    return {{"log_prob", score.log_prob}, {"standard_error", score.standard_error},
            {"is_exact", score.is_exact}, {"is_greedy", score.is_greedy},
            {"tokens", score.tokens},     {"bytes", score.bytes}};
  }

  OrderedJson operator()(const RollingScore& score) const {
    OrderedJson json = (*this)(score.sum);
    json["windows"] = score.windows;
    return json;
  }

  OrderedJson operator()(const ModelFacts& facts) const {
    return {{"run", facts.run_dir},
            {"step", facts.step},
            {"objective", facts.objective},
            {"seq_len", facts.seq_len},
            {"max_prompt", facts.max_prompt},
            {"vocab_size", facts.vocab_size},
            {"methods", facts.methods},
            {"can_score_exactly", facts.can_score_exactly},
            {"chat_template", facts.chat_template}};
  }

  OrderedJson operator()(int64_t tokens) const { return {{"tokens", tokens}}; }
  OrderedJson operator()(const std::string& prompt) const { return {{"prompt", prompt}}; }
};

}  // namespace

OrderedJson ResultJson(const TextRequest& request, const TextResult& result) {
  return std::visit(ResultWriter{request.show_written}, result);
}

OrderedJson WrittenJson(const std::vector<ShownToken>& written) {
  OrderedJson list = OrderedJson::array();
  for (const ShownToken& token : written) {
    list.push_back({{"pass", token.pass},
                    {"position", token.position},
                    {"piece", token.piece},
                    {"log_prob", token.log_prob},
                    {"confidence", token.confidence}});
  }
  return list;
}

OrderedJson ErrorJson(const absl::Status& status) {
  return {{"code", ErrorCode(status)}, {"message", std::string(status.message())}};
}

const char* ErrorCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument: return "invalid_request";
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented: return "cannot_do";
    case absl::StatusCode::kOutOfRange: return "too_long";
    case absl::StatusCode::kResourceExhausted:
      return IsQueueFull(status) ? "queue_full" : "out_of_memory";
    case absl::StatusCode::kDeadlineExceeded: return "deadline_exceeded";
    case absl::StatusCode::kUnavailable: return "unavailable";
    case absl::StatusCode::kNotFound: return "not_found";
    case absl::StatusCode::kUnauthenticated: return "unauthenticated";
    case absl::StatusCode::kPermissionDenied: return "forbidden";
    default: return "internal_error";
  }
}

absl::Status QueueFull(absl::string_view message) {
  absl::Status status = absl::ResourceExhaustedError(message);
  status.SetPayload(kQueueFull, absl::Cord());
  return status;
}

bool IsQueueFull(const absl::Status& status) { return status.GetPayload(kQueueFull).has_value(); }

}  // namespace anyorder::launcher
