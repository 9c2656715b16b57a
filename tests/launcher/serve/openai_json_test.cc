#include "launcher/serve/openai_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"

#include "core/base/json_members.h"
#include "launcher/serve/event_stream.h"
#include "launcher/texts/object_reader.h"
#include "tests/launcher/serve/fake_service.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::launcher {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<OpenAiRequest> ParseBody(const std::string& text) {
  return ParseOpenAi(nlohmann::json::parse(text), "fake", FakeTextService().facts(),
                     {.max_tokens = 100, .max_texts = 4});
}
const CompletionRequest& PromptOf(const OpenAiRequest& request, size_t n) {
  return std::get<CompletionRequest>(request.prompts.at(n).what);
}

TEST(ParseOpenAiTest, KeysArrive) {
  const auto request = ParseBody(R"({"model": "fake", "prompt": ["a", "b"], "max_tokens": 5,
      "temperature": 0.5, "top_p": 0.25, "n": 2, "stop": "x", "seed": 3, "echo": true,
      "stream": true, "stream_options": {"include_usage": true}, "best_of": 2, "user": "me",
      "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "suffix": "",
      "method": "llada", "steps": 4})");
  ASSERT_TRUE(request.ok()) << request.status();
  ASSERT_EQ(request->prompts.size(), 2u);
  EXPECT_EQ(PromptOf(*request, 1).prompt, "b");
  const CompletionRequest& first = PromptOf(*request, 0);
  EXPECT_EQ(first.prompt, "a");
  EXPECT_EQ(first.max_tokens, 5);
  EXPECT_EQ(first.samples, 2);
  EXPECT_EQ(first.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(first.write.draw.cuts.temperature, 0.5);
  EXPECT_EQ(first.write.draw.cuts.top_p, 0.25);
  EXPECT_EQ(first.write.draw.seed, 3u);
  EXPECT_EQ(first.write.method, WriteMethod::kLlada);
  EXPECT_EQ(first.write.steps, 4);
  EXPECT_TRUE(request->echoes && request->streams && request->streams_usage);
  const auto plain = ParseBody(R"({"prompt": ""})");
  EXPECT_EQ(PromptOf(*plain, 0).max_tokens, 16);
  // Without a seed the same request has another answer the next time.
  EXPECT_NE(PromptOf(*plain, 0).write.draw.seed,
            PromptOf(*ParseBody(R"({"prompt": ""})"), 0).write.draw.seed);
}

// Of unknown keys the message names keys that are taken, each once.
TEST(ParseOpenAiTest, NoMessageOffersWhatIsRefused) {
  for (const char* key : {"repetition_penalty", "presence_penalti", "frequency_penaltyx", "bestof",
                          "logit_biass", "sufix", "zzz", "prompts"}) {
    const auto request = ParseBody(absl::StrCat(R"({"prompt": "a", ")", key, R"(": 1})"));
    const std::string text = absl::StrCat(request.status().message(), ",");
    EXPECT_THAT(text, HasSubstr("is not known; ")) << key;
    for (const char* refused : {"'presence_penalty'", " presence_penalty,", "'frequency_penalty'",
                                "'logit_bias'", "'suffix'", "'best_of'", " best_of,", " suffix,"})
      EXPECT_THAT(text, Not(HasSubstr(refused))) << key;
    EXPECT_EQ(text.find(" prompt,"), text.rfind(" prompt,")) << text;
  }
}

struct Fault {
  const char* body;
  const char* key;
  const char* words;
};

template <typename Parse>
void ExpectFaults(Parse parse, const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    const auto request = parse(fault.body);
    ASSERT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << fault.body;
    EXPECT_EQ(FaultyKey(request.status()), fault.key) << fault.body;
    EXPECT_THAT(request.status(), Says(fault.words)) << fault.body;
  }
}

TEST(ParseOpenAiTest, WhatCannotBeHonouredIsRefused) {
  const std::vector<Fault> faults = {
      {"[]", "", "the body is an object"},
      {"{}", "prompt", "is missing"},
      {R"({"prompt": []})", "prompt", "is an empty list"},
      {R"({"prompt": [1, 1000]})", "prompt", "a list of tokens, 0 to 999, or a list of these"},
      {R"({"prompt": [[1], 2]})", "prompt", "must be a text without NUL"},
      {R"({"prompt": [[1], [2.5]]})", "prompt", "a list of tokens"},
      {R"({"prompt": ["a", [-1]]})", "prompt", "a list of tokens"},
      {R"({"prompt": [[1], [[]]]})", "prompt", "a list of tokens"},
      {R"({"prompt": [[], [], [], [], []]})", "prompt", "has 5 texts but may have 4"},
      {R"({"prompt": ["a", "b", "c", "d", "e"]})", "prompt", "has 5 texts but may have 4"},
      {R"({"prompt": ["a", "b", "c"], "n": 2})", "n",
       "'n' is 2 for 3 prompts, but at most 4 texts may be written at once"},
      {R"({"prompt": "a", "max_tokens": -1})", "max_tokens", "in [0, 100]"},
      {R"({"prompt": "a", "seed": -2})", "seed", "in [0, "},
      {R"({"prompt": "a", "top_k": -2})", "top_k", "in [0, "},
      {R"({"prompt": "a", "top_p": -0.1})", "top_p", "in (0, 1]"},
      {R"({"prompt": "a", "best_of": 3})", "best_of", "pass what 'n' is"},
      {R"({"prompt": "a", "frequency_penalty": 0.5})", "frequency_penalty", "pass 0"},
      {R"({"prompt": "a", "presence_penalty": -1})", "presence_penalty", "pass 0"},
      {R"({"prompt": "a", "logit_bias": {"5": 1}})", "logit_bias", "is not supported"},
      {R"({"prompt": "a", "suffix": "b"})", "suffix", "POST /v1/infill"},
      {R"({"prompt": "a", "logprobs": 6})", "logprobs", "in [0, 5]"},
      {R"({"prompt": "a", "logprobs": 2, "method": "llada"})", "logprobs", "may be 0 or 1 unless"},
      {R"({"prompt": [1], "echo": true, "stream": true})", "echo", "send the prompt as a text"},
      {R"({"prompt": ["a", [5, 6]], "echo": true, "stream": true})", "echo", "as a text"},
      {R"({"prompt": "a", "response_format": {"type": "json_object"}})", "response_format",
       R"(leave it out or pass {"type":"text"})"},
      {R"({"prompt": "a", "tools": [{}]})", "tools", "is not supported"},
      {R"({"prompt": "a", "audio": {}})", "audio", "is not supported; leave it out"},
      {R"({"prompt": "a", "logprobs": 1, "stream": true})", "logprobs", "with 'stream'"},
      {R"({"prompt": "a", "stop": ["", "b"]})", "stop", "texts that are not empty"},
      {R"({"prompt": "a", "stream_options": 1})", "stream_options", "must be an object"},
      {R"({"prompt": "a", "stream_options": {"x": 1}})", "stream_options", "'x' is not known"},
      {R"({"prompt": "a", "max_token": 1})", "max_token", "did you mean 'max_tokens'?"},
  };
  ExpectFaults(ParseBody, faults);
  const auto other = ParseBody(R"({"prompt": "a", "model": "gpt-4"})");
  EXPECT_EQ(other.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(other.status().message(), "'model' is 'gpt-4' but this server has 'fake'");
}

TEST(ParseOpenAiTest, TokensAreAPrompt) {
  const auto one = ParseBody(R"({"prompt": [5, 0, 999], "max_tokens": 0, "n": 2})");
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_EQ(one->prompts.size(), 1u);
  EXPECT_EQ(PromptOf(*one, 0).prompt_tokens, (std::vector<int32_t>{5, 0, 999}));
  EXPECT_TRUE(PromptOf(*one, 0).only_prompt);
  // lm-evaluation-harness, whose empty context is a list without tokens.
  const auto several = ParseBody(R"({"model": "fake", "prompt": [[], [7]], "temperature": 0,
      "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true})");
  ASSERT_TRUE(several.ok()) << several.status();
  EXPECT_EQ(PromptOf(*several, 0).prompt_tokens, std::vector<int32_t>());
  EXPECT_EQ(PromptOf(*several, 1).prompt_tokens, std::vector<int32_t>{7});
  EXPECT_EQ(PromptOf(*several, 1).first_stream, 1u);
  EXPECT_TRUE(PromptOf(*several, 1).scores_prompt && several->has_logprobs && several->echoes);
  EXPECT_EQ(PromptOf(*several, 1).likeliest, 1);
}

// What clients send by themselves, and what other servers take for "all" and "any".
TEST(ParseOpenAiTest, ValuesThatAskForNothingAreTaken) {
  const auto request =
      ParseBody(R"({"prompt": "a", "n": 1, "presence_penalty": 0.0, "logit_bias": {},
      "frequency_penalty": 0, "response_format": {"type": "text"}, "tools": [], "tool_choice": "auto",
      "parallel_tool_calls": true, "store": false, "service_tier": "auto", "modalities": ["text"],
      "stream": false, "stream_options": null, "user": "u", "metadata": {"a": "b"}, "logprobs": null,
      "audio": null, "suffix": null, "stop": null, "best_of": null, "functions": null,
      "num_beams": 1, "top_p": 0, "top_k": -1, "seed": -1,
      "stop": ["1", "2", "3", "4", "5", "6"]})");
  ASSERT_TRUE(request.ok()) << request.status();
  const CompletionRequest& asked = PromptOf(*request, 0);
  EXPECT_EQ(asked.write.draw.cuts.top_k, 0);
  EXPECT_LT(asked.write.draw.cuts.top_p, 1e-9);  // the likeliest token is left
  EXPECT_GT(asked.write.draw.cuts.top_p, 0);
  EXPECT_EQ(asked.stop.size(), 6u);
  EXPECT_FALSE(request->has_logprobs || request->streams);
  EXPECT_NE(asked.write.draw.seed,
            PromptOf(*ParseBody(R"({"prompt": "", "seed": -1})"), 0).write.draw.seed);
}

absl::StatusOr<OpenAiRequest> ParseChat(const std::string& text) {
  const ModelFacts facts = FakeTextService().facts();
  const auto chat = ChatSession::Start(facts, "", "");
  return ParseOpenAi(nlohmann::json::parse(text), "fake", facts,
                     {.max_tokens = 100, .max_texts = 4}, &*chat);
}

TEST(ParseOpenAiTest, AConversationIsRendered) {
  const auto request = ParseChat(R"({"messages": [
      {"role": "system", "content": "S"}, {"role": "user", "content": [
      {"type": "text", "text": "o"}, {"type": "text", "text": "ne"}]},
      {"role": "assistant", "content": "two", "refusal": null, "tool_calls": null, "annotations": []},
      {"role": "user", "content": "three"}],
      "max_completion_tokens": 7, "n": 2, "stop": "x", "stream": true, "logprobs": false})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->is_chat && request->streams);
  const CompletionRequest& asked = PromptOf(*request, 0);
  EXPECT_EQ(
      asked.prompt,
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\none<|im_end|>\n<|im_start|>assistant"
      "\ntwo<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(asked.begins_text);
  EXPECT_EQ(asked.max_tokens, 7);
  EXPECT_EQ(asked.samples, 2);
  EXPECT_EQ(asked.stop, (std::vector<std::string>{"x", "<|im_end|>"}));
  const std::vector<Fault> faults = {
      {"[]", "", "{\"messages\": ...}"},
      {"{}", "messages", "must be a list of messages"},
      {R"({"messages": [{"role": "user"}]})", "content", "is missing"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", "content",
       "has a part that is no"},
      {R"({"messages": [{"role": "user", "content": "", "tool_calls": [{}]}]})", "tool_calls",
       "is not supported"},
      {R"({"messages": [{"role": "user", "content": ""}], "max_tokens": 0})", "max_tokens",
       "in [1, 100]"},
      {R"({"messages": [{"role": "user", "content": ""}], "logprobs": true})", "logprobs",
       "/v1/completions has it"},
      {R"({"messages": [{"role": "user", "content": ""}], "prompt": "a"})", "prompt",
       "is not known"}};
  ExpectFaults(ParseChat, faults);
}

struct CutText {
  const char* what;
  std::string text;
  std::vector<std::string> pieces;  // as written
  std::vector<std::string> tokens;  // of the text
};

TEST(OpenAiResponseTest, TokensAreThoseOfTheText) {
  const std::vector<CutText> cuts = {
      {"whole", " a b", {" a", " b"}, {" a", " b"}},
      {"end token", " a", {" a", ""}, {" a"}},
      {"behind the end token", " a", {" a", "", " b", ""}, {" a"}},
      {"stop word", " a", {" a", " stop", " b"}, {" a"}},
      {"stop word within a token", " a x", {" a", " xSTOP", " b"}, {" a", " xSTOP"}},
      {"stop word of several tokens", " a", {" a", "<", "end", ">"}, {" a"}},
      {"lost space", "a b", {" a", " b", ""}, {"a", " b"}},
      {"lost space of its own", "a", {" ", "a", " b"}, {"", "a"}},
      {"second space", " a", {" ", " a", " b"}, {"", " a"}},
      {"characters in parts", "\xc3\xa4", {"\xc3", "\xa4", "\xc3"}, {"\xc3", "\xa4"}},
      {"nothing", "", {"", " a"}, {}},
      {"nothing before a stop word", "", {" stop"}, {}},
      {"nothing written", "", {}, {}},
  };
  for (const CutText& cut : cuts) {
    const auto request = ParseBody(R"({"prompt": "p", "logprobs": 1})");
    Completion completion{.text = cut.text, .prompt_pieces = {"p"}};
    completion.tokens = std::ssize(cut.pieces);
    for (const std::string& piece : cut.pieces) {
      const auto n = std::ssize(completion.written);
      completion.written.push_back({n + 1, 7 + n, piece, -1.0 - static_cast<double>(n), 0});
    }
    // In whatever order.
    std::reverse(completion.written.begin(), completion.written.end());
    const auto json = OpenAiResponse({}, *request, {{completion}});
    EXPECT_EQ(json["choices"][0]["finish_reason"], "length") << cut.what;
    const auto logprobs = json["choices"][0]["logprobs"];
    EXPECT_TRUE(logprobs.at("top_logprobs").is_null()) << cut.what;
    EXPECT_EQ(logprobs["tokens"].get<std::vector<std::string>>(), cut.tokens) << cut.what;
    ASSERT_EQ(logprobs["token_logprobs"].size(), cut.tokens.size()) << cut.what;
    ASSERT_EQ(logprobs["text_offset"].size(), cut.tokens.size()) << cut.what;
    size_t offset = 1;
    for (size_t n = 0; n < cut.tokens.size(); ++n) {
      EXPECT_EQ(logprobs["token_logprobs"][n], -1.0 - static_cast<double>(n)) << cut.what;
      EXPECT_EQ(logprobs["text_offset"][n], offset) << cut.what;
      // A character counts once it is whole.
      offset += cut.tokens[n] == "\xc3" ? 0 : cut.tokens[n].size();
    }
    const auto usage = OpenAiUsageChunk({}, {{completion}})["usage"];
    EXPECT_EQ(json["usage"], usage) << cut.what;
    EXPECT_EQ(usage["completion_tokens"], cut.tokens.size()) << cut.what;
    EXPECT_EQ(usage["total_tokens"], 1 + cut.tokens.size()) << cut.what;
  }
}

// The first choice's log-probabilities of a prompt with these pieces, and of a text.
nlohmann::json EchoedLogprobs(const std::string& prompt, const std::vector<std::string>& pieces,
                              const std::vector<std::string>& written, const std::string& text) {
  auto request = ParseBody(R"({"prompt": "", "echo": true, "logprobs": 2})");
  std::get<CompletionRequest>(request->prompts[0].what).prompt = prompt;
  Completion completion{.text = text, .prompt_pieces = pieces};
  for (size_t i = 0; i < pieces.size(); ++i) {
    completion.prompt.push_back({.log_prob = -1, .token = 1});
    completion.prompt.back().likeliest = {{2, "other", -0.5}, {1, "as the vocabulary has it", -1}};
  }
  if (!pieces.empty()) completion.prompt[0] = {.log_prob = std::nan("")};
  for (const std::string& piece : written) {
    const auto n = std::ssize(completion.written);
    completion.written.push_back({n + 1, 50 + n, piece, -2, 0, 3, {{4, " like", -1.5}}});
  }
  const std::string json = DumpJson(OpenAiResponse({}, *request, {{completion}}));
  const auto choice = nlohmann::json::parse(json)["choices"][0];
  const std::vector<std::string> tokens = choice["logprobs"]["tokens"];
  const std::string joined = absl::StrJoin(tokens, "");
  const bool has_parts = absl::StrContains(joined, "\uFFFD");  // of a character
  EXPECT_TRUE(choice["text"] == joined || has_parts) << choice;
  return choice["logprobs"];
}

TEST(OpenAiResponseTest, TokensOfThePromptAreItsParts) {
  struct Case {
    const char* what;
    std::string prompt;
    std::vector<std::string> pieces;  // as the vocabulary has them
    std::vector<std::string> tokens;
    std::vector<int64_t> offsets;
  };
  for (const Case& one : std::vector<Case>{
           {"spelled", "ab c", {"a", "b", " c"}, {"a", "b", " c"}, {0, 1, 2}},
           {"first space", "The fox", {" The", " f", "ox"}, {"The", " f", "ox"}, {0, 3, 5}},
           {"cleaned", " A  b\n\nc\n", {" a", " b", " c"}, {" a", " b", " c\n"}, {0, 2, 4}},
           {"space alone", "a b ", {" ", "a", " ", "b"}, {"", "a", " ", "b "}, {0, 0, 1, 2}},
           {"unknown", "a", {" ", ""}, {"", ""}, {0, 0}},
           {"wide space", "a\u3000", {"a"}, {"a\u3000"}, {0}},
           {"wide space as read", "a\u3000", {"a", " "}, {"a", " "}, {0, 1}},
           {"wide", "\u65e5\u672c", {"\u65e5", "\u672c"}, {"\u65e5", "\u672c"}, {0, 1}},
           {"nothing", "", {}, {}, {}}}) {
    const auto found = EchoedLogprobs(one.prompt, one.pieces, {" x", ""}, " x");
    std::vector<std::string> tokens = found["tokens"];
    std::vector<int64_t> offsets = found["text_offset"];
    // The text's, and the end token.
    ASSERT_EQ(tokens.size(), one.tokens.size() + 2) << one.what;
    EXPECT_EQ(tokens[one.tokens.size()], " x") << one.what;
    EXPECT_EQ(offsets.back(), offsets[one.tokens.size()] + 2) << one.what;
    tokens.resize(one.tokens.size());
    offsets.resize(one.tokens.size());
    EXPECT_EQ(tokens, one.tokens) << one.what;
    EXPECT_EQ(offsets, one.offsets) << one.what;
    for (size_t i = 0; i < one.tokens.size() + 2; ++i) {
      const auto top = found["top_logprobs"][i];
      EXPECT_EQ(top.is_null(), i == 0 && !one.tokens.empty()) << one.what;
      EXPECT_EQ(found["token_logprobs"][i].is_null(), top.is_null()) << one.what;
      if (top.is_null()) continue;
      nlohmann::json due = {{"other", -0.5}, {found["tokens"][i], -1}};
      if (i >= one.tokens.size()) due = {{" like", -1.5}, {found["tokens"][i], -2}};
      EXPECT_EQ(top, due) << one.what;
    }
  }
  // A space that the text lacks has an entry, too.
  EXPECT_EQ(EchoedLogprobs("a ", {" a"}, {" "}, "")["tokens"],
            (std::vector<std::string>{"a ", ""}));
  // A character in parts, each of which begins in it.
  const auto parts = EchoedLogprobs("a", {"a"}, {"\xc3", "\xa4", "b"}, "\u00e4b");
  EXPECT_EQ(parts["text_offset"], (std::vector<int64_t>{0, 1, 1, 2}));
  // A space in parts is there already.
  const auto space = EchoedLogprobs("a\u3000", {"a", "\xe3", "\x80\x80"}, {"b"}, "b");
  EXPECT_EQ(space["text_offset"], (std::vector<int64_t>{0, 1, 1, 2}));
}

TEST(OpenAiErrorTest, NamesTheKeyAndTheKind) {
  EXPECT_EQ(OpenAiError(400, KeyFault("n", "is wrong")).dump(),
            R"({"error":{"message":"'n' is wrong","type":"invalid_request_error","param":"n",)"
            R"("code":"invalid_request"}})");
  EXPECT_EQ(OpenAiError(429, QueueFull("full")).dump(),
            R"({"error":{"message":"full","type":"rate_limit_error","param":null,)"
            R"("code":"queue_full"}})");
  EXPECT_EQ(OpenAiError(500, absl::InternalError("x"))["error"]["type"], "server_error");
  EXPECT_EQ(OpenAiError(401, absl::UnauthenticatedError("x"))["error"]["code"], "unauthenticated");
}

// All events of a stream.
std::string EventsOf(const std::string& body) {
  FakeTextService service;
  RequestQueue queue(service, {});
  const auto request = ParseBody(body);
  auto tickets = queue.Submit(request->prompts, absl::InfiniteFuture(), /*streams=*/true).value();
  EventStream stream({"id", 5, "fake"}, *request, tickets);
  std::string events;
  while (!stream.is_done()) {
    stream.Await(absl::Seconds(1));
    events += stream.Take();
  }
  return events;
}

TEST(EventStreamTest, TextsOfAllChoicesArriveInPieces) {
  const std::string events = EventsOf(
      R"({"prompt": ["a b", "c"], "n": 2, "echo": true, "stream": true,
          "stream_options": {"include_usage": true}})");
  std::vector<std::string> texts(4), reasons(4);
  size_t num_chunks = 0;
  nlohmann::json usage;
  const std::vector<std::string> all = absl::StrSplit(events, "\n\n", absl::SkipEmpty());
  for (const std::string& event : all) {
    ASSERT_EQ(event.substr(0, 6), "data: ");
    if (event == "data: [DONE]") continue;
    const auto chunk = nlohmann::json::parse(event.substr(6));
    if (chunk.contains("usage")) usage = chunk["usage"];
    for (const auto& choice : chunk["choices"]) {
      texts.at(choice["index"]) += choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null())
        reasons.at(choice["index"]) += choice["finish_reason"];
      ++num_chunks;
    }
  }
  EXPECT_THAT(events, testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_EQ(texts, (std::vector<std::string>{"a b b a", "a b a", "c c", "c"}));
  EXPECT_EQ(reasons, std::vector<std::string>(4, "stop"));
  EXPECT_EQ(num_chunks, 4u + 4u);  // tokens, and the end of each choice
  EXPECT_EQ(usage["total_tokens"], 3 + 4);
}

TEST(EventStreamTest, OtherMethodsTellTheWholeAtTheEnd) {
  const std::string events = EventsOf(R"({"prompt": "a b", "method": "llada", "stream": true})");
  EXPECT_EQ(std::count(events.begin(), events.end(), '\n'), 4);
  EXPECT_THAT(events, HasSubstr(R"("text":" b a")"));
}

}  // namespace
}  // namespace anyorder::launcher
