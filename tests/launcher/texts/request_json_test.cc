#include "launcher/texts/request_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/base/json_members.h"
#include "launcher/serve/answer.h"
#include "launcher/serve/http_guard.h"
#include "launcher/texts/object_reader.h"
#include "tests/launcher/serve/fake_service.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr RequestLimits kLimits{.max_tokens = 100, .max_texts = 4};

absl::StatusOr<TextRequest> Parse(const std::string& text) {
  const absl::StatusOr<nlohmann::json> json = ParseJson(text);
  if (!json.ok()) return json.status();
  return ParseRequest(*json, FakeTextService().facts(), kLimits);
}

TEST(ParseRequestTest, EveryKeyOfACompletionArrives) {
  const auto request = Parse(R"({"id": "a", "op": "complete", "prompt": "x", "max_tokens": 9.0,
      "samples": 2, "stop": ["y", "z"], "show_written": true, "method": "llada", "steps": 3,
      "min_tokens": 2, "block_ngram": 3, "first_stream": 9223372036854775807,
      "cut_context": true})")
                           .value();
  EXPECT_EQ(request.id, "a");
  EXPECT_TRUE(request.show_written);
  ASSERT_EQ(request.op(), RequestOp::kComplete);
  EXPECT_EQ(request.num_texts(), 2);
  const auto& asked = std::get<CompletionRequest>(request.what);
  EXPECT_EQ(asked.prompt, "x");
  EXPECT_EQ(asked.max_tokens, 9);
  EXPECT_EQ(asked.stop, (std::vector<std::string>{"y", "z"}));
  EXPECT_EQ(asked.min_tokens, 2);
  EXPECT_EQ(asked.block_ngram, 3);
  EXPECT_EQ(asked.first_stream, uint64_t{9223372036854775807u});
  EXPECT_TRUE(asked.cut_context);
  EXPECT_EQ(asked.write, (WriteOptions{.method = WriteMethod::kLlada, .steps = 3}));
}

// A line stands for the options of the whole call, of which it keeps what it does not say.
TEST(ParseFillLineTest, AnotherMethodKeepsTheOptionsThatItHas) {
  ModelFacts facts;
  facts.methods = {"left-to-right", "sequential", "speculative", "burst"};
  TextRequest request;
  request.what = FillRequest{.write = {.method = WriteMethod::kSpeculative, .draft = 3}};
  const nlohmann::json line = {{"text", "a ___"}, {"method", "burst"}};
  ASSERT_TRUE(ParseFillLine(line, facts, request).ok());
  EXPECT_EQ(std::get<FillRequest>(request.what).write.method, WriteMethod::kBurst);
  EXPECT_EQ(std::get<FillRequest>(request.what).write.Draft(), 3);
  ASSERT_TRUE(ParseFillLine({{"text", "a ___"}, {"method", "sequential"}}, facts, request).ok());
  EXPECT_FALSE(std::get<FillRequest>(request.what).write.draft.has_value())
      << "sequential has none";
  EXPECT_THAT(ParseFillLine({{"text", "a ___"}, {"method", "left-to-right"}}, facts, request),
              Says("must be one of sequential, speculative, burst"));
}

TEST(ParseRequestTest, WhatIsNotSaidIsTheDefault) {
  const auto request = Parse(R"({"op": "complete", "prompt": "", "steps": null})").value();
  const auto& asked = std::get<CompletionRequest>(request.what);
  EXPECT_TRUE(request.id.is_null());
  EXPECT_EQ(asked.max_tokens, kLimits.max_tokens);           // 128 are more than may be asked for
  EXPECT_EQ(asked.write.method, WriteMethod::kLeftToRight);  // the model's first
  EXPECT_EQ(asked.write.steps, 0);
  EXPECT_EQ(asked.first_stream, 0u);
  EXPECT_FALSE(asked.cut_context);
}

TEST(ParseRequestTest, KeysOfTheOtherOpsArrive) {
  const auto fill = Parse(R"({"op": "fill", "text": "a ___", "alternatives": 3, "max_blank_tokens":
      5, "length_penalty": 0.5, "mean_length": 2.5, "fit_tokens": 2, "bound_samples": 7})");
  ASSERT_TRUE(fill.ok()) << fill.status();
  const auto& asked = std::get<FillRequest>(fill->what);
  EXPECT_EQ(asked.text, "a ___");
  EXPECT_EQ(asked.alternatives, 3);
  EXPECT_EQ(asked.max_blank_tokens, 5);
  EXPECT_EQ(asked.length_penalty, 0.5);
  EXPECT_EQ(asked.mean_length, 2.5);
  EXPECT_EQ(asked.fit_tokens, 2);
  EXPECT_EQ(asked.bound_samples, 7);
  EXPECT_EQ(asked.write.draw.cuts.temperature, 0);  // of fill, as of `anyorder fill`
  const auto score =
      Parse(
          R"({"op": "score", "context": "c", "continuation": "d", "bound_samples": 9, "seed": 2,
          "wants_greedy": true, "cut_context": true})")
          .value();
  const auto& scored = std::get<ScoreRequest>(score.what);
  EXPECT_EQ(scored.context + scored.continuation, "cd");
  EXPECT_EQ(scored.bound_samples, 9);
  EXPECT_EQ(scored.seed, 2u);
  EXPECT_TRUE(scored.wants_greedy);
  EXPECT_TRUE(scored.cut_context);
  const auto rolling = Parse(R"({"op": "rolling", "text": "e", "stride": 16})").value();
  EXPECT_EQ(std::get<RollingRequest>(rolling.what).stride, 16);
  EXPECT_EQ(Parse(R"({"op": "facts"})")->op(), RequestOp::kFacts);
  EXPECT_EQ(std::get<TokensRequest>(Parse(R"({"op": "tokens", "text": "f"})")->what).text, "f");
}

// What another method than the model's own would take is not offered.
TEST(ParseRequestTest, KeysThatAreOfferedAreOfTheMethod) {
  ModelFacts facts;
  facts.methods = {"left-to-right"};
  const nlohmann::json request = {{"op", "complete"}, {"prompt", "a"}, {"bloc_length", 4}};
  const absl::Status status = ParseRequest(request, facts, kLimits).status();
  EXPECT_THAT(status, Says("'bloc_length' is not known; keys here: ", "top_p"));
  EXPECT_THAT(status, ::testing::Not(Says("steps")));
}

struct Fault {
  const char* request;
  const char* key;
  const char* words;
};

TEST(ParseRequestTest, FaultsAreNamed) {
  const std::string deep = std::string(65, '[') + std::string(65, ']');
  std::string many = "[";  // objects; reading them takes no longer than their length
  for (int i = 0; i < 1 << 18; ++i) many += "{},";
  many += "{}]";
  const std::string long_id = R"({"op": "facts", "id": ")" + std::string(257, 'x') + "\"}";
  const std::vector<Fault> faults = {
      {"", "", "the request is not valid JSON (column 1: unexpected end of input"},
      {"{\"op\": \"facts\"", "", "not valid JSON (column 15: unexpected end"},
      {"{\"op\": \"\xff\"}", "", "ill-formed UTF-8 byte)"},
      {deep.c_str(), "", "the request is JSON that is nested deeper than 64 levels"},
      {"[]", "", "a request is an object"},
      {many.c_str(), "", "a request is an object"},
      {"{}", "op", "'op' is missing: complete, fill"},
      {R"({"op": "fil"})", "op",
       "is \"fil\" but must be one of complete, fill, score, rolling, "
       "facts, tokens, render; did you mean 'fill'?"},
      {R"({"op": 3})", "op", "'op' is 3 but must be one of complete"},
      {R"({"op": "facts", "id": []})", "id", "must be a text of at most 256 bytes or a number"},
      {long_id.c_str(), "id", "at most 256 bytes"},
      {R"({"op": "complete"})", "prompt", "'prompt' is missing"},
      {R"({"op": "complete", "prompt": 1})", "prompt", "'prompt' is 1 but must be a text"},
      {R"({"op": "complete", "prompt": ["a"]})", "prompt", "is a list but must be a text"},
      {R"({"op": "complete", "prompt": "a\u0000b"})", "prompt", "has a NUL"},
      {R"({"op": "complete", "prompt": "", "max_tokens": 0})", "max_tokens",
       "'max_tokens' is 0 but must be a whole number in [1, 100]"},
      {R"({"op": "complete", "prompt": "", "max_tokens": 101})", "max_tokens", "is 101 but"},
      {R"({"op": "complete", "prompt": "", "max_tokens": 1.5})", "max_tokens", "is 1.5 but"},
      {R"({"op": "complete", "prompt": "", "max_tokens": 1e300})", "max_tokens", "whole number"},
      {R"({"op": "complete", "prompt": "", "max_tokens": 18446744073709551615})", "max_tokens",
       "whole number"},
      {R"({"op": "complete", "prompt": "", "samples": 5})", "samples", "in [1, 4]"},
      {R"({"op": "complete", "prompt": "", "stop": [""]})", "stop", "texts that are not empty"},
      {R"({"op": "complete", "prompt": "", "stop": [1]})", "stop", "has 1 but must have texts"},
      {R"({"op": "complete", "prompt": "", "stop": 1})", "stop", "a text or a list of texts"},
      {R"({"op": "complete", "prompt": "", "stop": ["a","a","a","a","a","a","a","a","a","a","a",
          "a","a","a","a","a","a"]})",
       "stop", "has 17 texts but may have 16"},
      {R"({"op": "complete", "prompt": "", "method": "mdlm"})", "method",
       "must be one of left-to-right, llada"},
      {R"({"op": "complete", "prompt": "", "temperature": -1})", "temperature",
       "'temperature' is -1 but must be a number in [0, 1000000]"},
      {R"({"op": "complete", "prompt": "", "top_p": 0})", "top_p", "a number in (0, 1]"},
      {R"({"op": "complete", "prompt": "", "cache": "prefx"})", "cache", "did you mean 'prefix'?"},
      {R"({"op": "complete", "prompt": "", "recompute": 1})", "recompute", "true or false"},
      {R"({"op": "complete", "prompt": "", "temprature": 1})", "temprature",
       "'temprature' is not known; did you mean 'temperature'?"},
      {R"({"op": "facts", "completely_else": 1})", "completely_else",
       "is not known; keys here: id, op"},
      {R"({"op": "tokens", "text": "a", "completely_else": 1})", "completely_else",
       "is not known; keys here: id, op, text"},
      {R"({"op": "fill", "text": ""})", "text", "is empty, so it has no blank"},
      {R"({"op": "fill", "text": "x", "alternatives": 5})", "alternatives", "in [1, 4]"},
      {R"({"op": "score", "continuation": ""})", "continuation", "is empty"},
      {R"({"op": "score", "continuation": "a", "bound_samples": 0})", "bound_samples", "[1, 4096]"},
      {R"({"op": "score", "continuation": "a", "temperature": 1})", "temperature", "is not known"},
      {R"({"op": "rolling", "text": ""})", "text", "is empty"},
      {R"({"op": "rolling", "text": "a", "stride": 65})", "stride", "in [0, 64]"},
      {R"({"op": "tokens"})", "text", "is missing"},
      {R"({"op": "complete", "prompt": "", "min_tokens": 101})", "min_tokens", "[0, 100]"},
      {R"({"op": "complete", "prompt": "", "method": "llada", "cache": "dual"})", "",
       "set block_length"},
      {R"({"op": "score", "continuation": "a", "wants_greedy": 1})", "wants_greedy", "true or"},
      {R"({"op": "score", "continuation": "a", "cut_context": 0})", "cut_context", "true or"},
      {R"({"op": "complete", "prompt": "", "first_stream": -1})", "first_stream", "number in [0, "},
      {R"({"op": "render"})", "messages", "must be a list of messages"},
      {R"({"op": "render", "messages": []})", "messages", "must be a list of messages"},
      {R"({"op": "render", "messages": ["a"]})", "messages", "has what is no object"},
      {R"({"op": "render", "messages": [{"role": "user"}]})", "content", "is missing"},
      {R"({"op": "render", "messages": [{"role": 1, "content": ""}]})", "role", "must be a text"},
      {R"({"op": "render", "messages": [{"role": "user", "content": "", "name": "a"}]})", "name",
       "is not known"},
  };
  for (const Fault& fault : faults) {
    const auto request = Parse(fault.request);
    ASSERT_FALSE(request.ok()) << fault.request;
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(FaultyKey(request.status()), fault.key) << fault.request;
    EXPECT_THAT(request.status(), Says(fault.words)) << fault.request;
  }
}

std::string RespondTo(FakeTextService& service, const std::string& line) {
  return DumpJson(Respond(service, {line}, kLimits).at(0));
}

TEST(RespondTest, ResponsesAreReadAsTheyAreMeant) {
  FakeTextService service;
  EXPECT_EQ(RespondTo(service, R"({"id": 1, "op": "complete", "prompt": "a b", "max_tokens": 1})"),
            R"({"id":1,"prompt_tokens":2,"completions":[{"text":" b","log_prob":-0.5,"tokens":1,)"
            R"("ended":false,"passes":1}]})");
  EXPECT_EQ(RespondTo(service, R"({"op": "fill", "text": "a ___ c", "show_written": true})"),
            R"({"id":null,"alternatives":[{"text":"a fill1 c","blanks":["fill1"],"lengths":[1],)"
            R"("log_prob":-0.25,"is_exact":true,"standard_error":0.0,"score":-0.25,"written":)"
            R"([{"pass":1,"position":0,"piece":" fill1","log_prob":-0.25,"confidence":0.8}]}]})");
  EXPECT_EQ(RespondTo(service, R"({"id": "s", "op": "score", "continuation": "a b"})"),
            R"({"id":"s","log_prob":-2.0,"standard_error":3.0,"is_exact":true,"is_greedy":false,)"
            R"("tokens":2,"bytes":3})");
  EXPECT_EQ(RespondTo(service, R"({"op": "tokens", "text": "a b c"})"),
            R"({"id":null,"tokens":3})");
  EXPECT_THAT(RespondTo(service, R"({"op": "facts"})"),
              StartsWith(R"({"id":null,"run":"runs/fake","step":7,"objective":"fake",)"));
}

TEST(RespondTest, PromptsAreRenderedByTheModelsTemplate) {
  FakeTextService service;
  const std::string line = R"({"op": "render", "messages": [{"role": "system", "content": "Be."},
      {"role": "user", "content": "Who?"}, {"role": "assistant", "content": "unseen"}]})";
  EXPECT_EQ(nlohmann::json::parse(RespondTo(service, line))["prompt"],
            "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n"
            "<|im_start|>assistant\n");
  service.mutable_facts().chat_template = "[{message}{role}: {content}; ";
  EXPECT_EQ(nlohmann::json::parse(RespondTo(service, line))["prompt"],
            "[system: Be.; user: Who?; assistant: ");
  service.mutable_facts().chat_template = "tokenizer";
  EXPECT_THAT(RespondTo(service, line), HasSubstr("the chat template is a tokenizer's own"));
  service.mutable_facts().chat_template = "";
  EXPECT_THAT(RespondTo(service, line),
              HasSubstr(R"("cannot_do","message":"runs/fake: no chat template is known)"));
}

TEST(RespondTest, AFaultIsTheOwnResponsesAlone) {
  FakeTextService service;
  const std::string good = R"({"id": 1, "op": "score", "continuation": "a"})";
  const auto responses =
      Respond(service,
              {good, R"({"id": 2, "op": "score", "continuation": "a fault"})", good, "nonsense",
               R"({"id": 5, "op": "complete", "prompt": "a"})", OutOfRange("too much")},
              kLimits);
  ASSERT_EQ(responses.size(), 6u);
  EXPECT_EQ(service.calls, (std::vector<size_t>{1, 1, 1, 1}));
  EXPECT_EQ(responses[0]["log_prob"], -1);
  EXPECT_EQ(responses[1].dump(),
            R"({"id":2,"error":{"code":"invalid_request","message":"'continuation' has the word )"
            R"(fault"}})");
  EXPECT_EQ(responses[2]["log_prob"], -1);
  EXPECT_EQ(responses[3].dump(),
            R"({"id":null,"error":{"code":"invalid_request","message":)"
            R"e("the request is not valid JSON (column 2: invalid literal)"}})e");
  EXPECT_EQ(responses[4]["completions"][0]["text"], " a");
  EXPECT_EQ(responses[5]["error"]["code"], "too_long");
}

// What has few tokens may have many bytes: only who encodes a text knows.
TEST(LimitTextsTest, ARequestLearnsHowManyTokensItMayHave) {
  ModelFacts facts = FakeTextService().facts();
  facts.max_prompt = 5;
  const std::string text(1 << 20, ' ');
  for (const int64_t most : {0, 6}) {
    RequestLimits limits = kLimits;
    limits.max_prompt = most;
    const int64_t expected = most == 0 ? 5 : 6;
    const auto ask = [&](const nlohmann::json& request) {
      return ParseRequest(request, facts, limits).value().what;
    };
    const auto complete = ask({{"op", "complete"}, {"prompt", text}});
    EXPECT_EQ(std::get<CompletionRequest>(complete).max_prompt, expected);
    EXPECT_EQ(std::get<CompletionRequest>(complete).prompt, text);
    EXPECT_EQ(std::get<FillRequest>(ask({{"op", "fill"}, {"text", text}})).max_prompt, expected);
    const auto score = ask({{"op", "score"}, {"context", text}, {"continuation", text}});
    EXPECT_EQ(std::get<ScoreRequest>(score).max_prompt, expected);
  }
}

TEST(ErrorCodeTest, AFullQueueIsNoWantOfMemory) {
  EXPECT_STREQ(ErrorCode(QueueFull("7 wait")), "queue_full");
  EXPECT_EQ(QueueFull("7 wait").message(), "7 wait");
  EXPECT_EQ(HttpStatus(QueueFull("7 wait")), 429);
  const absl::Status memory = ResourceExhausted("no memory for 3 GiB");
  EXPECT_STREQ(ErrorCode(memory), "out_of_memory");
  EXPECT_FALSE(IsQueueFull(memory));
  EXPECT_EQ(HttpStatus(memory), 503);
  EXPECT_STREQ(ErrorCode(OutOfRange("9 tokens")), "too_long");
}

TEST(RespondTest, TextThatIsNotUtf8AndNumbersThatAreNoneAreStillJson) {
  const TextRequest request;
  const std::vector<Completion> completions = {
      {.text = "a\xff", .log_prob = -std::numeric_limits<double>::infinity()}};
  const std::string text = DumpJson(ResultJson(request, completions));
  EXPECT_THAT(text, HasSubstr("\"text\":\"a\xef\xbf\xbd\",\"log_prob\":null"));
}

TEST(RollingScoreTest, EachWordCountsOnceWithAsMuchContextAsFits) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 20; ++round) {
    FakeTextService service;
    const int64_t seq_len = service.facts().seq_len - 1;  // behind a token that begins the text
    const int64_t num_words = std::uniform_int_distribution<int64_t>(1, 500)(random);
    const int64_t stride = std::uniform_int_distribution<int64_t>(1, seq_len)(random);
    std::string text;
    for (int64_t n = 0; n < num_words; ++n)
      absl::StrAppend(&text, n == 0 ? "" : " ", std::string(1 + random() % 9, 'w'), n);
    const auto response = nlohmann::json::parse(RespondTo(
        service, nlohmann::json{{"op", "rolling"}, {"text", text}, {"stride", stride}}.dump()));
    ASSERT_EQ(response["log_prob"], -num_words) << response;
    EXPECT_EQ(response["tokens"], num_words);
    EXPECT_EQ(response["bytes"], text.size());
    EXPECT_EQ(response["windows"], service.scored.size());
    EXPECT_DOUBLE_EQ(response["standard_error"], 3 * std::sqrt(service.scored.size()));
    std::string joined;
    for (const ScoreRequest& window : service.scored) {
      EXPECT_THAT(joined, testing::EndsWith(window.context));
      const int64_t context = *service.CountTokens(window.context);
      const int64_t words = *service.CountTokens(window.continuation);
      EXPECT_EQ(context, std::min(*service.CountTokens(joined), seq_len - words));
      EXPECT_LE(words, num_words > seq_len ? stride : seq_len);
      joined += window.continuation;
    }
    EXPECT_EQ(joined, text);
  }
}

TEST(RollingScoreTest, AFaultOfCountingIsTheAnswer) {
  FakeTextService service;
  EXPECT_THAT(RespondTo(service, R"({"op": "rolling", "text": "uncountable"})"),
              HasSubstr("no encoder"));
  service.mutable_facts().seq_len = 2;
  EXPECT_THAT(RespondTo(service, R"({"op": "rolling", "text": "a b c", "stride": 1})"),
              HasSubstr("\"windows\":3"));
}

TEST(RollingScoreTest, AWordWithoutEndIsCut) {
  FakeTextService service;
  service.mutable_facts().seq_len = 3;
  const auto response = nlohmann::json::parse(
      RespondTo(service, R"({"op": "rolling", "text": ")" + std::string(200, 'x') + " b c\"}"));
  EXPECT_EQ(response["bytes"], 204);
  // A token each of the words, and the cut one as often as it is cut: never within 64 bytes.
  EXPECT_GT(service.scored.size(), 2u);
}

}  // namespace
}  // namespace anyorder::launcher
