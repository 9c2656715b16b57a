// Prompts with answers: their three forms of input, chat templates, and tokenizers whose special
// tokens the templates have.

#include "data/prep/examples/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "data/dataset/dataset.h"
#include "data/prep/examples/example_prep.h"
#include "tests/data/prep/corpus_text.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr char kChat[] =
    R"({"messages": [{"role": "system", "content": "Be brief."},
                     {"role": "user", "content": "One\n two?"},
                     {"role": "assistant", "content": "Three."},
                     {"role": "user", "content": "And?"},
                     {"role": "assistant", "content": "<|eot_id|> Four."}, {"role": "user", "content": "Bye"}]})";

std::string OneLine(std::string json) {
  return absl::StrReplaceAll(json, {{"\n                    ", ""}}) + "\n";
}

TEST(ChatTemplateTest, KnownTemplatesWriteTheirSpecialTokens) {
  const ChatMessage messages[] = {
      {"user", "Hi"}, {"assistant", "Ho"}, {"user", "a"}, {"assistant", "c"}};
  const auto plain = [&](const std::string& name) {
    const auto [prompt, answer] = ChatTemplate::Read(name)->Render(messages);
    return std::pair(WithoutTemplateMarks(prompt), WithoutTemplateMarks(answer));
  };
  EXPECT_THAT(plain("llada"),
              Pair("<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                   "<|start_header_id|>assistant<|end_header_id|>\n\nHo<|eot_id|>"
                   "<|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>"
                   "<|start_header_id|>assistant<|end_header_id|>\n\n",
                   "c<|eot_id|>"));
  EXPECT_THAT(plain("chatml"),
              Pair("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n"
                   "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n",
                   "c<|im_end|>\n"));
  EXPECT_THAT(plain("S{message}{role}:\\n\\\\n{content}\\t"),
              Pair("Suser:\n\\nHi\tassistant:\n\\nHo\tuser:\n\\na\tassistant:\n\\n", "c\t"));
}

TEST(ChatTemplateTest, WhatIsTemplateStandsBetweenMarks) {
  const ChatMessage messages[] = {{"user", "Hi"}, {"assistant", "Ho"}};
  const auto [prompt, answer] =
      ChatTemplate::Read("S{message}[{role}]{content}E")->Render(messages);
  EXPECT_EQ(absl::StrReplaceAll(prompt, {{std::string(1, kTemplateMark), "|"}}),
            "|S||[|user|]|Hi|E||[|assistant|]|");
  EXPECT_EQ(absl::StrReplaceAll(answer, {{std::string(1, kTemplateMark), "|"}}), "Ho|E|");
}

TEST(ChatTemplateTest, OtherTextsAreRefused) {
  for (const char* const bad :
       {"", "llama", "{role}", "{content}", "{content}{role}", "{role}{content}{content}",
        "{role}{role}{content}", "{role}{message}{content}", "{message}{message}{role}{content}"}) {
    EXPECT_THAT(ChatTemplate::Read(bad).status(),
                Fails(absl::IsInvalidArgument,
                      "is neither llada, chatml or tokenizer nor a text with {role}"))
        << bad;
  }
}

// With a tokenizer that has an id for each byte, 1 and more, and for the special tokens of a chat.
class PromptsTest : public ExampleFolderTest {
 protected:
  PromptsTest() {
    ::setenv("PYTHONPATH", (folder_ + "/python:" ANYORDER_STAND_IN).c_str(), 1);
    fs::create_directory(folder_ + "/hf");
    Store("hf/tokenizer.json",
          R"({"added_tokens": [
              {"id": 0, "content": "<|end|>"}, {"id": 300, "content": "<|startoftext|>"},
              {"id": 301, "content": "<|start_header_id|>"},
              {"id": 302, "content": "<|end_header_id|>"},
              {"id": 303, "content": "<|eot_id|>"}, {"id": 304, "content": "<|eot"}],
              "model": {"type": "BPE", "vocab": {"a": 98}}})");
    Store("hf/tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  }
  ~PromptsTest() override { ::unsetenv("PYTHONPATH"); }

  std::string NextOutput() { return made_ = absl::StrCat(folder_, "/out", ++runs_); }
  ProgramResult RunPieces(const std::string& input, const std::vector<std::string>& more = {}) {
    return Run(input, NextOutput(), more);
  }
  ProgramResult RunTokenizer(const std::string& input, const std::vector<std::string>& more = {}) {
    return RunPrepProgram(Joined({"--examples", input, "--output", NextOutput(), "--tokenizer",
                                  folder_ + "/hf", "--vocab-size", "400"},
                                 more));
  }
  // The examples of the last dataset.
  std::vector<Example> Examples() const {
    const auto dataset = Dataset::Open(made_, {.verify = true}).value();
    EXPECT_EQ(dataset->examples()->task(), ExampleTask::kGeneration);
    std::vector<Example> examples;
    for (int64_t i = 0; i < dataset->examples()->num_examples(); ++i)
      examples.push_back(dataset->examples()->ReadExample(i).value());
    return examples;
  }
  void ExpectRefused(const std::string& line, const std::string& message,
                     const std::vector<std::string>& more = {}) {
    ExpectRefusal(
        RunPieces(Store("bad.jsonl", "{\"source\": \"a\", \"target\": \"b\"}\n" + line), more), 65,
        "bad.jsonl:2: " + message);
    EXPECT_FALSE(fs::exists(made_));
  }

  int runs_ = 0;
  std::string made_;
};

TEST_F(PromptsTest, PromptsMayBeCalledInSeveralWays) {
  const std::string text = "{\"source\": \"one two\", \"target\": \"three\"}\n";
  for (const char* const names :
       {"source target", "prompt answer", "prompt response", "prompt completion"}) {
    const std::string prompt(names, 6), answer(names + 7);
    const std::string input = Store(
        answer + ".jsonl", absl::StrReplaceAll(text, {{"source", prompt}, {"target", answer}}));
    Done(RunPieces(input));
    EXPECT_THAT(Examples()[0].parts, ElementsAre(Ids("one two"), Ids("three"))) << names;
  }
  const std::string own = Store("own.jsonl", "{\"ask\": \"one two\", \"say\": \"three\"}\n");
  Done(RunPieces(own, {"--field", "prompt=ask", "answer=say"}));
  EXPECT_THAT(Examples()[0].parts, ElementsAre(Ids("one two"), Ids("three")));
  // Written by a template, a source is what a user says.
  Done(RunPieces(
      own, {"--field", "prompt=ask", "answer=say", "--chat-template", "{role}: {content}\\n"}));
  EXPECT_THAT(Examples()[0].parts, ElementsAre(Ids("user: one two assistant:"), Ids("three")));
}

// Every message of an assistant is an answer, all before it the prompt. Pieces know no special
// token, and lines are cleaned.
TEST_F(PromptsTest, EveryAnswerOfAConversationIsAnExample) {
  Done(RunPieces(Store("chat.jsonl", OneLine(kChat)), {"--chat-template", "{role}\\n{content}|"}));
  const std::vector<Example> examples = Examples();
  ASSERT_EQ(examples.size(), 2u);
  const std::string first = "system Be brief.|user One two?|assistant";
  EXPECT_THAT(examples[0].parts, ElementsAre(Ids(first), Ids("Three.|")));
  EXPECT_THAT(examples[1].parts,
              ElementsAre(Ids(first + " Three.|user And?|assistant"), Ids("<|eot_id|> Four.|")));
}

TEST_F(PromptsTest, AWholeConversationIsOneExampleOfAllItsAnswers) {
  const std::string pair = R"({"source": "a", "target": "b"})";
  Done(RunPieces(Store("chat.jsonl", OneLine(kChat) + pair),
                 {"--chat-template", "{message}{role}\\n{content}|", "--whole-conversations"}));
  const std::vector<Example> examples = Examples();
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_THAT(examples[0].parts,
              ElementsAre(Ids("system Be brief.|user One two?|assistant"), Ids("Three.|"),
                          Ids("user And?|assistant"), Ids("<|eot_id|> Four.|")));
  EXPECT_THAT(examples[1].parts, ElementsAre(Ids("user a|assistant"), Ids("b|")));
  EXPECT_EQ(Dataset::Open(made_)->get()->index().settings.at("conversations"), "whole");
  ExpectRefusal(RunPieces(folder_ + "/chat.jsonl", {"--whole-conversations"}), 64,
                "--whole-conversations requires --chat-template");
}

// What no answer follows is not read: said of each conversation, by its line.
TEST_F(PromptsTest, ConversationsWithoutAnAnswerAreLeftOutByName) {
  const std::string question = R"({"messages": [{"role": "user", "content": "a"}]})"
                               "\n";
  const std::string foreign =
      R"({"messages": [{"role": "human", "content": "a"}, {"role": "gpt", "content": "b"}]})"
      "\n";
  const std::vector<std::string> chat = {"--chat-template", "{role}\\n{content}|"};
  const ProgramResult result =
      RunPieces(Store("chat.jsonl", question + OneLine(kChat) + foreign), chat);
  Done(result);
  EXPECT_EQ(Examples().size(), 2u);
  EXPECT_THAT(
      result.error,
      AllOf(HasSubstr("chat.jsonl:1' (no message of the role 'assistant', but of user)"),
            HasSubstr("chat.jsonl:2' (its last messages, 1, have no answer)"),
            HasSubstr("chat.jsonl:3' (no message of the role 'assistant', but of gpt, human)")));
  ExpectRefusal(RunPieces(Store("none.jsonl", question), Joined(chat, {"--quiet"})), 65,
                "none.jsonl' holds no example: every line is blank or left out");
}

TEST_F(PromptsTest, SpecialTokensOfTheTemplateAreTokensAndThoseOfTextsAreText) {
  Done(RunTokenizer(Store("chat.jsonl", OneLine(kChat)), {"--chat-template", "llada"}));
  std::vector<int32_t> prompt;
  const auto add = [&prompt](std::initializer_list<int32_t> ids) {
    prompt.insert(prompt.end(), ids);
  };
  const auto bytes = [&prompt](const std::string& text) {
    for (const unsigned char byte : text) prompt.push_back(1 + byte);
  };
  const auto message = [&](const std::string& role, const std::string& content) {
    add({301});
    bytes(role);
    add({302});
    bytes("\n\n" + content);
  };
  add({300});
  message("system", "Be brief.");
  add({303});
  message("user", "One\n two?");
  add({303});
  message("assistant", "");
  const std::vector<Example> examples = Examples();
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_EQ(examples[0].parts[0], prompt);
  prompt.clear();
  bytes("<|eot_id|> Four.");
  add({303});
  EXPECT_EQ(examples[1].parts[1], prompt);
  const auto dataset = Dataset::Open(made_).value();
  EXPECT_EQ(dataset->index().settings.at("chat_template"), "llada");
  EXPECT_EQ(dataset->index().settings.at("text"), "as written");
  EXPECT_EQ(dataset->index().vocab_size, 400u);
  EXPECT_EQ(dataset->index().vocab_ids.eod, 0);
  EXPECT_TRUE(fs::exists(made_ + "/tokenizer.json"));
}

// The package in the place of jinja2 knows one template: "[", role, "]", content, <|eot_id|>.
constexpr char kJinjaStandIn[] = R"(class ImmutableSandboxedEnvironment:
    def __init__(self, **options):
        assert options["trim_blocks"] and options["lstrip_blocks"]
        self.globals = {}

    def from_string(self, source):
        assert source in ("the template", "another", "the forgetful")
        self.source = source
        return self

    def render(self, messages, add_generation_prompt, bos_token, **tokens):
        if messages[0]["content"] == "refuse me":
            self.globals["raise_exception"]("it is rude")
        if self.source == "the forgetful":  # what an assistant said, once more follows
            messages = [one for one in messages[:-1] if one["role"] != "assistant"] + messages[-1:]
        text = bos_token + "".join(
            f"[{one['role']}]{one['content']}<|eot_id|>" for one in messages)
        if self.source == "another":
            return text[::-1]
        return text + ("[assistant]" if add_generation_prompt else "")
)";

TEST_F(PromptsTest, TheTemplateOfATokenizerIsRun) {
  const std::vector<std::string> own = {"--chat-template", "tokenizer"};
  const auto store_config = [&](const std::string& chat_template) {
    Store("hf/tokenizer_config.json",
          absl::StrCat(R"({"eos_token": "<|end|>", "bos_token": {"content": "<|startoftext|>"})",
                       chat_template, "}"));
  };
  const std::string pair = Store("pair.jsonl", "{\"prompt\": \"a \", \"answer\": \" b\"}\n");
  fs::create_directories(folder_ + "/python/jinja2");
  Store("python/jinja2/__init__.py", "");
  store_config(R"(, "chat_template": "the template")");
  ExpectRefusal(RunTokenizer(pair, own), 74, "has no package jinja2");
  Store("python/jinja2/sandbox.py", kJinjaStandIn);
  Done(RunTokenizer(pair, own));
  std::vector<int32_t> prompt = {300};
  for (const char byte : std::string("[user]a ")) prompt.push_back(1 + byte);
  prompt.push_back(303);
  for (const char byte : std::string("[assistant]")) prompt.push_back(1 + byte);
  EXPECT_THAT(Examples()[0].parts,
              ElementsAre(prompt, std::vector<int32_t>{1 + ' ', 1 + 'b', 303}));

  const std::vector<std::string> whole = Joined(own, {"--whole-conversations"});
  const std::string turns = R"({"messages": [{"role": "user", "content": "a"}, )"
                            R"({"role": "assistant", "content": "b"}, )"
                            R"({"role": "user", "content": "c"}, )"
                            R"({"role": "assistant", "content": "d"}]})";
  Done(RunTokenizer(Store("turns.jsonl", turns), whole));
  const auto text_of = [](const std::vector<int32_t>& ids) {
    std::string text;
    for (const int32_t id : ids) text += id < 257 ? std::string(1, static_cast<char>(id - 1)) : "#";
    return text;
  };
  std::vector<std::string> parts;
  const Example told = Examples()[0];
  for (const std::vector<int32_t>& ids : told.parts) parts.push_back(text_of(ids));
  EXPECT_THAT(parts, ElementsAre("#[user]a#[assistant]", "b#", "[user]c#[assistant]", "d#"));
  store_config(R"(, "chat_template": "the forgetful")");
  ExpectRefusal(RunTokenizer(folder_ + "/turns.jsonl", whole), 65,
                "writes what was said otherwise once more follows");
  store_config(R"(, "chat_template": "the template")");

  const std::string rude = Store("rude.jsonl", "{\"prompt\": \"refuse me\", \"answer\": \"b\"}\n");
  ExpectRefusal(RunTokenizer(rude, own), 65,
                "the chat template refuses the conversation: it is rude");
  const std::string marked =
      Store("marked.jsonl", "{\"prompt\": \"<|eot_id|>\", \"answer\": \"b\"}\n");
  ExpectRefusal(RunTokenizer(marked, own), 65, "a message holds a special token");
  store_config(R"(, "chat_template": [{"name": "default", "template": "another"}])");
  ExpectRefusal(RunTokenizer(pair, own), 65, "does not write the prompt first");
  store_config("");
  ExpectRefusal(RunTokenizer(pair, own), 65, "has no chat_template; pass --chat-template llada");
  ExpectRefusal(RunPieces(pair, own), 64, "--chat-template tokenizer takes the template from a");
}

TEST_F(PromptsTest, TextsStayAsTheyAreWrittenByATokenizer) {
  Done(RunTokenizer(Store("a.jsonl", "{\"prompt\": \" a\\n\\n b \", \"answer\": \"c\\n\"}\n")));
  const auto example = Examples()[0];
  std::string prompt;
  for (const int32_t id : example.parts[0]) prompt.push_back(static_cast<char>(id - 1));
  EXPECT_EQ(prompt, " a\n\n b ");
  EXPECT_EQ(example.parts[1].size(), 2u);
}

TEST_F(PromptsTest, BadInputIsNamedWithItsLine) {
  const std::vector<std::string> chat = {"--chat-template", "chatml"};
  ExpectRefused(R"({"prompt": "a"})", "the object has the field 'prompt' but no field 'answer'");
  ExpectRefused(R"({"messages": []})",
                "the field 'messages' is a conversation, for models that generate; say how it is "
                "written with `anyorder prep --chat-template`: ");
  ExpectRefused(R"({"messages": []})", "the field 'messages' is not a list of messages", chat);
  ExpectRefused(R"({"messages": [{"role": "user"}]})",
                "the field 'messages[0]' is not an object with 'role' and 'content'", chat);
  ExpectRefused(R"({"messages": [{"role": "user", "content": 1}]})",
                "the field 'messages[0].content' is not a string", chat);
  ExpectRefused(R"({"messages": [{"role": "user", "content": " "}]})",
                "the field 'messages[0].content' holds no text", chat);
  ExpectRefused(R"({"messages": [{"role": "user", "content": "a"}, )"
                R"({"role": "assistant", "content": ""}]})",
                "the field 'messages[1].content' holds no text", chat);
  ExpectRefused(R"({"messages": [{"role": "assistant", "content": "a"}]})",
                "the field 'messages' begins with a message of the role 'assistant'", chat);
  ExpectRefused(R"({"text": "a", "label": "b"})", "an example of classification among", chat);
  const std::string classes = Store("classes.jsonl", "{\"text\": \"a\", \"label\": \"b\"}\n");
  ExpectRefusal(RunPieces(classes, chat), 65,
                "classes.jsonl:1: an example of classification, but "
                "--chat-template is for examples of generation alone");
  ExpectRefusal(RunTokenizer(classes), 65, "--tokenizer encodes examples of generation alone");
  const std::string pair = Store("pair.jsonl", "{\"source\": \"a\", \"target\": \"b\"}\n");
  ExpectRefusal(RunTokenizer(pair, chat), 65,
                "the chat template has <|im_start|>, which is no token of it");
  ExpectRefusal(RunPieces(pair, {"--chat-template", "llama"}), 64, "--chat-template 'llama' is");
  ExpectRefusal(RunPrepProgram({"--examples", pair, "--output", NextOutput()}), 64,
                "--examples needs --vocab MODEL");
}

}  // namespace
}  // namespace anyorder::data
