#include "dist/nccl_transport.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/mutex.h"
#include "core/base/status.h"

namespace anyorder::dist {
namespace {

// Non-blocking communicators and their groups are whole from here on.
constexpr int kOldestVersion = 21800;
constexpr char kAdvice[] = "or set dist.transport = \"mpi\"";
// Operations whose end is looked for; of more, asked for while these run, only the last are.
constexpr size_t kMaxPending = 64;

std::string VersionText(int version) {
  // Until 2.8 the first number had one digit less behind it.
  const int unit = version < 10000 ? 1000 : 10000;
  return absl::StrCat(version / unit, ".", version % unit / 100, ".", version % 100);
}

// The length of every rank's block, with room behind the last ones for what these are shorter; 0 if
// blocks lie otherwise or there is no room in `size` bytes.
int64_t Stride(int64_t size, absl::Span<const int64_t> offsets) {
  const int64_t stride = offsets[1];
  const int64_t ranks = static_cast<int64_t>(offsets.size()) - 1;
  if (ranks * stride > size) return 0;
  for (int64_t rank = 0; rank <= ranks; ++rank) {
    if (offsets[rank] != std::min(rank * stride, offsets.back())) return 0;
  }
  return stride;
}

class NcclTransport final : public DeviceTransport {
 public:
  NcclTransport(std::unique_ptr<NcclLibrary> library, Communicator& communicator,
                kernels::Backend& backend, const NcclOptions& options)
      : library_(std::move(library)),
        communicator_(communicator),
        backend_(backend),
        options_(options) {}
  ~NcclTransport() override {
    if (options_.watch != nullptr) options_.watch->set_probe(nullptr);
    if (comm_ == nullptr) return;
    // Ranks that leave together; one that left alone has no peer to wait for.
    if (Settle(library_->Finalize(comm_), "ncclCommFinalize", options_.connect_limit).ok()) {
      library_->Destroy(comm_);
    } else {
      library_->Abort(comm_);
    }
  }

  // In this order, each agreed upon by all ranks before the next.
  absl::Status CheckVersion() {
    const int result = library_->GetVersion(&version_);
    absl::Status mine = result == kNcclSuccess ? absl::OkStatus() : Error("ncclGetVersion", result);
    if (mine.ok() && (version_ < kOldestVersion || version_ >= 30000)) {
      mine = Unavailable("libnccl.so.2 is version ", VersionText(version_), "; this program needs ",
                         VersionText(kOldestVersion), " to 2.x; install another, ", kAdvice);
    }
    RETURN_IF_ERROR(communicator_.AllAgree(mine));
    int64_t first = version_;
    communicator_.Broadcast(MutableBytesOf(absl::MakeSpan(&first, 1)), 0);
    if (first != version_) {
      mine = Unavailable("libnccl.so.2 is version ", VersionText(version_), ", rank 0's is ",
                         VersionText(static_cast<int>(first)),
                         "; install one version on all nodes, ", kAdvice);
    }
    return communicator_.AllAgree(mine);
  }

  absl::Status AgreeOnId(NcclId* id) {
    int result = kNcclSuccess;
    if (communicator_.rank() == 0) result = library_->GetUniqueId(id);
    RETURN_IF_ERROR(communicator_.AllAgree(
        result == kNcclSuccess ? absl::OkStatus() : Error("ncclGetUniqueId", result)));
    communicator_.Broadcast(absl::MakeSpan(*id), 0);
    return absl::OkStatus();
  }

  absl::Status Connect(const NcclId& id) {
    const int result =
        library_->InitRank(&comm_, communicator_.world_size(), id, communicator_.rank());
    absl::Status mine = Settle(result, "ncclCommInitRankConfig", options_.connect_limit);
    if (absl::IsDeadlineExceeded(mine)) {
      mine = Unavailable("NCCL did not connect the ranks within ",
                         absl::FormatDuration(options_.connect_limit),
                         "; NCCL_DEBUG=INFO says what it tries (its network: NCCL_SOCKET_IFNAME, "
                         "NCCL_IB_DISABLE); fix that, ",
                         kAdvice);
    }
    const absl::Status all = communicator_.AllAgree(mine);
    if (!all.ok() && comm_ != nullptr) library_->Abort(std::exchange(comm_, nullptr));
    return all;
  }

  absl::Status AllocateEvents() {
    ASSIGN_OR_RETURN(stream_, backend_.MakeStream(kernels::StreamPurpose::kMessages));
    ASSIGN_OR_RETURN(before_, backend_.MakeEvent());
    ASSIGN_OR_RETURN(after_, backend_.MakeEvent());
    {
      const MutexLock lock(&mutex_);
      for (size_t i = 0; i < kMaxPending; ++i) {
        ASSIGN_OR_RETURN(free_events_.emplace_back(), backend_.MakeEvent());
      }
    }
    if (options_.watch != nullptr) options_.watch->set_probe([this] { return Probe(); });
    return absl::OkStatus();
  }

  std::string name() const override { return absl::StrCat("NCCL ", VersionText(version_)); }
  StreamView messages() const override { return stream_->view(); }
  void FollowMain() override {
    before_->Record({});
    before_->Wait(messages());
  }

  void Exchange(absl::Span<const SendBlock> send, absl::Span<const ReceiveBlock> receive,
                StreamView stream) override {
    InGroup("Exchange", stream, [&](StreamView own) {
      for (const SendBlock& block : send) {
        const int64_t bytes = static_cast<int64_t>(block.bytes.size());
        Ask("ncclSend",
            [&] { return library_->Send(block.bytes.data(), bytes, block.to, comm_, own); });
      }
      for (const ReceiveBlock& block : receive) {
        const int64_t bytes = static_cast<int64_t>(block.bytes.size());
        Ask("ncclRecv",
            [&] { return library_->Receive(block.bytes.data(), bytes, block.from, comm_, own); });
      }
    });
  }

  // By NCCL's own all-gather, whose rings pass each node once, where blocks lie as it wants them.
  void AllGatherInPlace(absl::Span<char> all, absl::Span<const int64_t> offsets,
                        StreamView stream) override {
    InGroup("AllGatherInPlace", stream, [&](StreamView own) {
      if (const int64_t stride = Stride(all.size(), offsets); stride > 0) {
        Ask("ncclAllGather", [&] {
          return library_->AllGather(all.data(), stride, communicator_.rank(), comm_, own);
        });
        return;
      }
      for (int rank = 0; rank < communicator_.world_size(); ++rank) {
        const int64_t bytes = offsets[rank + 1] - offsets[rank];
        if (bytes == 0) continue;
        Ask("ncclBroadcast", [&] {
          return library_->Broadcast(all.data() + offsets[rank], bytes, rank, comm_, own);
        });
      }
    });
  }

 private:
  struct Pending {
    const char* what;
    int64_t number;
    absl::Time begun;
    std::unique_ptr<kernels::Event> end;
  };

  // body(stream) asks for the calls of one group.
  template <typename Body>
  void InGroup(const char* what, StreamView stream, Body body) {
    // What a null stream is to the backend it need not be to NCCL.
    const bool is_main = stream.handle == nullptr;
    const StreamView own = is_main ? messages() : stream;
    if (is_main) FollowMain();
    Ask("ncclGroupStart", [&] { return library_->GroupStart(); });
    body(own);
    Ask("ncclGroupEnd", [&] { return library_->GroupEnd(); });
    Remember(what, own);
    if (is_main) {
      after_->Record(own);
      after_->Wait(stream);
    }
  }

  // Forgets operations that have ended, up to the first that has not or whose device fails.
  absl::Status DropEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (!pending_.empty()) {
      ASSIGN_OR_RETURN(const bool is_reached, pending_.front().end->IsReached());
      if (!is_reached) break;
      free_events_.push_back(std::move(pending_.front().end));
      pending_.pop_front();
    }
    return absl::OkStatus();
  }

  void Remember(const char* what, StreamView stream) {
    ++operations_;
    const MutexLock lock(&mutex_);
    DropEnded().IgnoreError();  // Probe says what failed
    // The oldest stays: it is the one whose time is measured.
    if (free_events_.empty()) return;
    pending_.push_back({what, operations_, MonotonicNow(), std::move(free_events_.back())});
    free_events_.pop_back();
    pending_.back().end->Record(stream);
  }

  // Waits until the library has taken what answered `result`.
  absl::Status Settle(int result, const char* call, absl::Duration limit) {
    const absl::Time deadline = MonotonicNow() + limit;
    while (result == kNcclInProgress) {
      if (MonotonicNow() > deadline)
        return DeadlineExceeded("NCCL's ", call, " did not end within ",
                                absl::FormatDuration(limit));
      const int asked = Alone([&] { return library_->AsyncError(comm_, &result); });
      if (asked != kNcclSuccess) result = asked;
      if (result == kNcclInProgress) absl::SleepFor(absl::Microseconds(50));
    }
    return result == kNcclSuccess ? absl::OkStatus() : Error(call, result);
  }

  void Check(int result, const char* call) {
    // The first message between two ranks connects them, for which the slower one has to come.
    const absl::Status settled = Settle(result, call, options_.work_limit);
    if (settled.ok()) return;
    // As with MPI, what fails inside of a collective cannot be repaired: the peers wait for this
    // rank.
    if (options_.watch != nullptr) options_.watch->GiveUp(settled, [this] { Abort(); });
    ANYORDER_CHECK(settled.ok()) << settled.message();
  }

  // What `call` of the library answers, while no other thread is in it.
  template <typename Call>
  int Alone(Call call) {
    const MutexLock lock(&library_mutex_);
    return call();
  }
  template <typename Call>
  void Ask(const char* name, Call call) {
    Check(Alone(call), name);
  }

  // Called by the watch's thread.
  absl::Status Probe() {
    int error = kNcclSuccess;
    // A thread that is in the library now looks at its answer itself, or hangs in it, which the
    // times below tell.
    if (library_mutex_.TryLock()) {
      const int asked = library_->AsyncError(comm_, &error);
      if (asked != kNcclSuccess) error = asked;
      library_mutex_.Unlock();
    }
    if (error != kNcclSuccess && error != kNcclInProgress) {
      Abort();
      return Unavailable("NCCL failed: ", library_->ErrorText(error, comm_),
                         error == kNcclRemoteError ? " (a peer is lost)" : "");
    }
    const MutexLock lock(&mutex_);
    const absl::Status dropped = DropEnded();
    if (pending_.empty()) return absl::OkStatus();
    const Pending& first = pending_.front();
    const absl::Duration elapsed = MonotonicNow() - first.begun;
    if (dropped.ok() && elapsed < options_.work_limit) return absl::OkStatus();
    Abort();
    const std::string what = absl::StrCat("NCCL operation ", first.number, " (", first.what, ") ");
    if (!dropped.ok()) return Unavailable(what, "failed: ", dropped.message());
    return DeadlineExceeded(what, "has run for ",
                            absl::FormatDuration(absl::Trunc(elapsed, absl::Milliseconds(1))),
                            "; a peer or its network is lost");
  }

  // In a thread that is not waited for: the library may hang as its operation does.
  void Abort() {
    if (comm_ == nullptr) return;
    std::thread([library = library_, comm = comm_] { library->Abort(comm); }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }

  absl::Status Error(const char* call, int result) const {
    return Unavailable("NCCL's ", call, ": ", library_->ErrorText(result, comm_));
  }

  const std::shared_ptr<NcclLibrary> library_;  // with a thread that aborts
  Communicator& communicator_;
  kernels::Backend& backend_;
  const NcclOptions options_;
  int version_ = 0;
  NcclComm comm_ = nullptr;
  std::unique_ptr<kernels::Stream> stream_;  // messages()
  std::unique_ptr<kernels::Event> before_;
  std::unique_ptr<kernels::Event> after_;
  int64_t operations_ = 0;

  // Of the calls that the watch's thread makes, too. ncclCommGetAsyncError ends a group's work, and
  // frees it, for whoever asks first: two threads at once would both.
  Mutex library_mutex_;
  Mutex mutex_;  // the watch's thread reads what follows
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<kernels::Event>> free_events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status CheckOneDeviceEach(Communicator& communicator, const std::string& device_id) {
  const std::vector<std::string> devices =
      communicator.AllGatherStrings(absl::StrCat(device_id, " of ", communicator.host()));
  std::map<std::string, size_t> rank_of;
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    const auto [it, is_new] = rank_of.emplace(devices[rank], rank);
    if (is_new) continue;
    return InvalidArgument("ranks ", it->second, " and ", rank, " share the device ", devices[rank],
                           ", and NCCL needs one for each rank; start "
                           "fewer ranks on that node, ",
                           kAdvice);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeNcclTransport(
    std::unique_ptr<NcclLibrary> library, Communicator& communicator, kernels::Backend& backend,
    const NcclOptions& options) {
  RETURN_IF_ERROR(CheckOneDeviceEach(communicator, backend.device_id()));
  auto transport =
      std::make_unique<NcclTransport>(std::move(library), communicator, backend, options);
  RETURN_IF_ERROR(transport->CheckVersion());
  NcclId id{};
  RETURN_IF_ERROR(transport->AgreeOnId(&id));
  RETURN_IF_ERROR(transport->Connect(id));
  RETURN_IF_ERROR(communicator.AllAgree(transport->AllocateEvents()));
  return transport;
}

namespace {

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeNccl(Communicator& communicator,
                                                          kernels::Backend& backend,
                                                          const TransportOptions& options) {
  RETURN_IF_ERROR(CheckOneDeviceEach(communicator, backend.device_id()));
  ASSIGN_OR_RETURN(std::unique_ptr<NcclLibrary> library,
                   communicator.AllAgree(options.load_nccl()));
  return MakeNcclTransport(std::move(library), communicator, backend, options.nccl);
}

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeMpi(Communicator& communicator,
                                                         kernels::Backend& backend) {
  return communicator.AllAgree(MakeCommunicatorTransport(communicator, backend));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeTransport(Communicator& communicator,
                                                               kernels::Backend& backend,
                                                               const TransportOptions& options) {
  if (options.kind == TransportKind::kNccl && backend.is_host_memory()) {
    return InvalidArgument("dist.transport = \"nccl\" is for GPUs, and this run computes on ",
                           backend.name(), "; set \"auto\" or \"mpi\"");
  }
  if (options.kind == TransportKind::kNccl) return MakeNccl(communicator, backend, options);
  if (options.kind == TransportKind::kMpi || backend.is_host_memory() ||
      communicator.world_size() == 1)
    return MakeMpi(communicator, backend);
  if (!CheckOneDeviceEach(communicator, backend.device_id()).ok())
    return MakeMpi(communicator, backend);  // what several ranks on a device are for: tests
  absl::StatusOr<std::unique_ptr<DeviceTransport>> nccl = MakeNccl(communicator, backend, options);
  if (nccl.ok()) return nccl;
  if (communicator.rank() == 0) {
    LogWarning(
        absl::StrCat("gradients go through host memory, which is slow: ", nccl.status().message()));
  }
  return MakeMpi(communicator, backend);
}

}  // namespace anyorder::dist
