#include "launcher/serve/request_queue.h"

#include <utility>

#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "launcher/serve/answer.h"

namespace anyorder::launcher {

bool Ticket::Await(absl::Duration limit) {
  const MutexLock lock(&mutex_);
  const auto has_news = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return answer_.has_value() || !tokens_.empty();
  };
  mutex_.AwaitWithTimeout(has_news, limit);
  return answer_.has_value();
}

absl::Status Ticket::CheckWanted() {
  const MutexLock lock(&mutex_);
  // First: who waited until then gives up, too, and is told this.
  if (deadline_ < MonotonicNow())
    return DeadlineExceeded("the request waited for longer than it may");
  if (is_given_up_) return DeadlineExceeded("nobody waited for the answer");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::shared_ptr<Ticket>>> RequestQueue::Submit(
    std::vector<TextRequest> requests, absl::Time deadline, bool streams) {
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (TextRequest& request : requests) {
    tickets.push_back(std::make_shared<Ticket>(std::move(request), deadline));
    SetCallbacks(*tickets.back(), streams);
  }
  const MutexLock lock(&mutex_);
  if (stopping_) return StoppedError();
  DropUnwanted();
  if (static_cast<int64_t>(waiting_.size() + tickets.size()) > options_.max_waiting)
    return QueueFull(absl::StrCat("the queue is full: ", waiting_.size(), " of ",
                                  options_.max_waiting, " requests wait; try again later"));
  waiting_.insert(waiting_.end(), tickets.begin(), tickets.end());
  return tickets;
}

void RequestQueue::Stop() {
  std::deque<std::shared_ptr<Ticket>> left;
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
    left.swap(waiting_);
  }
  for (const auto& ticket : left) ticket->SetAnswer(StoppedError());
  if (thread_.joinable()) thread_.join();
}

// Plain references: the ticket owns the request, and outlives what computes it.
void RequestQueue::SetCallbacks(Ticket& ticket, bool streams) {
  const bool ends_at_stop = std::holds_alternative<RollingRequest>(ticket.request_.what);
  const auto check = [this, &ticket, ends_at_stop] {
    StepLanes();  // which go on between the passes of others
    const MutexLock lock(&mutex_);
    return ends_at_stop && stopping_ ? StoppedError() : ticket.CheckWanted();
  };
  const auto set_check = [&check](auto& what) {
    if constexpr (requires { what.check_wanted; }) what.check_wanted = check;
  };
  std::visit(set_check, ticket.request_.what);
  auto* const completion = std::get_if<CompletionRequest>(&ticket.request_.what);
  if (completion == nullptr) return;
  completion->done = [&ticket](absl::StatusOr<std::vector<Completion>> answer) {
    ticket.SetAnswer(answer.ok() ? absl::StatusOr<TextResult>(*std::move(answer))
                                 : answer.status());
  };
  completion->is_wanted = [&ticket] { return ticket.CheckWanted().ok(); };
  if (!CompletionLanes::Take(*completion)) return;
  completion->check_wanted = [&ticket] { return ticket.CheckWanted(); };
  if (!streams) return;
  completion->listener = [&ticket](int64_t sample, const ShownToken& token) {
    ticket.AddToken({sample, token});
  };
}

int64_t RequestQueue::num_waiting() {
  const MutexLock lock(&mutex_);
  DropUnwanted();
  return static_cast<int64_t>(waiting_.size());
}

void RequestQueue::DropUnwanted() {
  std::erase_if(waiting_, [](const std::shared_ptr<Ticket>& ticket) {
    const absl::Status wanted = ticket->CheckWanted();
    if (!wanted.ok()) ticket->SetAnswer(wanted);
    return !wanted.ok();
  });
}

bool RequestQueue::AwaitWork() {
  const MutexLock lock(&mutex_);
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !waiting_.empty();
  };
  while (lanes_ == nullptr) {
    mutex_.Await(has_work);
    DropUnwanted();
    if (has_work()) return !stopping_;
  }
  return true;
}

RequestQueue::Tickets RequestQueue::Next(bool of_lanes, int64_t most_texts) {
  const MutexLock lock(&mutex_);
  DropUnwanted();
  Tickets batch;
  int64_t texts = 0;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const TextRequest& request = (*it)->request();
    const auto* completion = std::get_if<CompletionRequest>(&request.what);
    const bool is_meant = of_lanes == (completion != nullptr && CompletionLanes::Take(*completion));
    const bool is_first = batch.empty();
    if (!is_first && is_meant && texts + request.num_texts() > most_texts) break;
    // What shares no passes is computed alone.
    if (is_meant && (is_first || (completion && batch[0]->request().op() == request.op()))) {
      texts += request.num_texts();
      batch.push_back(std::move(*it));
      it = waiting_.erase(it);
    } else {
      ++it;
    }
  }
  return batch;
}

void RequestQueue::StepLanes() {
  const int64_t taken = lanes_ == nullptr ? 0 : lanes_->num_texts();
  if (taken < options_.max_batch) {
    for (const std::shared_ptr<Ticket>& ticket : Next(true, options_.max_batch - taken)) {
      if (lanes_ == nullptr) lanes_ = service_.OpenLanes(options_.max_batch);
      const absl::Status added = lanes_->Add(std::get<CompletionRequest>(ticket->request().what));
      if (added.ok()) in_lanes_.push_back(ticket);
      if (!added.ok()) ticket->SetAnswer(added);
    }
  }
  if (lanes_ == nullptr) return;
  lanes_->Step();
  std::erase_if(in_lanes_, [](const auto& ticket) { return ticket->Await(absl::ZeroDuration()); });
  if (lanes_->num_texts() == 0) lanes_ = nullptr;
}

void RequestQueue::Run() {
  while (AwaitWork()) {
    StepLanes();
    const Tickets batch = Next(false, options_.max_batch);
    std::vector<const TextRequest*> requests;
    for (const auto& ticket : batch) requests.push_back(&ticket->request());
    std::vector<absl::StatusOr<TextResult>> answers = Answer(service_, requests);
    for (size_t i = 0; i < answers.size(); ++i) {
      const absl::Status wanted = batch[i]->CheckWanted();
      batch[i]->SetAnswer(wanted.ok() ? std::move(answers[i]) : wanted);
    }
  }
}

}  // namespace anyorder::launcher
