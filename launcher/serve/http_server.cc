#include "launcher/serve/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "launcher/serve/acceptor.h"
#include "launcher/serve/answer.h"
#include "launcher/serve/event_stream.h"
#include "launcher/serve/openai_json.h"
#include "launcher/texts/object_reader.h"

namespace anyorder::launcher {
namespace {

using OrderedJson = nlohmann::ordered_json;
using HttpRequest = httplib::Request;
using HttpResponse = httplib::Response;

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr int kBacklog = 512;
constexpr char kJsonType[] = "application/json";
// The page's own script and style, and requests to this server; nothing from elsewhere.
constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src "
    "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// The library, which reads each request through a Connection: one a connection, so that what a
// refused request left unread is never taken for the next one.
class HttpLibrary final : public httplib::Server {
 public:
  explicit HttpLibrary(const HttpOptions& options) : options_(options) {
    set_payload_max_length(static_cast<size_t>(options_.max_body_bytes));
    // The library's default would let a second server take half of the connections.
    set_socket_options([](socket_t socket) {
      const int on = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    });
    set_default_headers({{"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-store"}});
  }
  ~HttpLibrary() override { const UniqueFd listener(svr_sock_.exchange(INVALID_SOCKET)); }

  bool Bind(ListenAddress& address) {
    if (address.port == 0) {
      address.port = bind_to_any_port(address.host);
      if (address.port < 0) return false;
    } else if (!bind_to_port(address.host, address.port)) {
      return false;
    }
    // The library asks for 5, with which connections of more clients are retried after a second.
    return ::listen(svr_sock_, kBacklog) == 0;
  }
  // Its own loop, which this replaces, ends at the first fault of accept(2) that it does not know.
  int listener() const { return svr_sock_; }

  // See Acceptor::Serve.
  void ServeOne(int socket, const std::function<void()>& has_asked) {
    Connection connection(socket, options_.connection);
    bool is_closed = false;
    process_request(connection, /*close_connection=*/true, is_closed, [&](HttpRequest& request) {
      has_asked();
      request.ranges.clear();  // parts of answers, overlapping ones too, would be made of them
      int64_t bytes = 0;
      const bool is_number = absl::SimpleAtoi(request.get_header_value("Content-Length"), &bytes);
      connection.BeginBody(is_number ? std::min(bytes, options_.max_body_bytes) : 0,
                           request.version == "HTTP/1.1");
      // The library itself asks it of clients only.
      request.progress = [&connection](uint64_t, uint64_t) { return connection.IsOpen(); };
    });
    connection.Drain();
  }

 private:
  const HttpOptions options_;
};

HttpHead HeadOf(const HttpRequest& request) {
  HttpHead head{.method = request.method, .path = request.path};
  for (const auto& [name, value] :
       {std::pair{"Host", &head.host}, std::pair{"Origin", &head.origin},
        std::pair{"Authorization", &head.authorization},
        std::pair{"Content-Type", &head.content_type},
        std::pair{"Content-Length", &head.content_length},
        std::pair{"Content-Encoding", &head.content_encoding},
        std::pair{"Transfer-Encoding", &head.transfer_encoding}}) {
    *value = request.get_header_value(name);
    head.has_repeated |= request.get_header_value_count(name) > 1;
  }
  return head;
}

GuardOptions GuardOf(const HttpOptions& options) {
  return {options.token, options.address.is_loopback(), options.max_body_bytes};
}

void SendJson(HttpResponse& response, int status, const OrderedJson& json) {
  response.status = status;
  response.set_content(JsonText(json), kJsonType);
}

void SendError(HttpResponse& response, int http_status, const absl::Status& status) {
  if (http_status == 429) response.set_header("Retry-After", "1");
  if (http_status == 401) response.set_header("WWW-Authenticate", "Bearer");
  if (http_status >= 500) LogWarning(absl::StrCat("HTTP ", http_status, ": ", status.message()));
  SendJson(response, http_status, OpenAiError(http_status, status));
}
void SendError(HttpResponse& response, const absl::Status& status) {
  SendError(response, HttpStatus(status), status);
}

class QueueServer final : public HttpServer {
 public:
  QueueServer(const HttpOptions& options, const ModelFacts& facts, RequestQueue& queue)
      : options_(options),
        facts_(facts),
        model_(std::filesystem::absolute(facts.run_dir).lexically_normal().filename()),
        queue_(queue),
        address_(options.address),
        library_(options) {
    AddHandlers();
  }
  ~QueueServer() override { Stop(); }

  absl::Status Listen() {
    if (!library_.Bind(address_))
      return Unavailable("cannot listen at ", address_.ToText(),
                         ": its port is taken, or the address is not this machine's");
    acceptor_.emplace(library_.listener(),
                      [this](int socket, const std::function<void()>& has_asked) {
                        library_.ServeOne(socket, has_asked);
                      });
    return acceptor_->Start(options_.max_connections);
  }

  const ListenAddress& address() const override { return address_; }

  void Stop() override {
    is_stopping_ = true;
    queue_.Stop();
    if (acceptor_) acceptor_->Stop(options_.stop_time);
  }

 private:
  using Tickets = std::vector<std::shared_ptr<Ticket>>;

  void AddHandlers() {
    library_.set_pre_routing_handler([this](const HttpRequest& request, HttpResponse& response) {
      return Guard(request, response);
    });
    // Of what the library refuses itself.
    library_.set_error_handler([](const HttpRequest&, HttpResponse& response) {
      if (response.body.empty())
        SendError(response, response.status,
                  InvalidArgument("the request is broken, too long or came too slowly"));
    });
    library_.Get("/", [](const HttpRequest&, HttpResponse& response) {
      response.set_header("Content-Security-Policy", kPagePolicy);
      response.set_content(kServePage, "text/html; charset=utf-8");
    });
    library_.Get("/health", [this](const HttpRequest& request, HttpResponse& response) {
      OrderedJson health = {{"status", "ok"}};
      if (HasToken(HeadOf(request), GuardOf(options_))) health["waiting"] = queue_.num_waiting();
      SendJson(response, 200, health);
    });
    library_.Get("/v1/models",
                 [this](const HttpRequest&, HttpResponse& response) { Models(response); });
    library_.Post("/v1/completions", [this](const HttpRequest& request, HttpResponse& response) {
      Complete(request, response);
    });
    library_.Post("/v1/infill", [this](const HttpRequest& request, HttpResponse& response) {
      Native(request, response, RequestOp::kFill);
    });
    library_.Post("/v1/score", [this](const HttpRequest& request, HttpResponse& response) {
      Native(request, response, RequestOp::kScore);
    });
  }

  HttpLibrary::HandlerResponse Guard(const HttpRequest& request, HttpResponse& response) {
    const HttpFault fault = CheckHead(HeadOf(request), GuardOf(options_));
    if (fault.status != 0) {
      SendError(response, fault.status, StatusOf(fault));
    } else if (is_stopping_) {
      SendError(response, 503, StoppedError());
    } else {
      return HttpLibrary::HandlerResponse::Unhandled;
    }
    return HttpLibrary::HandlerResponse::Handled;
  }

  void Models(HttpResponse& response) {
    OrderedJson model = {{"id", model_},
                         {"object", "model"},
                         {"created", absl::ToUnixSeconds(started_)},
                         {"owned_by", "anyorder"}};
    OrderedJson facts = ResultJson({}, facts_);
    facts.erase("run");  // a path of this machine
    model.update(facts);
    model["max_tokens"] = options_.limits.max_tokens;
    model["max_texts"] = options_.limits.max_texts;
    SendJson(response, 200, {{"object", "list"}, {"data", OrderedJson::array({model})}});
  }

  OpenAiHead MakeHead() {
    return {absl::StrCat("cmpl-", absl::Hex(absl::ToUnixMicros(started_)), "-", ++num_completions_),
            absl::ToUnixSeconds(absl::Now()), model_};
  }

  // False, and nothing to send, if the client is gone.
  bool AwaitAnswers(const HttpRequest& request, const Tickets& tickets) {
    for (const auto& ticket : tickets) {
      while (!ticket->Await(kTick)) {
        const bool is_late = MonotonicNow() > ticket->deadline();
        if (!is_late && request.progress(0, 0)) continue;
        for (const auto& one : tickets) one->GiveUp();
        return is_late;
      }
    }
    return true;
  }
  static absl::StatusOr<TextResult> AnswerOf(Ticket& ticket) {
    if (!ticket.Await(absl::ZeroDuration())) return LateError();
    return ticket.answer();
  }

  absl::StatusOr<Tickets> Submit(std::vector<TextRequest> requests, bool streams) {
    return queue_.Submit(std::move(requests), MonotonicNow() + options_.max_wait, streams);
  }

  // A request of request_json.h whose `op` the path says.
  void Native(const HttpRequest& request, HttpResponse& response, RequestOp op) {
    const absl::StatusOr<TextRequest> parsed = ParseNative(request.body, op);
    if (!parsed.ok()) return SendError(response, parsed.status());
    const absl::StatusOr<Tickets> tickets = Submit({*parsed}, false);
    if (!tickets.ok()) return SendError(response, tickets.status());
    if (!AwaitAnswers(request, *tickets)) return;
    const absl::StatusOr<TextResult> answer = AnswerOf(*tickets->front());
    if (!answer.ok()) return SendError(response, answer.status());
    SendJson(response, 200, ResultJson(*parsed, *answer));
  }

  absl::StatusOr<TextRequest> ParseNative(const std::string& body, RequestOp op) {
    ANYORDER_ASSIGN_OR_RETURN(nlohmann::json json, ParseJson(body));
    if (!json.is_object()) return InvalidArgument("the body is an object");
    for (const char* key : {"op", "id"})
      if (json.contains(key))
        return KeyFault(key, "has no place here: the path says what is asked");
    // A text of any length.
    const bool is_rolling = op == RequestOp::kScore && json.contains("text");
    json["op"] = EnumName(is_rolling ? RequestOp::kRolling : op);
    return ParseRequest(json, facts_, options_.limits);
  }

  void Complete(const HttpRequest& request, HttpResponse& response) {
    const absl::StatusOr<nlohmann::json> json = ParseJson(request.body);
    if (!json.ok()) return SendError(response, json.status());
    const absl::StatusOr<OpenAiRequest> parsed =
        ParseOpenAi(*json, model_, facts_, options_.limits);
    if (!parsed.ok()) return SendError(response, parsed.status());
    const absl::StatusOr<Tickets> tickets = Submit(parsed->prompts, parsed->streams);
    if (!tickets.ok()) return SendError(response, tickets.status());
    if (parsed->streams) return Stream(request, response, *parsed, *tickets);
    if (!AwaitAnswers(request, *tickets)) return;
    std::vector<std::vector<Completion>> completions;
    for (const auto& ticket : *tickets) {
      absl::StatusOr<TextResult> answer = AnswerOf(*ticket);
      if (!answer.ok()) return SendError(response, answer.status());
      completions.push_back(std::get<std::vector<Completion>>(*std::move(answer)));
    }
    SendJson(response, 200, OpenAiResponse(MakeHead(), *parsed, completions));
  }

  void Stream(const HttpRequest& request, HttpResponse& response, const OpenAiRequest& parsed,
              const Tickets& tickets) {
    // Shared with the library, which copies what it calls.
    const auto events = std::make_shared<EventStream>(MakeHead(), parsed, tickets);
    while (!events->Await(kTick))
      if (!request.progress(0, 0)) return events->GiveUp();
    if (!events->early_fault().ok()) return SendError(response, events->early_fault());
    const auto provider = [events, is_client_there = request.progress](size_t,
                                                                       httplib::DataSink& sink) {
      const bool has_more = events->Await(kTick);
      const std::string text = events->Take();
      const bool is_sent = has_more ? sink.write(text.data(), text.size()) : is_client_there(0, 0);
      if (!is_sent) events->GiveUp();
      if (is_sent && events->is_done()) sink.done();
      return is_sent;
    };
    constexpr char kEventType[] = "text/event-stream";
    // RFC 9112, section 6.1: HTTP/1.0 has no chunks; there the closed connection ends the stream.
    if (request.version == "HTTP/1.1")
      return response.set_chunked_content_provider(kEventType, provider);
    response.set_content_provider(kEventType, provider);
  }

  const HttpOptions options_;
  const ModelFacts facts_;
  const std::string model_;
  RequestQueue& queue_;
  const absl::Time started_ = absl::Now();
  ListenAddress address_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<int64_t> num_completions_ = 0;
  HttpLibrary library_;
  std::optional<Acceptor> acceptor_;  // last: uses all of the above
};

}  // namespace

absl::Status CheckMayListen(const HttpOptions& options) {
  if (options.address.is_loopback() || !options.token.empty()) return absl::OkStatus();
  return InvalidArgument("--http ", options.address.ToText(),
                         " is reached from other machines; pass --token-file, or listen at "
                         "127.0.0.1");
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                              const ModelFacts& facts,
                                                              RequestQueue& queue) {
  ANYORDER_RETURN_IF_ERROR(CheckMayListen(options));
  auto server = std::make_unique<QueueServer>(options, facts, queue);
  ANYORDER_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace anyorder::launcher
