// NCCL as the transport sees it, between ranks that are threads with deferred devices: calls of a
// group run on the device, in the order of their stream, and wait there for their peers. Faults on
// request. Two threads at once in a communicator end the program.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "dist/device_transport.h"
#include "dist/nccl_library.h"
#include "tests/testing/deferred_backend.h"

namespace anyorder::testing {

// What connects the ranks of one job.
class FakeWire {
 public:
  void Send(int from, int to, std::vector<char> bytes);
  // Empty if the wire was closed meanwhile.
  std::vector<char> Receive(int from, int to);
  void Close();
  // Sent so far.
  int64_t bytes_from(int rank) const;

 private:
  mutable Mutex mutex_;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> messages_ ABSL_GUARDED_BY(mutex_);
  std::map<int, int64_t> bytes_from_ ABSL_GUARDED_BY(mutex_);
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

struct NcclFaults {
  int version = 22809;
  int init_result = dist::kNcclSuccess;  // what InitRank ends in
  bool init_never_ends = false;
  bool is_slow = true;            // every call answers kNcclInProgress first
  int lose_operation = -1;        // this group's calls (from 0) never end
  int fail_after_operation = -1;  // AsyncError answers kNcclRemoteError from this group on
};

// `wire` and `backend` are borrowed; `num_aborts`, which may be null, counts ncclCommAbort.
std::unique_ptr<dist::NcclLibrary> MakeFakeNccl(FakeWire& wire, DeferredBackend& backend,
                                                const NcclFaults& faults,
                                                std::atomic<int>* num_aborts = nullptr);

// A rank's device, which is "GPU-2" for rank 2, and its transport over a library without faults.
struct NcclRank {
  NcclRank(FakeWire& wire, dist::Communicator& comm, std::unique_ptr<kernels::Backend> inner,
           Lag lag, uint64_t seed = 0);

  DeferredBackend backend;
  std::unique_ptr<dist::DeviceTransport> transport;
};

}  // namespace anyorder::testing
