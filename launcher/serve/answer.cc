#include "launcher/serve/answer.h"

#include <utility>

#include "core/base/status.h"
#include "launcher/serve/chat_session.h"

namespace anyorder::launcher {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Answers = std::vector<absl::StatusOr<TextResult>>;

// All completions by one call. If that fails each is asked alone, so that the others get their
// answers.
Answers Complete(TextService& service, const std::vector<const TextRequest*>& requests) {
  std::vector<CompletionRequest> asked;
  for (const TextRequest* request : requests)
    asked.push_back(std::get<CompletionRequest>(request->what));
  absl::StatusOr<std::vector<std::vector<Completion>>> results = service.Complete(asked);
  if (results.ok() && results->size() != asked.size())
    results = Internal(results->size(), " answers to ", asked.size(), " requests");
  Answers answers;
  if (results.ok()) {
    for (std::vector<Completion>& result : *results) answers.emplace_back(std::move(result));
  } else if (requests.size() == 1) {
    answers.emplace_back(results.status());
  } else {
    for (const TextRequest* request : requests)
      answers.push_back(std::move(Complete(service, {request}).front()));
  }
  return answers;
}

absl::StatusOr<TextResult> AnswerAlone(TextService& service, const TextRequest& request) {
  if (const auto* fill = std::get_if<FillRequest>(&request.what)) return service.Fill(*fill);
  if (const auto* score = std::get_if<ScoreRequest>(&request.what)) return service.Score(*score);
  if (const auto* tokens = std::get_if<TokensRequest>(&request.what))
    return service.CountTokens(tokens->text);
  if (const auto* rolling = std::get_if<RollingRequest>(&request.what))
    return ScoreRolling(service, *rolling);
  if (const auto* render = std::get_if<RenderRequest>(&request.what))
    return RenderPrompt(service.facts(), render->messages);
  return service.facts();
}

// The answers to parsed[begin] and those behind it of the same op, or its fault alone.
Answers AnswerNeighbours(TextService& service,
                         const std::vector<absl::StatusOr<TextRequest>>& parsed, size_t begin) {
  if (!parsed[begin].ok()) return {parsed[begin].status()};
  std::vector<const TextRequest*> group;
  const RequestOp op = parsed[begin]->op();
  for (; begin < parsed.size() && parsed[begin].ok() && parsed[begin]->op() == op; ++begin)
    group.push_back(&*parsed[begin]);
  return Answer(service, group);
}

}  // namespace

Answers Answer(TextService& service, const std::vector<const TextRequest*>& requests) {
  Answers answers;
  if (!requests.empty() && requests[0]->op() == RequestOp::kComplete)
    return Complete(service, requests);
  for (const TextRequest* request : requests) answers.push_back(AnswerAlone(service, *request));
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
    for (const auto& answer : AnswerNeighbours(service, parsed, responses.size())) {
      const size_t n = responses.size();
      OrderedJson& response = responses.emplace_back(OrderedJson{{"id", ids[n]}});
      response.update(answer.ok() ? ResultJson(*parsed[n], *answer)
                                  : OrderedJson{{"error", ErrorJson(answer.status())}});
    }
  }
  return responses;
}

}  // namespace anyorder::launcher
