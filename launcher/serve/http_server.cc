#include "launcher/serve/http_server.h"

#include <httplib.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <iterator>
#include <latch>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "core/base/json_members.h"
#include "core/base/log.h"
#include "core/base/machine_memory.h"
#include "core/base/monotonic_clock.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "launcher/process/new_files.h"
#include "launcher/process/periodic_task.h"
#include "launcher/serve/answer.h"
#include "launcher/serve/chat_session.h"
#include "launcher/serve/event_stream.h"
#include "launcher/serve/openai_json.h"
#include "launcher/texts/object_reader.h"

namespace anyorder::launcher {
namespace {

using OrderedJson = nlohmann::ordered_json;
using HttpRequest = httplib::Request;
using HttpResponse = httplib::Response;

constexpr absl::Duration kTick = absl::Milliseconds(100);
// The client's, and both ends of the way to the library.
constexpr int64_t kFilesPerConnection = 3;
constexpr int64_t kOtherFiles = 64;
constexpr time_t kLibraryLimit = 60;  // seconds: longer than the proxy lets a client wait
constexpr char kJsonType[] = "application/json";
// The page's own script and style, and requests to this server; nothing from elsewhere.
constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src "
    "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// A thread for each request. The library's own threads would need its OpenSSL linked here, and end
// the program where they cannot be started.
class Threads final : public httplib::TaskQueue {
 public:
  // Nothing, or from 0.15 on whether there is room.
  using Accepted = decltype(std::declval<httplib::TaskQueue&>().enqueue(nullptr));

  Accepted enqueue(std::function<void()> task) override {
    std::erase_if(running_, [](const std::future<void>& one) {
      return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
    try {
      running_.push_back(std::async(std::launch::async, task));
    } catch (const std::system_error&) {
      task();  // meanwhile the others wait
    }
    return static_cast<Accepted>(true);
  }
  void shutdown() override { running_.clear(); }

 private:
  std::vector<std::future<void>> running_;  // their ends wait for them
};

// Whether so many threads can be started: better known now than under load.
absl::Status CheckThreads(int64_t count) {
  absl::Status status;
  std::latch end(1);
  std::vector<std::thread> threads;
  try {
    while (std::ssize(threads) < count) threads.emplace_back([&end] { end.wait(); });
  } catch (const std::system_error& fault) {
    status = Unavailable("cannot start ", count, " threads: ", fault.code().message(),
                         "; lower --max-queue or raise the limit of processes");
  }
  end.count_down();
  for (std::thread& thread : threads) thread.join();
  return status;
}

// What regular expressions of the library recurse in: the system's default is 2 MiB where the limit
// of stacks is `unlimited`, and less where it is low or the C library another.
void RaiseThreadStacks() {
  pthread_attr_t defaults;
  size_t bytes = 0;
  if (::pthread_getattr_default_np(&defaults) != 0) return;
  ::pthread_attr_getstacksize(&defaults, &bytes);
  ::pthread_attr_setstacksize(&defaults, std::max<size_t>(bytes, 16 << 20));
  ::pthread_setattr_default_np(&defaults);
  ::pthread_attr_destroy(&defaults);
}

void SendJson(HttpResponse& response, int status, const OrderedJson& json) {
  response.status = status;
  response.set_content(DumpJson(json), kJsonType);
}

void SendError(HttpResponse& response, int http_status, const absl::Status& status) {
  if (http_status == 429) response.set_header("Retry-After", "1");
  if (http_status == 401) response.set_header("WWW-Authenticate", "Bearer");
  if (http_status >= 500) LogWarning(absl::StrCat("HTTP ", http_status, ": ", status.message()));
  SendJson(response, http_status, OpenAiError(http_status, status));
}
void Send(HttpResponse& response, const absl::StatusOr<OrderedJson>& answer) {
  if (answer.ok()) return SendJson(response, 200, *answer);
  SendError(response, HttpStatus(answer.status()), answer.status());
}

class QueueServer final : public HttpServer {
 public:
  QueueServer(const HttpOptions& options, const ModelFacts& facts, RequestQueue& queue)
      : options_(options),
        facts_(facts),
        model_(ParseJson(DumpJson(OrderedJson(PlaceName(facts.run_dir)))).value_or("model")),
        chat_(ChatSession::Start(facts, options.chat_template, "")),
        queue_(queue),
        address_(options.address) {
    options_.guard.is_loopback = address_.is_loopback();
  }
  ~QueueServer() override { Stop(); }

  absl::Status Start() {
    RETURN_IF_ERROR(RaiseOpenFiles(
        kOtherFiles + kFilesPerConnection * options_.max_connections,
        absl::StrCat("a server of ", options_.max_connections, " connections (--max-queue)")));
    RaiseThreadStacks();
    RETURN_IF_ERROR(CheckThreads(options_.max_connections));
    ASSIGN_OR_RETURN(ScratchFolder directory, ScratchFolder::Make("anyorder-serve"));
    socket_ = directory.path() + "/http";
    if (socket_.size() >= sizeof(sockaddr_un::sun_path))
      return InvalidArgument(socket_, ": TMPDIR is too long for a socket's name; shorten it");
    directory_.emplace(std::move(directory));
    auto listener = ListeningSocket::Open(address_.host, address_.port);
    if (!listener.ok())
      return Unavailable(listener.status().message(),
                         "; name another port, or an address of this machine");
    address_.port = listener->port();
    proxy_.emplace(*std::move(listener), socket_, options_.guard.public_address.path,
                   options_.max_connections, options_.connection);
    library_thread_ = std::thread([this] { RunLibrary(); });
    return absl::OkStatus();
  }

  const ListenAddress& address() const override { return address_; }

  void Stop() override {
    is_stopping_ = true;
    queue_.Stop();
    if (proxy_) proxy_->Stop(options_.stop_time);
    is_over_ = true;
    if (library_thread_.joinable()) library_thread_.join();
  }

 private:
  using Tickets = std::vector<std::shared_ptr<Ticket>>;

  // Until Stop. What accept(2) may fail with, but for EMFILE, ends a server of the library's:
  // another one goes on.
  void RunLibrary() {
    for (absl::Time next_warning = absl::InfinitePast();;) {
      httplib::Server library;
      int listener = -1;
      library.set_socket_options([&listener](socket_t socket) { listener = socket; });
      SetUp(library);
      AddHandlers(library);
      ::unlink(socket_.c_str());
      // The library asks for a queue of 5, for which connections of more clients would wait.
      if (library.bind_to_port(socket_, 1) && ::listen(listener, SOMAXCONN) == 0) {
        // It can be stopped once, while it listens.
        const PeriodicTask stopper(kTick, [this, &library, is_stopped = false]() mutable {
          if (is_over_ && !is_stopped && library.is_running()) {
            is_stopped = true;
            library.stop();
          }
        });
        library.listen_after_bind();
      }
      if (is_over_) return;
      if (MonotonicNow() >= next_warning) {
        LogWarning("cannot pass requests on; clients wait until it can");
        next_warning = MonotonicNow() + kWarningPeriod;
      }
      absl::SleepFor(kTick);
    }
  }

  void SetUp(httplib::Server& library) {
    library.new_task_queue = [] { return new Threads; };
    library.set_address_family(AF_UNIX);
    // So that what a refused request left unread is never taken for the next one.
    library.set_keep_alive_max_count(1);
    library.set_read_timeout(kLibraryLimit);
    library.set_write_timeout(kLibraryLimit);
    library.set_payload_max_length(static_cast<size_t>(options_.guard.max_body_bytes));
    library.set_default_headers(
        {{"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-store"}, {"Vary", "Origin"}});
  }

  void AddHandlers(httplib::Server& library) {
    library.set_pre_routing_handler([this](const HttpRequest& request, HttpResponse& response) {
      return Guard(request, response);
    });
    // Of what the library refuses itself.
    library.set_error_handler([](const HttpRequest&, HttpResponse& response) {
      if (response.body.empty())
        SendError(response, response.status,
                  InvalidArgument("the request is broken, too long or came too slowly"));
    });
    library.set_exception_handler(
        [](const HttpRequest&, HttpResponse& response, std::exception_ptr) {
          Send(response, absl::InternalError("the server cannot answer this request; it may be "
                                             "short of memory"));
        });
    library.Get("/", [](const HttpRequest&, HttpResponse& response) {
      response.set_header("Content-Security-Policy", kPagePolicy);
      response.set_content(kServePage, "text/html; charset=utf-8");
    });
    library.Get("/health", [this](const HttpRequest& request, HttpResponse& response) {
      OrderedJson health = {{"status", "ok"}};
      if (HasToken(request, options_.guard)) health["waiting"] = queue_.num_waiting();
      SendJson(response, 200, health);
    });
    library.Get("/v1/models", [this](const HttpRequest&, HttpResponse& response) {
      Send(response, OrderedJson{{"object", "list"}, {"data", OrderedJson::array({ModelJson()})}});
    });
    const auto post = [this, &library](const char* path, auto answer, auto kind) {
      library.Post(path, [=, this](const HttpRequest& request, HttpResponse& response) {
        (this->*answer)(request, response, kind);
      });
    };
    post("/v1/completions", &QueueServer::Complete, /*is_chat=*/false);
    post("/v1/chat/completions", &QueueServer::Complete, /*is_chat=*/true);
    post("/v1/infill", &QueueServer::Native, RequestOp::kFill);
    post("/v1/score", &QueueServer::Native, RequestOp::kScore);
  }

  httplib::Server::HandlerResponse Guard(const HttpRequest& request, HttpResponse& response) {
    const HttpFault fault = CheckHead(request, options_.guard);
    if (const std::string origin = ListedOrigin(request, options_.guard); !origin.empty()) {
      response.set_header("Access-Control-Allow-Origin", origin);
      response.set_header("Access-Control-Allow-Methods", "GET, POST");
      // The star, for what clients' libraries add, does not stand for Authorization.
      response.set_header("Access-Control-Allow-Headers", "Authorization, *");
      response.set_header("Access-Control-Max-Age", "600");
    }
    if (!fault.allowed.empty()) response.set_header("Allow", fault.allowed);
    if (fault.status == 204) {
      response.status = 204;
    } else if (fault.status != 0) {
      SendError(response, fault.status, StatusOf(fault));
    } else if (is_stopping_) {
      SendError(response, 503, StoppedError());
    } else if (request.path.starts_with(kModelPath)) {
      // Not the library's: there a path is a regular expression.
      Send(response, OneModel(request.path.substr(sizeof(kModelPath) - 1)));
    } else {
      return httplib::Server::HandlerResponse::Unhandled;
    }
    return httplib::Server::HandlerResponse::Handled;
  }

  OrderedJson ModelJson() const {
    OrderedJson model = {{"id", model_},
                         {"object", "model"},
                         {"created", absl::ToUnixSeconds(started_)},
                         {"owned_by", "anyorder"}};
    OrderedJson facts = ResultJson({}, facts_);
    facts.erase("run");  // a path of this machine
    model.update(facts);
    model["max_tokens"] = options_.limits.max_tokens;
    model["max_texts"] = options_.limits.max_texts;
    return model;
  }
  absl::StatusOr<OrderedJson> OneModel(const std::string& name) const {
    if (name == model_) return ModelJson();
    return NotFound("there is no model '", name.substr(0, 80), "'; this server has '", model_, "'");
  }

  OpenAiHead MakeHead(bool is_chat) {
    return {absl::StrCat(is_chat ? "chatcmpl-" : "cmpl-", absl::Hex(absl::ToUnixMicros(started_)),
                         "-", ++num_completions_),
            absl::ToUnixSeconds(absl::Now()), model_, is_chat};
  }

  bool IsClientThere(const HttpRequest& request) {
    return proxy_->IsOpen(request.get_header_value(kConnectionHeader));
  }
  absl::StatusOr<Tickets> Submit(std::vector<TextRequest> requests, bool streams) {
    return queue_.Submit(std::move(requests), MonotonicNow() + options_.max_wait, streams);
  }
  // None if the client is gone, to which there is nothing to send.
  absl::StatusOr<std::vector<TextResult>> Answers(const HttpRequest& request,
                                                  std::vector<TextRequest> requests) {
    ASSIGN_OR_RETURN(const Tickets tickets, Submit(std::move(requests), /*streams=*/false));
    // However this ends, nobody waits any more.
    const absl::Cleanup give_up = [&tickets] {
      for (const auto& ticket : tickets) ticket->GiveUp();
    };
    std::vector<TextResult> answers;
    for (const auto& ticket : tickets) {
      while (!ticket->Await(kTick)) {
        if (MonotonicNow() > ticket->deadline()) return LateError();
        if (!IsClientThere(request)) return std::vector<TextResult>();
      }
      RETURN_IF_ERROR(ticket->answer().status());
      answers.push_back(*ticket->answer());
    }
    return answers;
  }

  // A request of request_json.h whose `op` the path says.
  void Native(const HttpRequest& request, HttpResponse& response, RequestOp op) {
    const absl::StatusOr<TextRequest> asked = ParseNative(request.body, op);
    if (!asked.ok()) return Send(response, asked.status());
    const auto answers = Answers(request, {*asked});
    if (!answers.ok()) return Send(response, answers.status());
    if (!answers->empty()) Send(response, ResultJson(*asked, answers->front()));
  }

  absl::StatusOr<TextRequest> ParseNative(const std::string& body, RequestOp op) {
    ASSIGN_OR_RETURN(nlohmann::json json, ParseJson(body));
    if (!json.is_object()) return InvalidArgument("the body is an object");
    for (const char* key : {"op", "id"})
      if (json.contains(key))
        return KeyFault(key, "has no place here: the path says what is asked");
    // A text of any length.
    const bool is_rolling = op == RequestOp::kScore && json.contains("text");
    json["op"] = EnumName(is_rolling ? RequestOp::kRolling : op);
    return ParseRequest(json, facts_, options_.limits);
  }

  absl::StatusOr<OpenAiRequest> ParseCompletion(const std::string& body, bool is_chat) const {
    ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(body));
    if (is_chat) RETURN_IF_ERROR(chat_.status());
    return ParseOpenAi(json, model_, facts_, options_.limits, is_chat ? &*chat_ : nullptr);
  }

  void Complete(const HttpRequest& request, HttpResponse& response, bool is_chat) {
    const absl::StatusOr<OpenAiRequest> asked = ParseCompletion(request.body, is_chat);
    if (!asked.ok()) return Send(response, asked.status());
    if (asked->streams) return Stream(request, response, *asked);
    const auto answers = Answers(request, asked->prompts);
    if (!answers.ok()) return Send(response, answers.status());
    std::vector<std::vector<Completion>> completions;
    for (const TextResult& answer : *answers)
      completions.push_back(std::get<std::vector<Completion>>(answer));
    if (!completions.empty())
      Send(response, OpenAiResponse(MakeHead(is_chat), *asked, completions));
  }

  void Stream(const HttpRequest& request, HttpResponse& response, const OpenAiRequest& asked) {
    const absl::StatusOr<Tickets> tickets = Submit(asked.prompts, /*streams=*/true);
    if (!tickets.ok()) return Send(response, tickets.status());
    // Shared with the library, which copies what it calls.
    const auto events = std::make_shared<EventStream>(MakeHead(asked.is_chat), asked, *tickets);
    while (!events->Await(kTick))
      if (!IsClientThere(request)) return events->GiveUp();
    if (!events->early_fault().ok()) return Send(response, events->early_fault());
    const auto provider = [this, events, connection = request.get_header_value(kConnectionHeader)](
                              size_t, httplib::DataSink& sink) {
      const bool has_more = events->Await(kTick);
      const std::string text = events->Take();
      const bool is_sent =
          has_more ? sink.write(text.data(), text.size()) : proxy_->IsOpen(connection);
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

  HttpOptions options_;
  const ModelFacts facts_;
  const std::string model_;
  const absl::StatusOr<ChatSession> chat_;  // without a message
  RequestQueue& queue_;
  const absl::Time started_ = absl::Now();
  ListenAddress address_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<int64_t> num_completions_ = 0;
  std::optional<ScratchFolder> directory_;  // nobody else reaches the library
  std::string socket_;                      // where it listens
  std::optional<LimitingProxy> proxy_;
  std::atomic<bool> is_over_ = false;
  std::thread library_thread_;  // last: uses all of the above
};

}  // namespace

absl::Status CheckMayListen(const HttpOptions& options) {
  if (options.address.is_loopback() || !options.guard.token.empty()) return absl::OkStatus();
  return InvalidArgument("--http ", options.address.ToText(),
                         " is reached from other machines; pass --token-file, or listen at "
                         "127.0.0.1");
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                              const ModelFacts& facts,
                                                              RequestQueue& queue) {
  RETURN_IF_ERROR(CheckMayListen(options));
  auto server = std::make_unique<QueueServer>(options, facts, queue);
  RETURN_IF_ERROR(server->Start());
  return server;
}

}  // namespace anyorder::launcher
