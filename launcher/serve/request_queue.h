// Requests of many threads to one TextService, which is not thread-safe.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "core/base/mutex.h"
#include "launcher/texts/request_json.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

struct QueueOptions {
  int64_t max_waiting = 64;  // requests that no one computes yet
  int64_t max_batch = 8;     // texts that are computed at once
};

struct SampledToken {
  int64_t sample = 0;
  ShownToken token;
};

// A request in the queue. Thread-safe.
class Ticket {
 public:
  Ticket(TextRequest request, absl::Time deadline)
      : request_(std::move(request)), deadline_(deadline) {}

  // Returns after `limit` at the latest; at once if there is an answer, or a token that
  // TakeTokens has not returned yet. Whether there is an answer.
  bool Await(absl::Duration limit);
  // The tokens that came since the last call, in the order of writing: of completions that stream.
  std::vector<SampledToken> TakeTokens() {
    const MutexLock lock(&mutex_);
    return std::exchange(tokens_, {});
  }
  // Nobody wants the answer any more: it leaves the queue, or ends after the pass that computes it.
  void GiveUp() {
    const MutexLock lock(&mutex_);
    is_given_up_ = true;
  }

  const TextRequest& request() const { return request_; }
  absl::Time deadline() const { return deadline_; }  // by MonotonicNow
  // REQUIRES: Await returned true.
  const absl::StatusOr<TextResult>& answer() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return *answer_;
  }

 private:
  friend class RequestQueue;

  // What it is answered instead of being computed; OK if it may be.
  absl::Status CheckWanted();
  void AddToken(SampledToken token) {
    const MutexLock lock(&mutex_);
    if (!is_given_up_) tokens_.push_back(std::move(token));
  }
  // Unless there is one.
  void SetAnswer(absl::StatusOr<TextResult> answer) {
    const MutexLock lock(&mutex_);
    if (!answer_) answer_ = std::move(answer);
  }

  TextRequest request_;
  const absl::Time deadline_;

  Mutex mutex_;
  std::vector<SampledToken> tokens_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::StatusOr<TextResult>> answer_ ABSL_GUARDED_BY(mutex_);  // set once
  bool is_given_up_ ABSL_GUARDED_BY(mutex_) = false;
};

class RequestQueue {
 public:
  // One thread asks `service`, which must outlive the queue and which nobody else asks meanwhile.
  RequestQueue(TextService& service, const QueueOptions& options)
      : service_(service), options_(options), thread_([this] { Run(); }) {}
  ~RequestQueue() { Stop(); }
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // All of `requests`, or none. A request whose deadline passes is answered with DeadlineExceeded,
  // and takes no place from then on; one that is being computed ends after the pass of the network
  // that runs. `streams`: tokens of completions that are written from left to right are told; those
  // of others are no beginning of a text. Errors: QueueFull if there is no room, Unavailable after
  // Stop.
  absl::StatusOr<std::vector<std::shared_ptr<Ticket>>> Submit(std::vector<TextRequest> requests,
                                                              absl::Time deadline,
                                                              bool streams = false);

  // What is being computed is finished, but for rolling scores; these, what waits and what comes
  // later are Unavailable. Returns when nothing is computed any more. May be called again.
  void Stop();

  int64_t num_waiting();

 private:
  using Tickets = std::vector<std::shared_ptr<Ticket>>;

  void Run();
  // Waits for something to do; false at the end.
  bool AwaitWork();
  void SetCallbacks(Ticket& ticket, bool streams);
  // Answers those that nobody wants any more, and that are late.
  void DropUnwanted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first that waits, and what may be computed together with it: completions of lanes up to
  // `most_texts`, or what has none. Empty if none of these waits.
  Tickets Next(bool of_lanes, int64_t most_texts);
  // A token of the texts that have lanes, which others that wait take before.
  void StepLanes();

  TextService& service_;
  const QueueOptions options_;

  Mutex mutex_;
  // Shared with who waits for the answer.
  std::deque<std::shared_ptr<Ticket>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the thread alone.
  std::unique_ptr<CompletionLanes> lanes_;  // null while it has no texts
  Tickets in_lanes_;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace anyorder::launcher
