// A TextService over HTTP: OpenAI's completions, blanks, scores and a page (README.md).

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "launcher/serve/http_guard.h"
#include "launcher/serve/limiting_proxy.h"
#include "launcher/serve/request_queue.h"
#include "launcher/texts/request_json.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

struct HttpOptions {
  ListenAddress address;
  GuardOptions guard;  // the server sees itself whether `address` is a loopback one
  RequestLimits limits;
  std::string chat_template;  // ChatSession::Start's; where there is none, no conversation is taken
  int64_t max_connections = 128;                 // at once; the others wait
  absl::Duration max_wait = absl::Minutes(5);    // for an answer, then 504
  absl::Duration stop_time = absl::Seconds(10);  // that clients have at the end; then they are cut
  ConnectionLimits connection;
};

// InvalidArgument for an address that others reach without a token.
absl::Status CheckMayListen(const HttpOptions& options);

// The page, serve_page.html as CMakeLists.txt puts it into the program.
extern const char kServePage[];

// Threads of its own from Start to the end.
class HttpServer {
 public:
  // Listens. `queue` must outlive the server. Errors: those of CheckMayListen and of
  // ScratchFolder; ResourceExhausted if it may not open enough files; Unavailable if it cannot
  // listen there, or cannot start its threads.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                           const ModelFacts& facts,
                                                           RequestQueue& queue);
  virtual ~HttpServer() = default;

  // With the port that was chosen.
  virtual const ListenAddress& address() const = 0;
  // New requests get 503, those that are computed their answers; then nothing listens any more.
  // Stops the queue. Returns once what is computed is finished and clients have taken their
  // answers, for which they have `stop_time` from then on.
  virtual void Stop() = 0;
};

}  // namespace anyorder::launcher
