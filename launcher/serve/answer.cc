#include "launcher/serve/answer.h"

#include <utility>

#include "core/base/status.h"
#include "launcher/serve/chat_session.h"

namespace anyorder::launcher {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Answers = std::vector<absl::StatusOr<TextResult>>;

// All requests of a kind by one call. If that fails each is asked alone, so that the others get
// their answers.
template <typename Request, typename Result>
Answers AnswerTogether(
    const std::vector<const TextRequest*>& requests,
    const std::function<absl::StatusOr<std::vector<Result>>(const std::vector<Request>&)>& ask) {
  std::vector<Request> asked;
  for (const TextRequest* request : requests) asked.push_back(std::get<Request>(request->what));
  absl::StatusOr<std::vector<Result>> results = ask(asked);
  if (results.ok() && results->size() != asked.size())
    results = Internal(results->size(), " answers to ", asked.size(), " requests");
  Answers answers;
  if (results.ok()) {
    for (Result& result : *results) answers.emplace_back(std::move(result));
  } else if (requests.size() == 1) {
    answers.emplace_back(results.status());
  } else {
    for (const TextRequest* request : requests)
      answers.push_back(std::move(AnswerTogether({request}, ask).front()));
  }
  return answers;
}

absl::StatusOr<TextResult> AnswerAlone(TextService& service, const TextRequest& request,
                                       const std::function<absl::Status()>& check_wanted) {
  if (const auto* tokens = std::get_if<TokensRequest>(&request.what)) {
    ASSIGN_OR_RETURN(const int64_t count, service.CountTokens(tokens->text));
    return TextResult(count);
  }
  if (const auto* rolling = std::get_if<RollingRequest>(&request.what)) {
    ASSIGN_OR_RETURN(RollingScore score, ScoreRolling(service, *rolling, check_wanted));
    return TextResult(score);
  }
  if (const auto* render = std::get_if<RenderRequest>(&request.what)) {
    ASSIGN_OR_RETURN(std::string prompt, RenderPrompt(service.facts(), render->messages));
    return TextResult(std::move(prompt));
  }
  return TextResult(service.facts());
}

// The answers to parsed[begin] and those behind it of the same op; moves `begin` behind them.
Answers AnswerNeighbours(TextService& service,
                         const std::vector<absl::StatusOr<TextRequest>>& parsed, size_t& begin) {
  std::vector<const TextRequest*> group;
  const RequestOp op = parsed[begin]->op();
  for (; begin < parsed.size() && parsed[begin].ok() && parsed[begin]->op() == op; ++begin)
    group.push_back(&*parsed[begin]);
  return Answer(service, group);
}

OrderedJson Response(const OrderedJson& id, const OrderedJson& content) {
  OrderedJson response = {{"id", id}};
  response.update(content);
  return response;
}

}  // namespace

absl::Status StoppedError() { return Unavailable("the server is being stopped"); }

absl::Status LateError() { return DeadlineExceeded("the answer took longer than it may"); }

Answers Answer(TextService& service, const std::vector<const TextRequest*>& requests,
               const WantedCheck& check_wanted) {
  switch (requests.empty() ? RequestOp::kFacts : requests[0]->op()) {
    case RequestOp::kComplete:
      return AnswerTogether<CompletionRequest, std::vector<Completion>>(
          requests, [&](const auto& asked) { return service.Complete(asked); });
    case RequestOp::kFill:
      return AnswerTogether<FillRequest, std::vector<FilledText>>(
          requests, [&](const auto& asked) { return service.Fill(asked); });
    case RequestOp::kScore:
      return AnswerTogether<ScoreRequest, TextScore>(
          requests, [&](const auto& asked) { return service.Score(asked); });
    default: break;
  }
  Answers answers;
  for (const TextRequest* request : requests) {
    const size_t n = answers.size();
    answers.push_back(AnswerAlone(service, *request, [&] { return check_wanted(n); }));
  }
  return answers;
}

std::vector<OrderedJson> Respond(TextService& service,
                                 const std::vector<absl::StatusOr<std::string>>& lines,
                                 const RequestLimits& limits, const absl::Status& refusal) {
  std::vector<absl::StatusOr<TextRequest>> parsed;
  std::vector<OrderedJson> ids;
  for (const absl::StatusOr<std::string>& line : lines) {
    const absl::StatusOr<nlohmann::json> json = line.ok() ? ParseJson(*line) : line.status();
    ids.push_back(json.ok() ? IdOf(*json) : nullptr);
    if (!refusal.ok()) {
      parsed.push_back(refusal);
    } else {
      parsed.push_back(json.ok() ? ParseRequest(*json, service.facts(), limits) : json.status());
    }
  }
  std::vector<OrderedJson> responses;
  while (responses.size() < lines.size()) {
    size_t begin = responses.size();
    if (!parsed[begin].ok()) {
      responses.push_back(Response(ids[begin], {{"error", ErrorJson(parsed[begin].status())}}));
      continue;
    }
    for (const absl::StatusOr<TextResult>& answer : AnswerNeighbours(service, parsed, begin)) {
      const size_t n = responses.size();
      responses.push_back(
          Response(ids[n], answer.ok() ? ResultJson(*parsed[n], *answer)
                                       : OrderedJson{{"error", ErrorJson(answer.status())}}));
    }
  }
  return responses;
}

}  // namespace anyorder::launcher
