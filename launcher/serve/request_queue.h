// Requests of many threads to one TextService, which is not thread-safe.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "core/base/mutex.h"
#include "launcher/texts/request_json.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

struct QueueOptions {
  int64_t max_waiting = 64;  // requests that no one computes yet
  int64_t max_batch = 8;     // texts of requests that are computed at once
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
  // Each comes once, also where a batch is computed again because another request in it has a
  // fault.
  std::vector<SampledToken> TakeTokens();
  // Nobody wants the answer any more: if nothing computes it yet, nothing will, and its place in
  // the queue is free.
  void GiveUp();

  const TextRequest& request() const { return request_; }
  absl::Time deadline() const { return deadline_; }  // by MonotonicNow
  // REQUIRES: Await returned true.
  const absl::StatusOr<TextResult>& answer() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return *answer_;
  }

 private:
  friend class RequestQueue;
  // The tokens of one sample that were told.
  struct Told {
    int64_t first = 0;                // position
    std::vector<std::string> pieces;  // at that position and the following ones
    bool differs = false;             // what was computed again has other tokens
  };

  // What it is answered instead of being computed; OK if it may be.
  absl::Status CheckWanted();
  void AddToken(SampledToken token);
  bool IsNew(const SampledToken& sampled) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetAnswer(absl::StatusOr<TextResult> answer);

  TextRequest request_;
  const absl::Time deadline_;

  Mutex mutex_;
  std::vector<SampledToken> tokens_ ABSL_GUARDED_BY(mutex_);
  std::vector<Told> told_ ABSL_GUARDED_BY(mutex_);                            // by sample
  std::optional<absl::StatusOr<TextResult>> answer_ ABSL_GUARDED_BY(mutex_);  // set once
  bool is_given_up_ ABSL_GUARDED_BY(mutex_) = false;
};

class RequestQueue {
 public:
  // One thread asks `service`, which must outlive the queue and which nobody else asks meanwhile.
  RequestQueue(TextService& service, const QueueOptions& options);
  ~RequestQueue();
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // All of `requests`, or none. A request whose deadline passes before it is computed is answered
  // with DeadlineExceeded, and takes no place from then on. A request that is being computed runs
  // to its end. Only rolling scores stop early, between two windows. `streams`: tokens of
  // completions that are written from left to right are told; those of others are no beginning of a
  // text. Errors: QueueFull if there is no room, Unavailable after Stop.
  absl::StatusOr<std::vector<std::shared_ptr<Ticket>>> Submit(std::vector<TextRequest> requests,
                                                              absl::Time deadline,
                                                              bool streams = false);

  // What the service is asked at the moment is finished; what waits, windows of rolling scores too,
  // and what comes later is Unavailable. Returns when nothing is computed any more. May be called
  // again.
  void Stop();

  int64_t num_waiting();

 private:
  void Run();
  absl::Status CheckWanted(Ticket& ticket);
  // Answers those that nobody wants any more, and that are late.
  void DropUnwanted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for requests; the first ones of one op that fit into a batch. Empty at the end.
  std::vector<std::shared_ptr<Ticket>> Next();

  TextService& service_;
  const QueueOptions options_;

  Mutex mutex_;
  // Shared with who waits for the answer.
  std::deque<std::shared_ptr<Ticket>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace anyorder::launcher
