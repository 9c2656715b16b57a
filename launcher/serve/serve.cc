// `anyorder serve`: a model for other programs, over standard streams or HTTP.

#include "launcher/serve/serve.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/train/run/stop_signal.h"
#include "launcher/process/periodic_task.h"
#include "launcher/serve/chat_session.h"
#include "launcher/serve/http_server.h"
#include "launcher/serve/request_queue.h"
#include "launcher/serve/stdio_server.h"
#include "launcher/texts/model_text_service.h"

namespace anyorder::launcher {
namespace {

struct ServeOptions : TextModelOptions {
  bool stdio = false;
  std::string http;
  bool has_http = false;
  std::string token_file;
  std::vector<std::string> origins;
  std::string public_url;
  std::string chat_template;
  RequestLimits limits;  // max_texts is --max-batch
  int64_t max_queue = 64;
  int64_t max_body_kib = 1024;
  int64_t max_wait_seconds = 300;
};

constexpr absl::Duration kStopCheck = absl::Milliseconds(50);

// Until a stop signal.
absl::Status ServeHttp(const ServeOptions& options, const HttpOptions& http, TextService& service) {
  RequestQueue queue(service, {options.max_queue, options.limits.max_texts});
  if (!http.chat_template.empty())
    RETURN_IF_ERROR(ChatSession::Start(service.facts(), http.chat_template, "").status());
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server,
                   HttpServer::Start(http, service.facts(), queue));
  Log(absl::StrCat("serving ", options.run_dir, ", step ", service.facts().step, ", at http://",
                   server->address().ToText(), "/"));
  while (StopSignal() == 0) absl::SleepFor(kStopCheck);
  Log(absl::StrCat(StopWords(), ": finishing what is being computed"));
  server->Stop();
  return absl::OkStatus();
}

absl::StatusOr<HttpOptions> MakeHttpOptions(const ServeOptions& options) {
  HttpOptions http;
  if (!options.http.empty()) {
    ASSIGN_OR_RETURN(http.address, ParseListenAddress(options.http));
  }
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(http.guard.token, ReadToken(options.token_file));
  }
  for (const std::string& text : options.origins) {
    ASSIGN_OR_RETURN(const WebAddress page, ParseWebAddress(text == "*" ? "any://page" : text));
    if (!page.path.empty()) return InvalidArgument("--cors '", text, "' has a path; no origin has");
    http.guard.origins.push_back(text == "*" ? text : page.origin);
  }
  if (!options.public_url.empty()) {
    ASSIGN_OR_RETURN(http.guard.public_address, ParseWebAddress(options.public_url));
  }
  RETURN_IF_ERROR(CheckMayListen(http));
  http.limits = options.limits;
  http.chat_template = options.chat_template;
  http.guard.max_body_bytes = options.max_body_kib << 10;
  http.max_wait = absl::Seconds(options.max_wait_seconds);
  // A request holds a thread until it is answered: these are enough for all requests that wait
  // or are computed, and for some that are refused.
  http.max_connections = options.max_queue + 2 * options.limits.max_texts + 32;
  return http;
}

// Errors: InvalidArgument for options that do not fit one another; those of `open` and of the
// servers.
absl::Status Serve(const ServeOptions& options, OpenService open) {
  if (options.stdio == options.has_http)
    return InvalidArgument("pass --stdio or --http [ADDRESS]; see anyorder serve --help");
  ASSIGN_OR_RETURN(const HttpOptions http, MakeHttpOptions(options));
  InstallStopSignals();
  const PeriodicTask at_second_signal(kStopCheck, [] {
    if (StopIsUrgent()) ::_exit(kExitRequeue);
  });
  ASSIGN_OR_RETURN(const std::unique_ptr<TextService> service, open(options));
  if (options.has_http) return ServeHttp(options, http, *service);
  Log(absl::StrCat("serving ", options.run_dir, ", step ", service->facts().step,
                   ", on standard input and output"));
  return ServeLines(STDIN_FILENO, STDOUT_FILENO, *service, options.limits,
                    static_cast<size_t>(options.max_body_kib) << 10);
}

void AddLimits(CLI::App* command, CLI::Option* http, ServeOptions& options) {
  AddCount(command, "--max-tokens", options.limits.max_tokens,
           "most tokens a request may ask to write", 1, 1 << 20);
  AddCount(command, "--max-prompt", options.limits.max_prompt,
           "most tokens of a text to read (default: as many as the model has learned to read, 16 "
           "times as many if it has memory)",
           1, kMostTokens);
  AddCount(command, "--max-batch", options.limits.max_texts,
           "most texts computed at once; also most samples of a request", 1, 1024);
  AddCount(command, "--max-queue", options.max_queue,
           "most requests that wait; further ones get status 429", 1, 4096)
      ->needs(http);
  AddCount(command, "--max-body", options.max_body_kib, "most KiB of a request", 1, 1 << 16);
  AddCount(command, "--max-wait", options.max_wait_seconds,
           "most seconds until a request is answered; then it gets status 504", 1, 86400)
      ->needs(http);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextService>> OpenModel(const TextModelOptions& options) {
  return ModelTextService::Open(options);
}

Subcommand DeclareServe(CLI::App& front) { return DeclareServe(front, OpenModel); }

Subcommand DeclareServe(CLI::App& front, OpenService open) {
  const auto options = std::make_shared<ServeOptions>();
  CLI::App* command = AddCommand(
      front, "serve", "Serve a model over HTTP or as JSON lines.",
      {"anyorder serve runs/a --http",
       "anyorder serve runs/a --http 0.0.0.0:8080 --token-file token",
       "echo '{\"op\": \"fill\", \"text\": \"the ___ fox\"}' | anyorder serve runs/a --stdio"});
  AddRunDir(command, options->run_dir, "run directory");
  CLI::Option* stdio = command->add_flag("--stdio", options->stdio,
                                         "answer JSON lines of standard input on standard output");
  CLI::Option* http =
      command
          ->add_option_function<std::vector<std::string>>(
              "--http",
              [options](const std::vector<std::string>& values) {
                options->has_http = true;
                if (!values.empty()) options->http = values.front();
              },
              absl::StrCat("listen at HOST:PORT (default: ", ListenAddress().ToText(),
                           "); port 0: any free port, which is logged"))
          ->expected(0, 1)
          ->excludes(stdio)
          ->type_name("[ADDRESS]");
  AddPath(
      command, "--token-file", options->token_file,
      "file with the token that requests must show; required to listen at other than a loopback "
      "address",
      PathUse::kReadFile)
      ->needs(http);
  AddPath(command, "--cors", options->origins,
          "let pages of this origin ask, such as https://app.example; may be given again; *: all")
      ->allow_extra_args(false)
      ->needs(http)
      ->type_name("ORIGIN");
  AddPath(command, "--public-url", options->public_url,
          "where a proxy before the server is reached, such as https://models.example/llm")
      ->needs(http)
      ->type_name("URL");
  AddChatTemplate(command, options->chat_template)->needs(http);
  AddLimits(command, http, *options);
  AddTextModelOptions(command, *options);
  return {command, [options, open] { return Report(Serve(*options, open)); }, /*computes=*/true};
}

}  // namespace anyorder::launcher
