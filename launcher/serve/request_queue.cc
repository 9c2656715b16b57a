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

std::vector<SampledToken> Ticket::TakeTokens() {
  const MutexLock lock(&mutex_);
  return std::exchange(tokens_, {});
}

void Ticket::GiveUp() {
  const MutexLock lock(&mutex_);
  is_given_up_ = true;
}

absl::Status Ticket::CheckWanted() {
  const MutexLock lock(&mutex_);
  // First: who waited until then gives up, too, and is told this.
  if (deadline_ < MonotonicNow())
    return DeadlineExceeded("the request waited for longer than it may");
  if (is_given_up_) return DeadlineExceeded("nobody waited for the answer");
  return absl::OkStatus();
}

void Ticket::AddToken(SampledToken token) {
  const MutexLock lock(&mutex_);
  if (is_given_up_ || !IsNew(token)) return;
  tokens_.push_back(std::move(token));
}

// The second time is compared with the first one. The texts are the same but for rounding, which
// depends on the batch; where they are not, nothing more is told: the answer has the whole text.
bool Ticket::IsNew(const SampledToken& sampled) {
  const auto sample = static_cast<size_t>(sampled.sample);
  if (sample >= told_.size()) told_.resize(sample + 1);
  Told& told = told_[sample];
  if (told.pieces.empty()) told.first = sampled.token.position;
  const auto n = static_cast<size_t>(sampled.token.position - told.first);
  const bool is_again = n < told.pieces.size();
  if (is_again) told.differs |= told.pieces[n] != sampled.token.piece;
  if (is_again || told.differs) return false;
  told.pieces.push_back(sampled.token.piece);
  return true;
}

void Ticket::SetAnswer(absl::StatusOr<TextResult> answer) {
  const MutexLock lock(&mutex_);
  answer_ = std::move(answer);
}

RequestQueue::RequestQueue(TextService& service, const QueueOptions& options)
    : service_(service), options_(options), thread_([this] { Run(); }) {}

RequestQueue::~RequestQueue() { Stop(); }

absl::StatusOr<std::vector<std::shared_ptr<Ticket>>> RequestQueue::Submit(
    std::vector<TextRequest> requests, absl::Time deadline, bool streams) {
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (TextRequest& request : requests) {
    tickets.push_back(std::make_shared<Ticket>(std::move(request), deadline));
    auto* const completion = std::get_if<CompletionRequest>(&tickets.back()->request_.what);
    if (!streams || completion == nullptr) continue;
    if (completion->write.method != WriteMethod::kLeftToRight) continue;
    // A plain pointer: the ticket owns the request.
    completion->listener = [ticket = tickets.back().get()](int64_t sample,
                                                           const ShownToken& token) {
      ticket->AddToken({sample, token});
    };
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

absl::Status RequestQueue::CheckWanted(Ticket& ticket) {
  const MutexLock lock(&mutex_);
  return stopping_ ? StoppedError() : ticket.CheckWanted();
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

std::vector<std::shared_ptr<Ticket>> RequestQueue::Next() {
  const MutexLock lock(&mutex_);
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !waiting_.empty();
  };
  do {
    mutex_.Await(has_work);
    DropUnwanted();
  } while (!has_work());
  std::vector<std::shared_ptr<Ticket>> batch;
  int64_t texts = 0;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const TextRequest& request = (*it)->request();
    const bool is_first = batch.empty();
    const bool is_same = is_first || request.op() == batch[0]->request().op();
    if (is_same && !is_first && texts + request.num_texts() > options_.max_batch) break;
    if (is_same) {
      texts += request.num_texts();
      batch.push_back(std::move(*it));
    }
    it = is_same ? waiting_.erase(it) : it + 1;
  }
  return batch;
}

void RequestQueue::Run() {
  for (auto batch = Next(); !batch.empty(); batch = Next()) {
    std::vector<const TextRequest*> requests;
    for (const auto& ticket : batch) requests.push_back(&ticket->request());
    std::vector<absl::StatusOr<TextResult>> answers =
        Answer(service_, requests, [&](size_t n) { return CheckWanted(*batch[n]); });
    for (size_t i = 0; i < answers.size(); ++i) batch[i]->SetAnswer(std::move(answers[i]));
  }
}

}  // namespace anyorder::launcher
