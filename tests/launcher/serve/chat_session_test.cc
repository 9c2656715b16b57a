#include "launcher/serve/chat_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::HasSubstr;

ModelFacts Facts(const std::string& chat_template) {
  ModelFacts facts;
  facts.run_dir = "runs/a";
  facts.chat_template = chat_template;
  return facts;
}

TEST(ChatSessionTest, PromptsAreWrittenAsPreparationWritesThem) {
  auto session = ChatSession::Start(Facts("chatml"), "", "Be brief.").value();
  EXPECT_EQ(session.closing(), "<|im_end|>");
  session.Ask("Hi");
  const std::string first =
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>"
      "assistant\n";
  EXPECT_EQ(session.Prompt(), first);
  session.SetAnswer("Hello");
  session.Ask("Bye");
  EXPECT_EQ(session.Prompt(), first +
                                  "Hello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
                                  "<|im_start|>assistant\n");
  session.TakeBack();
  session.Reset();
  session.Ask("Hi");
  EXPECT_EQ(session.Prompt(), first);
}

TEST(ChatSessionTest, TheOldestTurnsAreForgottenButNotTheSystemMessage) {
  auto session = ChatSession::Start(Facts("<{role}>{content}"), "", "S");
  for (const char* words : {"1", "2"}) {
    session->Ask(words);
    session->SetAnswer("a");
  }
  session->Ask("3");
  EXPECT_TRUE(session->ForgetOldest());
  EXPECT_EQ(session->Prompt(), "<system>S<user>2<assistant>a<user>3<assistant>");
  EXPECT_TRUE(session->ForgetOldest());
  EXPECT_FALSE(session->ForgetOldest());
  EXPECT_EQ(session->Prompt(), "<system>S<user>3<assistant>");
}

TEST(ChatSessionTest, NoTextHasAMark) {
  auto session = ChatSession::Start(Facts("llada"), "", "");
  EXPECT_EQ(session->closing(), "<|eot_id|>");
  session->Ask(std::string("a\0b", 3));
  EXPECT_THAT(session->Prompt(), HasSubstr("<|end_header_id|>\n\nab<|eot_id|>"));
}

TEST(ChatSessionTest, NamesAndTextsAreNoFiles) {
  const TemporaryDirectory directory;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path());
  for (const char* name : {"chatml", "<{role}>{content}", "nonsense"})
    std::ofstream(name) << "file {role}: {content}\\n\n";
  const auto prompt = [](const std::string& own, const std::string& given) {
    const auto session = ChatSession::Start(Facts(own), given, "S");
    return session.ok() ? session->Prompt() : std::string(session.status().message());
  };
  EXPECT_THAT(prompt("chatml", ""), testing::StartsWith("<|im_start|>system"));
  EXPECT_THAT(prompt("llada", "chatml"), testing::StartsWith("<|im_start|>system"));
  EXPECT_THAT(prompt("<{role}>{content}", ""), testing::StartsWith("<system>S"));
  EXPECT_THAT(prompt("llada", "<{role}>{content}"), testing::StartsWith("<system>S"));
  EXPECT_THAT(prompt("llada", "./chatml"), testing::StartsWith("file system: S\nfile assistant: "));
  EXPECT_THAT(prompt("llada", "nonsense"), testing::StartsWith("file system: S\nfile assistant: "));
  EXPECT_EQ(ChatSession::Start(Facts("llada"), "./chatml", "")->closing(), "");
  // That of a dataset names no file of the directory in which somebody happens to be.
  EXPECT_THAT(prompt("nonsense", ""), HasSubstr("is neither llada, chatml"));
  std::filesystem::current_path(before);
}

TEST(ChatSessionTest, FaultsSayWhatToDo) {
  const auto fault = [](const ModelFacts& facts, const std::string& chat_template) {
    return std::string(ChatSession::Start(facts, chat_template, "").status().message());
  };
  EXPECT_THAT(fault(Facts(""), ""),
              HasSubstr("runs/a: no chat template is known, so the model was not trained on "
                        "conversations, or its dataset is gone; pass --chat-template"));
  EXPECT_THAT(fault(Facts("tokenizer"), ""), HasSubstr("is a tokenizer's own"));
}

}  // namespace
}  // namespace anyorder::launcher
