// Requests to `anyorder serve`, of lines and in OpenAI's form, which anyone may send.

#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"

#include "core/base/json_members.h"
#include "launcher/serve/answer.h"
#include "launcher/serve/openai_json.h"
#include "launcher/texts/request_json.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/launcher/serve/fake_service.h"

namespace anyorder::fuzz {
namespace {

constexpr launcher::RequestLimits kRequestLimits{.max_tokens = 50, .max_texts = 4};

std::vector<std::string> RequestSeeds() {
  return {R"({"id": "a", "op": "complete", "prompt": "a b", "max_tokens": 9, "samples": 2, "stop":
          ["y"], "show_written": true, "method": "llada", "steps": 3, "temperature": 0, "top_p": 0.5,
          "seed": 18, "confidence": "margin", "cache": "dual"})",
          R"({"op": "fill", "text": "a ___ b", "alternatives": 3, "length_penalty": 0.5})",
          R"({"id": 7, "op": "score", "context": "c", "continuation": "d \u00e4"})"
          "\n"
          R"({"id": 8, "op": "score", "continuation": "e"})",
          R"({"op": "rolling", "text": "a b c d e f g h i j k", "stride": 3})"
          "\n"
          R"({"op": "facts"})"
          "\n"
          R"({"op": "tokens", "text": "x"})"};
}

// Each line gets a response, which is JSON with the line's id and either an error or no error.
void UseRequests(absl::string_view input) {
  launcher::FakeTextService service;
  service.mutable_facts().seq_len = 4;
  std::vector<absl::StatusOr<std::string>> lines;
  for (const absl::string_view line : absl::StrSplit(input, '\n')) lines.emplace_back(line);
  const auto responses = launcher::Respond(service, lines, kRequestLimits);
  ANYORDER_CHECK(responses.size() == lines.size()) << responses.size();
  for (size_t n = 0; n < lines.size(); ++n) {
    const auto json = launcher::ParseJson(DumpJson(responses[n]));
    ANYORDER_CHECK_OK(json.status());
    ANYORDER_CHECK(json->contains("id") && json->size() >= 2) << json->dump();
    if (!json->contains("error")) continue;
    ANYORDER_CHECK((*json)["error"]["code"] != "internal_error") << json->dump();
  }
}

std::vector<std::string> OpenAiSeeds() {
  return {R"({"model": "fake", "prompt": ["a b", "c"], "max_tokens": 5, "n": 2, "stop": "x",
          "stream": true, "stream_options": {"include_usage": true}, "best_of": 2, "user": "me",
          "frequency_penalty": 0, "logit_bias": {}, "suffix": ""})",
          R"({"prompt": "a b", "logprobs": 1, "temperature": 0.5, "seed": 3})",
          R"({"prompt": "a", "echo": true})"};
}

void UseOpenAi(absl::string_view input) {
  launcher::FakeTextService service;
  const auto json = launcher::ParseJson(input);
  if (!json.ok()) return;
  const auto request = launcher::ParseOpenAi(*json, "fake", service.facts(), kRequestLimits);
  if (!request.ok()) return;
  std::vector<launcher::CompletionRequest> prompts;
  for (const launcher::TextRequest& prompt : request->prompts)
    prompts.push_back(std::get<launcher::CompletionRequest>(prompt.what));
  const auto completions = service.Complete(prompts);
  if (!completions.ok()) return;
  const auto response = launcher::OpenAiResponse({"id", 1, "fake"}, *request, *completions);
  const size_t num_choices = prompts.size() * static_cast<size_t>(prompts[0].samples);
  ANYORDER_CHECK(response["choices"].size() == num_choices) << response.dump();
  ANYORDER_CHECK(num_choices <= static_cast<size_t>(kRequestLimits.max_texts)) << num_choices;
}

const bool registered[] = {
    Register({"serve_requests", RequestSeeds, UseRequests}),
    Register({"serve_openai", OpenAiSeeds, UseOpenAi}),
};

}  // namespace
}  // namespace anyorder::fuzz
