#include "launcher/serve/request_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/monotonic_clock.h"
#include "core/base/mutex.h"
#include "tests/launcher/serve/fake_service.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;

// A service whose calls wait until they may begin.
class GatedService : public FakeTextService {
 public:
  GatedService() {
    before_call = [this] {
      const MutexLock lock(&mutex_);
      ++num_begun_;
      mutex_.Await(
          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_begun_ <= num_allowed_; });
    };
  }

  void Allow(int calls) {
    const MutexLock lock(&mutex_);
    num_allowed_ += calls;
  }
  void AwaitBegun(int calls) {
    const MutexLock lock(&mutex_);
    mutex_.Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_begun_ >= calls; });
  }

 private:
  Mutex mutex_;
  int num_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_allowed_ ABSL_GUARDED_BY(mutex_) = 0;
};

TextRequest Completes(const std::string& prompt, int64_t samples = 1) {
  CompletionRequest completion{.prompt = prompt, .samples = samples};
  completion.write.method = WriteMethod::kLeftToRight;
  TextRequest request;
  request.what = completion;
  return request;
}
TextRequest Scores(const std::string& text) {
  TextRequest request;
  request.what = ScoreRequest{.continuation = text};
  return request;
}

std::shared_ptr<Ticket> SubmitOne(RequestQueue& queue, TextRequest request,
                                  absl::Time deadline = absl::InfiniteFuture(),
                                  bool streams = false) {
  const auto tickets = queue.Submit({std::move(request)}, deadline, streams).value();
  return tickets.front();
}

std::shared_ptr<Ticket> Stream(RequestQueue& queue, TextRequest request) {
  return SubmitOne(queue, std::move(request), absl::InfiniteFuture(), /*streams=*/true);
}

// A queue whose service computes one request, `running`, until Allow().
template <typename Service = GatedService>
struct BusyQueue {
  explicit BusyQueue(const QueueOptions& options = {}, TextRequest first = Completes("running"))
      : queue(service, options), running(SubmitOne(queue, std::move(first))) {
    service.AwaitBegun(1);
  }
  // The queue's end else waits for the service, in a test that returns early.
  ~BusyQueue() { Allow(); }
  void Allow() { service.Allow(1 << 20); }

  Service service;
  RequestQueue queue;
  const std::shared_ptr<Ticket> running;
};

const absl::StatusOr<TextResult>& AnswerOf(Ticket& ticket) {
  while (!ticket.Await(absl::Seconds(1))) ticket.TakeTokens();
  return ticket.answer();
}
std::string TextOf(Ticket& ticket) {
  const auto& answer = AnswerOf(ticket);
  if (!answer.ok()) return std::string(answer.status().message());
  return std::get<std::vector<Completion>>(*answer).front().text;
}

// All that is told of a ticket.
std::string ToldOf(Ticket& ticket) {
  std::string told;
  for (bool is_done = false; !is_done;) {
    is_done = ticket.Await(absl::Seconds(10));
    for (const SampledToken& token : ticket.TakeTokens()) told += token.token.piece;
  }
  return told;
}

TEST(RequestQueueTest, WhatWaitsIsComputedTogetherUpToTheLimit) {
  BusyQueue<> busy({.max_waiting = 100, .max_batch = 4});
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (int i = 0; i < 5; ++i)
    tickets.push_back(SubmitOne(busy.queue, Completes(absl::StrCat("p", i))));
  const auto score = SubmitOne(busy.queue, Scores("a b"));
  tickets.push_back(SubmitOne(busy.queue, Completes("two of it", 2)));
  busy.Allow();
  EXPECT_EQ(TextOf(*busy.running), " running");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(TextOf(*tickets[i]), absl::StrCat(" p", i));
  EXPECT_EQ(TextOf(*tickets[5]), " it of two");
  EXPECT_EQ(std::get<TextScore>(*AnswerOf(*score)).log_prob, -2);
  // A token of each text in a lane at a time; what has no lanes comes between.
  EXPECT_THAT(busy.service.calls, ElementsAre(1, 1, 4, 3, 2, 1));
}

TEST(RequestQueueTest, AFullQueueRefusesAllOfASubmission) {
  BusyQueue<> busy({.max_waiting = 2, .max_batch = 1});
  const auto waiting = SubmitOne(busy.queue, Completes("waiting"));
  EXPECT_EQ(busy.queue.num_waiting(), 1);
  const auto two = busy.queue.Submit({Completes("a"), Completes("b")}, absl::InfiniteFuture());
  EXPECT_TRUE(IsQueueFull(two.status()));
  EXPECT_THAT(two.status(), Says("the queue is full: 1 of 2 requests wait; try again later"));
  EXPECT_EQ(busy.queue.num_waiting(), 1);
  const auto last = SubmitOne(busy.queue, Completes("last"));
  busy.Allow();
  EXPECT_EQ(TextOf(*busy.running), " running");
  EXPECT_EQ(TextOf(*waiting), " waiting");
  EXPECT_EQ(TextOf(*last), " last");
}

TEST(RequestQueueTest, WhatNobodyWaitsForTakesNoPlace) {
  BusyQueue<> busy({.max_waiting = 2, .max_batch = 1});
  const auto left = SubmitOne(busy.queue, Completes("left"));
  const auto late = SubmitOne(busy.queue, Completes("late"), MonotonicNow() - absl::Seconds(1));
  left->GiveUp();
  const auto both = SubmitOne(busy.queue, Completes("both"), MonotonicNow() - absl::Seconds(1));
  both->GiveUp();
  // Before anything else is computed.
  EXPECT_EQ(busy.queue.num_waiting(), 0);
  EXPECT_EQ(TextOf(*left), "nobody waited for the answer");
  EXPECT_EQ(AnswerOf(*late).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(TextOf(*late), "the request waited for longer than it may");
  EXPECT_EQ(TextOf(*both), TextOf(*late));
  const auto gone =
      busy.queue.Submit({Completes("gone"), Completes("gone")}, absl::InfiniteFuture()).value();
  for (const auto& ticket : gone) ticket->GiveUp();
  const auto last =
      busy.queue.Submit({Completes("a"), Completes("b")}, absl::InfiniteFuture()).value();
  busy.Allow();
  EXPECT_EQ(TextOf(*busy.running), " running");
  EXPECT_EQ(TextOf(*last.back()), " b");
  EXPECT_THAT(busy.service.calls, ElementsAre(1, 1, 1));
}

TextRequest Rolls() {
  std::string text;
  for (int i = 0; i < 200; ++i) absl::StrAppend(&text, " w", i);
  TextRequest request;
  request.what = RollingRequest{.text = text};
  return request;
}

TEST(RequestQueueTest, RollingScoresEndBetweenPasses) {
  for (const bool is_left : {true, false}) {
    BusyQueue<> busy({}, Rolls());
    std::thread stopper;
    if (is_left) {
      busy.running->GiveUp();
    } else {
      stopper = std::thread([&busy] { busy.queue.Stop(); });
      while (!absl::IsUnavailable(busy.queue.Submit({}, absl::InfiniteFuture()).status()))
        std::this_thread::yield();
    }
    busy.Allow();
    EXPECT_EQ(TextOf(*busy.running),
              is_left ? "nobody waited for the answer" : "the server is being stopped");
    if (stopper.joinable()) stopper.join();
    busy.queue.Stop();
    EXPECT_EQ(busy.service.calls.size(), 1u);
    EXPECT_EQ(busy.service.scored.size(), 0u);
  }
}

TEST(RequestQueueTest, RollingScoresHaveATimeLimit) {
  size_t num_calls = 0;
  // On a busy machine the first window may begin too late.
  for (absl::Duration limit = absl::Milliseconds(50); num_calls == 0; limit *= 2) {
    FakeTextService service;
    const absl::Time deadline = MonotonicNow() + limit;
    service.before_call = [deadline] {
      while (MonotonicNow() <= deadline) std::this_thread::yield();
    };
    RequestQueue queue(service, {});
    const auto rolling = SubmitOne(queue, Rolls(), deadline);
    EXPECT_EQ(TextOf(*rolling), "the request waited for longer than it may");
    queue.Stop();
    num_calls = service.calls.size();
  }
  EXPECT_EQ(num_calls, 1u);
}

TEST(RequestQueueTest, AFaultIsThatOfItsOwnRequest) {
  BusyQueue<> busy;
  const auto streamed = Stream(busy.queue, Completes("a b c", 2));
  const auto bad = Stream(busy.queue, Completes("a fault"));
  busy.Allow();
  // Of two samples: all words, and all but the first, a word of each in turn.
  EXPECT_EQ(ToldOf(*streamed), " c b b a a");
  EXPECT_EQ(TextOf(*streamed), " c b a");
  EXPECT_EQ(TextOf(*bad), "'prompt' has the word fault");
}

TEST(RequestQueueTest, TextsJoinAndLeaveBetweenTokens) {
  BusyQueue<> busy({.max_batch = 2}, Completes("a b c d e f"));
  const auto two = SubmitOne(busy.queue, Completes("g h"));
  const auto last = SubmitOne(busy.queue, Completes("i"));
  busy.service.Allow(3);  // "f", "e h", "d g"
  EXPECT_EQ(TextOf(*two), " h g");
  busy.service.Allow(1);  // "c i"
  EXPECT_EQ(TextOf(*last), " i");
  EXPECT_FALSE(busy.running->Await(absl::ZeroDuration()));
  busy.Allow();
  EXPECT_EQ(TextOf(*busy.running), " f e d c b a");
  EXPECT_THAT(busy.service.calls, ElementsAre(1, 2, 2, 2, 1, 1));
}

TEST(RequestQueueTest, ATextThatNobodyWantsEndsAfterItsToken) {
  BusyQueue<> busy({.max_batch = 1}, Completes("a b c d e f"));
  const auto next = SubmitOne(busy.queue, Completes("next"));
  busy.running->GiveUp();
  busy.service.Allow(1);
  busy.service.AwaitBegun(2);
  busy.Allow();
  EXPECT_EQ(TextOf(*next), " next");
  EXPECT_EQ(TextOf(*busy.running), "nobody waited for the answer");
  EXPECT_LE(busy.service.calls.size(), 3u);
}

TEST(RequestQueueTest, OthersAreComputedBetweenTokensAndTokensBetweenTheirPasses) {
  BusyQueue<> busy({}, Completes("a b c d e f"));
  const auto score = SubmitOne(busy.queue, Scores("x y"));
  const auto rolling = SubmitOne(busy.queue, Rolls());
  busy.service.Allow(3);  // a step, the score, the step of its pass
  EXPECT_EQ(std::get<TextScore>(*AnswerOf(*score)).log_prob, -2);
  EXPECT_FALSE(busy.running->Await(absl::ZeroDuration()));
  busy.service.Allow(4);  // while the other text is cut
  EXPECT_EQ(TextOf(*busy.running), " f e d c b a");
  EXPECT_FALSE(rolling->Await(absl::ZeroDuration()));
  busy.Allow();
  EXPECT_TRUE(AnswerOf(*rolling).ok());
}

// Asks as ModelTextService does: before a pass, and after it for each text.
class PassingService : public GatedService {
 public:
  absl::StatusOr<std::vector<std::vector<Completion>>> Complete(
      const std::vector<CompletionRequest>& requests) override {
    const size_t before = calls.size();
    for (const CompletionRequest& request : requests) EXPECT_TRUE(request.is_wanted());
    EXPECT_EQ(calls.size(), before);
    EXPECT_TRUE(requests[0].check_wanted().ok());
    EXPECT_EQ(calls.size(), before + 1);
    return FakeTextService::Complete(requests);
  }
};

TEST(RequestQueueTest, LanesStepOnceAPassOfTextsInAnyOrder) {
  BusyQueue<PassingService> busy({}, Completes("a b c d e f"));
  TextRequest request = Completes("x y");
  std::get<CompletionRequest>(request.what).write.method = WriteMethod::kLlada;
  const auto ticket = SubmitOne(busy.queue, std::move(request));
  busy.Allow();
  EXPECT_EQ(TextOf(*ticket), " y x");
  EXPECT_EQ(TextOf(*busy.running), " f e d c b a");
}

TEST(RequestQueueTest, TokensInAnyOrderAreNotTold) {
  FakeTextService service;
  RequestQueue queue(service, {});
  TextRequest request = Completes("a b c");
  std::get<CompletionRequest>(request.what).write.method = WriteMethod::kLlada;
  const auto ticket = Stream(queue, std::move(request));
  EXPECT_EQ(ToldOf(*ticket), "");
  EXPECT_EQ(TextOf(*ticket), " c b a");
}

TEST(RequestQueueTest, ManyThreadsEachGetTheirOwnAnswers) {
  FakeTextService service;
  RequestQueue queue(service, {.max_waiting = 1000, .max_batch = 8});
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string word = absl::StrCat("t", t, "-", i);
        if (TextOf(*SubmitOne(queue, Completes(word))) == " " + word) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 16 * 50);
}

}  // namespace
}  // namespace anyorder::launcher
