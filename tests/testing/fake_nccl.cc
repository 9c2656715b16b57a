#include "tests/testing/fake_nccl.h"

#include <cstring>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "core/base/check.h"
#include "dist/nccl_transport.h"

namespace anyorder::testing {

void FakeWire::Send(int from, int to, std::vector<char> bytes) {
  const MutexLock lock(&mutex_);
  bytes_from_[from] += static_cast<int64_t>(bytes.size());
  messages_[{from, to}].push_back(std::move(bytes));
}

int64_t FakeWire::bytes_from(int rank) const {
  const MutexLock lock(&mutex_);
  const auto found = bytes_from_.find(rank);
  return found == bytes_from_.end() ? 0 : found->second;
}

std::vector<char> FakeWire::Receive(int from, int to) {
  const MutexLock lock(&mutex_);
  auto& queue = messages_[{from, to}];
  mutex_.Await([&]()
                   ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_closed_ || !queue.empty(); });
  if (queue.empty()) return {};
  std::vector<char> bytes = std::move(queue.front());
  queue.pop_front();
  return bytes;
}

void FakeWire::Close() {
  const MutexLock lock(&mutex_);
  is_closed_ = true;
}

namespace {

class FakeNccl final : public dist::NcclLibrary {
 public:
  FakeNccl(FakeWire& wire, DeferredBackend& backend, const NcclFaults& faults,
           std::atomic<int>* num_aborts)
      : wire_(wire), backend_(backend), faults_(faults), num_aborts_(num_aborts) {}

  int GetVersion(int* version) override {
    *version = faults_.version;
    return dist::kNcclSuccess;
  }
  int GetUniqueId(dist::NcclId* id) override {
    id->fill('i');
    return dist::kNcclSuccess;
  }
  int InitRank(dist::NcclComm* comm, int num_ranks, const dist::NcclId& id, int rank) override {
    ANYORDER_CHECK(id[0] == 'i' && id[127] == 'i') << "not rank 0's id";
    *comm = this;
    num_ranks_ = num_ranks;
    rank_ = rank;
    if (faults_.init_never_ends) return dist::kNcclInProgress;
    return Answer(faults_.init_result);
  }
  int AsyncError(dist::NcclComm, int* error) override {
    const Visit visit(*this);
    absl::SleepFor(absl::Microseconds(100));  // so that others come meanwhile, if they may
    const int last = last_;
    *error = faults_.init_never_ends ? dist::kNcclInProgress : last;
    if (faults_.fail_after_operation >= 0 && groups_ > faults_.fail_after_operation)
      *error = dist::kNcclRemoteError;
    return dist::kNcclSuccess;
  }
  int Finalize(dist::NcclComm) override { return Answer(dist::kNcclSuccess); }
  int Destroy(dist::NcclComm) override { return dist::kNcclSuccess; }
  int Abort(dist::NcclComm) override {
    if (num_aborts_ != nullptr) ++*num_aborts_;
    wire_.Close();
    return dist::kNcclSuccess;
  }
  int GroupStart() override {
    const Visit visit(*this);
    ANYORDER_CHECK(!in_group_);
    in_group_ = true;
    return dist::kNcclSuccess;
  }
  int GroupEnd() override {
    const Visit visit(*this);
    in_group_ = false;
    if (!sends_.empty() || !receives_.empty()) {
      const bool is_lost = groups_ == faults_.lose_operation;
      backend_.Run(stream_, [this, is_lost, sends = sends_, receives = receives_] {
        // Nobody ever sends this one.
        if (is_lost) wire_.Receive(rank_, -1);
        for (const auto& send : sends) send();
        for (const auto& receive : receives) receive();
      });
    }
    sends_.clear();
    receives_.clear();
    ++groups_;
    return Answer(dist::kNcclSuccess);
  }
  int Send(const void* data, int64_t bytes, int peer, dist::NcclComm, StreamView stream) override {
    const Visit visit(*this);
    Add(sends_, stream, [this, from = Open(data, bytes), bytes, peer] {
      wire_.Send(rank_, peer, std::vector<char>(from, from + bytes));
    });
    return dist::kNcclSuccess;
  }
  int Receive(void* data, int64_t bytes, int peer, dist::NcclComm, StreamView stream) override {
    const Visit visit(*this);
    Add(receives_, stream, [this, to = Open(data, bytes), bytes, peer] { Take(peer, to, bytes); });
    return dist::kNcclSuccess;
  }
  int AllGather(void* all, int64_t bytes, int rank, dist::NcclComm, StreamView stream) override {
    ANYORDER_CHECK(rank == rank_);
    for (int peer = 0; peer < num_ranks_; ++peer)
      Broadcast(static_cast<char*>(all) + peer * bytes, bytes, peer, nullptr, stream);
    return dist::kNcclSuccess;
  }
  int Broadcast(void* data, int64_t bytes, int root, dist::NcclComm, StreamView stream) override {
    if (rank_ != root) return Receive(data, bytes, root, nullptr, stream);
    for (int peer = 0; peer < num_ranks_; ++peer) {
      if (peer != rank_) Send(data, bytes, peer, nullptr, stream);
    }
    return dist::kNcclSuccess;
  }
  std::string ErrorText(int result, dist::NcclComm) override {
    return absl::StrCat("fake error ", result);
  }

 private:
  using Work = std::function<void()>;
  // One call. The real library keeps no two threads apart in a communicator, not even in
  // ncclCommGetAsyncError.
  class Visit {
   public:
    explicit Visit(FakeNccl& nccl)
        : nccl_(nccl), is_outermost_(nccl.visitor_ != std::this_thread::get_id()) {
      std::thread::id nobody;
      ANYORDER_CHECK(!is_outermost_ ||
                     nccl_.visitor_.compare_exchange_strong(nobody, std::this_thread::get_id()))
          << "two threads in one communicator";
    }
    ~Visit() {
      if (is_outermost_) nccl_.visitor_ = std::thread::id();
    }

   private:
    FakeNccl& nccl_;
    const bool is_outermost_;
  };
  char* Open(const void* device, int64_t bytes) const {
    return static_cast<char*>(backend_.memory().Open(device, bytes));
  }
  void Add(std::vector<Work>& list, StreamView stream, Work work) {
    ANYORDER_CHECK(in_group_ && stream.handle != nullptr);
    stream_ = stream;
    list.push_back(std::move(work));
  }
  void Take(int peer, char* to, int64_t bytes) {
    const std::vector<char> message = wire_.Receive(peer, rank_);
    if (message.empty()) return;  // closed
    ANYORDER_CHECK(static_cast<int64_t>(message.size()) == bytes)
        << message.size() << " bytes from rank " << peer << " where " << bytes << " are due";
    std::memcpy(to, message.data(), bytes);
  }
  int Answer(int result) {
    last_ = result;
    return faults_.is_slow ? dist::kNcclInProgress : result;
  }

  FakeWire& wire_;
  DeferredBackend& backend_;
  const NcclFaults faults_;
  std::atomic<int>* const num_aborts_;
  int num_ranks_ = 0;
  int rank_ = 0;
  std::atomic<std::thread::id> visitor_{};
  std::atomic<int> last_ = dist::kNcclSuccess;
  std::atomic<int> groups_ = 0;
  bool in_group_ = false;
  StreamView stream_;
  std::vector<Work> sends_;
  std::vector<Work> receives_;
};

}  // namespace

std::unique_ptr<dist::NcclLibrary> MakeFakeNccl(FakeWire& wire, DeferredBackend& backend,
                                                const NcclFaults& faults,
                                                std::atomic<int>* num_aborts) {
  return std::make_unique<FakeNccl>(wire, backend, faults, num_aborts);
}

NcclRank::NcclRank(FakeWire& wire, dist::Communicator& comm,
                   std::unique_ptr<kernels::Backend> inner, Lag lag, uint64_t seed)
    : backend(std::move(inner), lag, seed + comm.rank()) {
  backend.set_device_id(absl::StrCat("GPU-", comm.rank()));
  transport = dist::MakeNcclTransport(MakeFakeNccl(wire, backend, {}), comm, backend, {}).value();
}

}  // namespace anyorder::testing
