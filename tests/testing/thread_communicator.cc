#include "tests/testing/thread_communicator.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"

namespace anyorder::testing {
namespace {

// Where the ranks meet: each shows a pointer to its arguments, all read, all leave.
class MeetingPlace {
 public:
  explicit MeetingPlace(int num_ranks) : num_ranks_(num_ranks), slots_(num_ranks) {}

  // Returns when every rank has shown its arguments of the same collective.
  void Show(int rank, const char* collective, const void* arguments) {
    slots_[rank] = {collective, arguments};
    Wait();
    for (const Slot& slot : slots_) {
      ANYORDER_CHECK(std::strcmp(slot.collective, collective) == 0)
          << "rank " << rank << " is in " << collective << ", another in " << slot.collective;
    }
  }
  template <typename T>
  const T& Shown(int rank) const {
    return *static_cast<const T*>(slots_[rank].arguments);
  }
  // Returns when every rank has called it; what was shown may then go away.
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t round = round_;
    if (++num_waiting_ == num_ranks_) {
      num_waiting_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return round_ != round; });
  }

 private:
  struct Slot {
    const char* collective;
    const void* arguments;
  };
  const int num_ranks_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_waiting_ = 0;
  int64_t round_ = 0;
};

class ThreadCommunicator final : public dist::Communicator {
 public:
  ThreadCommunicator(MeetingPlace& place, int rank, int num_ranks, const std::string& host)
      : Communicator(rank, num_ranks, host.empty() ? absl::StrCat("thread", rank) : host),
        place_(place) {}

 private:
  void DoBarrier() override {
    place_.Show(rank(), "barrier", nullptr);
    place_.Wait();
  }

  void DoBroadcast(absl::Span<char> bytes, int root) override {
    place_.Show(rank(), "broadcast", &bytes);
    const auto& source = place_.Shown<absl::Span<char>>(root);
    ANYORDER_CHECK(source.size() == bytes.size());
    if (rank() != root) std::memcpy(bytes.data(), source.data(), bytes.size());
    place_.Wait();
  }

  void DoAllGather(absl::Span<const char> mine, absl::Span<char> all) override {
    place_.Show(rank(), "all-gather", &mine);
    for (int peer = 0; peer < world_size(); ++peer) {
      const auto& theirs = place_.Shown<absl::Span<const char>>(peer);
      ANYORDER_CHECK(theirs.size() == mine.size());
      std::memcpy(all.data() + peer * mine.size(), theirs.data(), mine.size());
    }
    place_.Wait();
  }

  void DoExchange(absl::Span<const dist::SendBlock> send,
                  absl::Span<const dist::ReceiveBlock> receive) override {
    place_.Show(rank(), "exchange", &send);
    std::vector<size_t> next(world_size(), 0);
    for (const dist::ReceiveBlock& block : receive) {
      const auto& theirs = place_.Shown<absl::Span<const dist::SendBlock>>(block.from);
      size_t& i = next[block.from];
      while (i < theirs.size() && theirs[i].to != rank()) ++i;
      ANYORDER_CHECK(i < theirs.size() && theirs[i].bytes.size() == block.bytes.size())
          << "from rank " << block.from;
      std::memcpy(block.bytes.data(), theirs[i].bytes.data(), block.bytes.size());
      ++i;
    }
    place_.Wait();
  }

  void DoReduceScatterAnyOrder(absl::Span<const float> mine, absl::Span<const int64_t> offsets,
                               absl::Span<float> owned) override {
    place_.Show(rank(), "reduce-scatter", &mine);
    for (size_t i = 0; i < owned.size(); ++i) {
      owned[i] = place_.Shown<absl::Span<const float>>(0)[offsets[rank()] + i];
      for (int peer = 1; peer < world_size(); ++peer)
        owned[i] += place_.Shown<absl::Span<const float>>(peer)[offsets[rank()] + i];
    }
    place_.Wait();
  }

  MeetingPlace& place_;
};

}  // namespace

void RunThreadRanks(int num_ranks, const std::function<void(dist::Communicator&)>& body,
                    const std::string& host) {
  MeetingPlace place(num_ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&place, &body, &host, rank, num_ranks] {
      ThreadCommunicator communicator(place, rank, num_ranks, host);
      body(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace anyorder::testing
