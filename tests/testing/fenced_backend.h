// A backend whose memory is not the host's, on a machine without a device: it passes every call on
// to one that computes on the host, but where its memory seems to be nobody can touch it
// (fenced_memory.h). Host code that reads or writes it dies with SIGSEGV and a line that says so,
// and a call that is given a pointer to anything else aborts. What CopyToHost was asked for is
// there after Synchronize, not before.
//
// Results are those of the backend it wraps, bit for bit.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "tests/testing/fenced_memory.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {

class FencedBackend : public ForwardingBackend {
 public:
  // `inner` computes on the host's memory.
  explicit FencedBackend(std::unique_ptr<kernels::Backend> inner);
  ~FencedBackend() override;

  std::string name() const override { return "fenced " + ForwardingBackend::name(); }
  bool is_host_memory() const override { return false; }
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> AllocateStaging(int64_t bytes) override {
    return FencedMemory::AllocateStaging(memory_, bytes);
  }
  void CopyToDevice(const void* host, void* device, int64_t bytes, StreamView stream) override;
  void CopyToHost(const void* device, void* host, int64_t bytes, StreamView stream) override;
  void CopyFromStaging(const void* host, void* device, int64_t bytes, StreamView stream) override {
    CopyToDevice(host, device, bytes, stream);
  }
  void Synchronize(StreamView stream) override;
  // One queue: what an event waits for is done. Waiting for one gives the copies, as Synchronize
  // does.
  absl::StatusOr<std::unique_ptr<kernels::Event>> MakeEvent() override;

  // Aborts if a sequence of one key has other operations than before, or touches the host.
  void BeginGraph(int64_t key, StreamView stream) override;
  void EndGraph(StreamView stream) override;
  void ForgetGraph(int64_t key) override { graphs_.erase(key); }

  // Sequences that came again so far: what a device would have run as a graph.
  int64_t num_repeated_graphs() const { return num_repeated_graphs_; }
  // Waits of the host so far.
  int64_t num_synchronizations() const { return num_synchronizations_; }

 private:
  struct HostCopy {
    void* host;
    std::vector<char> bytes;
  };

  class QueueEvent;

  void GiveCopies();
  void CheckNotRecording(const char* what) const;
  // Aborts unless all is device memory, or null.
  void Enqueue(const kernels::Operation& operation, StreamView stream) override;

  const std::shared_ptr<FencedMemory> memory_;
  Mutex mutex_;
  std::vector<HostCopy> copies_ ABSL_GUARDED_BY(mutex_);  // asked for, not waited for
  int64_t num_synchronizations_ = 0;
  // Sizes of all arguments of each recorded sequence, in order.
  int64_t num_repeated_graphs_ = 0;
  std::map<int64_t, std::vector<int64_t>> graphs_;
  bool is_recording_ = false;
  int64_t key_ = 0;
  std::vector<int64_t> recorded_;
};

}  // namespace anyorder::testing
