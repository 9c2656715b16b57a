// `anyorder chat`: a conversation on a terminal, or with a program that writes a line a turn.

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "core/base/counted.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "data/prep/cleaning.h"
#include "launcher/process/display_width.h"
#include "launcher/serve/chat_session.h"
#include "launcher/serve/serve.h"
#include "launcher/serve/streamed_text.h"
#include "launcher/texts/write_flags.h"

namespace anyorder::launcher {
namespace {

struct ChatOptions : TextModelOptions {
  std::string chat_template;
  std::string system;
  std::optional<int64_t> max_tokens;
  WriteFlags flags;
};

constexpr char kCommands[] = "/reset forgets the conversation, /quit ends it.";

class Chat {
 public:
  Chat(TextService& service, ChatSession session, CompletionRequest request)
      : service_(service), session_(std::move(session)), request_(std::move(request)) {
    request_.begins_text = true;
    if (!session_.closing().empty()) request_.stop = {session_.closing()};
  }

  // Each line of standard input is a turn.
  absl::Status Run() {
    const bool prompts = is_typed_ && is_shown_;
    if (prompts) std::cout << kCommands << "\n";
    std::string line;
    while (true) {
      if (prompts) std::cout << "> " << std::flush;
      if (!std::getline(std::cin, line) || line == "/quit") break;
      if (line == "/reset") {
        session_.Reset();
      } else if (!absl::StripAsciiWhitespace(line).empty()) {
        const absl::Status answered = Turn(line);
        if (!answered.ok() && !is_typed_) return answered;
        if (!answered.ok()) LogWarning(answered.message());
      }
    }
    if (prompts) std::cout << "\n";
    return absl::OkStatus();
  }

 private:
  absl::Status Turn(const std::string& words) {
    session_.Ask(words);
    const absl::StatusOr<std::string> answer = Answer();
    if (!answer.ok()) {
      session_.TakeBack();
      return answer.status();
    }
    session_.SetAnswer(*answer);
    return absl::OkStatus();
  }

  // Drops turns until prompt and answer fit.
  absl::StatusOr<std::string> PromptThatFits() {
    int64_t forgotten = 0;
    std::string prompt = session_.Prompt();
    const int64_t most = service_.facts().seq_len - request_.max_tokens;
    while (true) {
      ASSIGN_OR_RETURN(const int64_t tokens, service_.CountTokens(prompt));
      if (tokens <= most || !session_.ForgetOldest()) break;
      ++forgotten;
      prompt = session_.Prompt();
    }
    if (forgotten > 0)
      LogWarning(absl::StrCat("the conversation is longer than the model reads; ",
                              Counted(forgotten, "turn"), " forgotten"));
    return prompt;
  }

  std::string Shown(const std::string& text) const {
    if (is_shown_) return DisplayableLines(text);
    std::string valid;
    data::AppendWithReplacements(text, valid);
    return valid;
  }

  absl::StatusOr<std::string> Answer() {
    ASSIGN_OR_RETURN(request_.prompt, PromptThatFits());
    StreamedText streamed(request_.write.method == WriteMethod::kLeftToRight, request_.stop);
    request_.listener = [&](int64_t, const ShownToken& token) {
      std::cout << Shown(streamed.Add(token.piece)) << std::flush;
    };
    const auto answers = service_.Complete({request_});
    RETURN_IF_ERROR(answers.status());
    const std::string& answer = answers->front().front().text;
    std::cout << Shown(streamed.Finish(answer)) << std::endl;
    return std::string(absl::StripAsciiWhitespace(answer));
  }

  TextService& service_;
  ChatSession session_;
  CompletionRequest request_;
  // A person types the input: a fault does not end the conversation.
  const bool is_typed_ = ::isatty(STDIN_FILENO) == 1;
  // A terminal would take some characters for commands.
  const bool is_shown_ = ::isatty(STDOUT_FILENO) == 1;
};

absl::Status RunChat(const ChatOptions& options, OpenService open) {
  ASSIGN_OR_RETURN(const std::unique_ptr<TextService> service, open(options));
  const ModelFacts& facts = service->facts();
  CompletionRequest request;
  ASSIGN_OR_RETURN(request.write, OptionsOf(options.flags, facts));
  request.max_tokens =
      options.max_tokens.value_or(std::clamp<int64_t>(facts.seq_len / 2, 1, kDefaultMaxTokens));
  ASSIGN_OR_RETURN(ChatSession session,
                   ChatSession::Start(facts, options.chat_template, options.system));
  return Chat(*service, std::move(session), request).Run();
}

}  // namespace

CLI::Option* AddChatTemplate(CLI::App* command, std::string& chat_template) {
  return command
      ->add_option("--chat-template", chat_template,
                   "how conversations are written, as prep --chat-template takes it, or else a "
                   "file that holds it (default: as in the run's dataset)")
      ->check(IsNotEmpty())
      ->type_name("NAME");
}

Subcommand DeclareChat(CLI::App& front) { return DeclareChat(front, OpenModel); }

Subcommand DeclareChat(CLI::App& front, OpenService open) {
  const auto options = std::make_shared<ChatOptions>();
  CLI::App* command =
      AddCommand(front, "chat", "Talk to a model that was fine-tuned on conversations.",
                 {"anyorder chat runs/sft", "anyorder chat runs/sft --system 'You are brief.'",
                  "echo 'Who are you?' | anyorder chat runs/sft --temperature 0"});
  AddRunDir(command, options->run_dir, "run directory");
  AddChatTemplate(command, options->chat_template);
  command->add_option("--system", options->system, "what the system message says")
      ->type_name("WORDS");
  AddCount(command, "--max-tokens", options->max_tokens,
           "most tokens of an answer (default: 128, or half of what the model reads)", 1,
           kMostTokens);
  AddWriteFlags(command, options->flags);
  AddTextModelOptions(command, *options);
  return {command, [options, open] { return Report(RunChat(*options, open)); }, /*computes=*/true};
}

}  // namespace anyorder::launcher
