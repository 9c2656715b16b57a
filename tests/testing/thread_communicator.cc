#include "tests/testing/thread_communicator.h"

#include <cstring>
#include <deque>
#include <thread>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/mutex.h"

namespace anyorder::testing {
namespace {

struct Message {
  const char* collective;
  size_t size;
  std::vector<char> bytes;  // empty if they are too many to be moved
};

// What has been sent to a rank and not been received.
class Mailbox {
 public:
  void Put(int from, Message message) {
    const MutexLock lock(&mutex_);
    messages_[from].push_back(std::move(message));
  }
  Message Take(int from) {
    const MutexLock lock(&mutex_);
    std::deque<Message>& queue = messages_[from];
    mutex_.Await([&queue] { return !queue.empty(); });
    Message message = std::move(queue.front());
    queue.pop_front();
    return message;
  }

 private:
  Mutex mutex_;
  std::map<int, std::deque<Message>> messages_ ABSL_GUARDED_BY(mutex_);
};

class ThreadCommunicator final : public dist::Communicator {
 public:
  ThreadCommunicator(std::vector<Mailbox>& mailboxes, int rank, const ThreadRanksOptions& options)
      : Communicator(rank, static_cast<int>(mailboxes.size()),
                     options.host.empty() ? absl::StrCat("thread", rank) : options.host),
        mailboxes_(mailboxes),
        options_(options) {}

 private:
  void Send(int to, absl::Span<const char> bytes) {
    Message message{collective(), bytes.size(), {}};
    if (static_cast<int64_t>(bytes.size()) <= options_.most_moved_bytes)
      message.bytes.assign(bytes.begin(), bytes.end());
    mailboxes_[to].Put(rank(), std::move(message));
  }
  void Receive(int from, absl::Span<char> bytes) {
    const Message message = mailboxes_[rank()].Take(from);
    ANYORDER_CHECK(std::strcmp(message.collective, collective()) == 0)
        << "rank " << rank() << " is in " << collective() << ", rank " << from << " in "
        << message.collective;
    ANYORDER_CHECK(message.size == bytes.size())
        << message.size << " bytes from rank " << from << " where " << bytes.size() << " are due";
    if (!message.bytes.empty()) std::memcpy(bytes.data(), message.bytes.data(), bytes.size());
  }

  void DoExchange(absl::Span<const dist::SendBlock> send,
                  absl::Span<const dist::ReceiveBlock> receive) override {
    for (const dist::SendBlock& block : send) {
      Send(block.to, block.bytes);
      if (options_.traffic == nullptr) continue;
      Sent& sent = (*options_.traffic)[rank()][block.to];
      ++sent.messages;
      sent.bytes += static_cast<int64_t>(block.bytes.size());
    }
    for (const dist::ReceiveBlock& block : receive) Receive(block.from, block.bytes);
  }

  // In the order of ranks.
  std::vector<Mailbox>& mailboxes_;
  const ThreadRanksOptions& options_;
};

}  // namespace

void RunThreadRanks(int num_ranks, const std::function<void(dist::Communicator&)>& body,
                    const ThreadRanksOptions& options) {
  if (options.traffic != nullptr) options.traffic->assign(num_ranks, {});
  std::vector<Mailbox> mailboxes(num_ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&mailboxes, &body, &options, rank] {
      ThreadCommunicator communicator(mailboxes, rank, options);
      body(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace anyorder::testing
