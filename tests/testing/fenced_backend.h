// A backend whose memory is not the host's, on a machine without a device: it passes every call on
// to one that computes on the host, but its memory can be touched only while a call runs. Host code
// that reads or writes it dies with SIGSEGV and a line that says so, and a call that is given a
// pointer to anything else aborts. What CopyToHost was asked for is there after Synchronize, not
// before.
//
// Results are those of the backend it wraps, bit for bit.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {

class FencedMemory;

class FencedBackend : public ForwardingBackend {
 public:
  // `inner` computes on the host's memory.
  explicit FencedBackend(std::unique_ptr<kernels::Backend> inner);
  ~FencedBackend() override;

  std::string name() const override { return "fenced " + ForwardingBackend::name(); }
  bool is_host_memory() const override { return false; }
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override;
  void CopyToDevice(const void* host, void* device, int64_t bytes, StreamView stream) override;
  void CopyToHost(const void* device, void* host, int64_t bytes, StreamView stream) override;
  void CopyFromStaging(const void* host, void* device, int64_t bytes, StreamView stream) override {
    CopyToDevice(host, device, bytes, stream);
  }
  void Synchronize(StreamView stream) override;
  // One queue: what an event waits for is done. Waiting for one gives the copies, as Synchronize
  // does.
  absl::StatusOr<std::unique_ptr<kernels::Event>> MakeEvent() override;

  void Gemm(const kernels::GemmArgs& args, StreamView stream) override;
  void ColumnSum(const kernels::ColumnSumArgs& args, StreamView stream) override;
  void AttentionForward(const kernels::AttentionForwardArgs& args, StreamView stream) override;
  void AttentionBackward(const kernels::AttentionBackwardArgs& args, StreamView stream) override;
  void ActivationForward(const kernels::ActivationForwardArgs& args, StreamView stream) override;
  void ActivationBackward(const kernels::ActivationBackwardArgs& args, StreamView stream) override;
  void DropoutApply(const kernels::DropoutArgs& args, StreamView stream) override;
  void LayerNormForward(const kernels::LayerNormForwardArgs& args, StreamView stream) override;
  void LayerNormBackward(const kernels::LayerNormBackwardArgs& args, StreamView stream) override;
  void EmbeddingForward(const kernels::EmbeddingForwardArgs& args, StreamView stream) override;
  void EmbeddingBackward(const kernels::EmbeddingBackwardArgs& args, StreamView stream) override;
  void LinearCrossEntropy(const kernels::LinearCrossEntropyArgs& args, StreamView stream) override;
  void AdamW(const kernels::AdamWArgs& args, StreamView stream) override;
  void CopyRows(const kernels::CopyRowsArgs& args, StreamView stream) override;
  void GatherRows(const kernels::GatherRowsArgs& args, StreamView stream) override;
  void RotaryApply(const kernels::RotaryArgs& args, StreamView stream) override;
  void SumOfSquares(ConstTensorView x, TensorView sums, StreamView stream) override;
  void ComputeGradientClip(const kernels::ComputeGradientClipArgs& args,
                           StreamView stream) override;
  void Add(ConstTensorView a, ConstTensorView b, TensorView y, StreamView stream) override;
  void Cast(ConstTensorView x, TensorView y, StreamView stream) override;
  void FillZero(TensorView x, StreamView stream) override;
  void Digest(ConstTensorView x, TensorView digest, StreamView stream) override;

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
  void CheckTensors(std::initializer_list<ConstTensorView> tensors);
  void CheckRange(const void* data, int64_t bytes) const;
  template <typename T>
  void CheckArray(const T* data, int64_t count) const {
    CheckRange(data, count * static_cast<int64_t>(sizeof(T)));
  }
  void CheckAttention(const kernels::AttentionInputs& in);

  const std::shared_ptr<FencedMemory> memory_;
  std::mutex mutex_;
  std::vector<HostCopy> copies_;  // asked for, not waited for
  int64_t num_synchronizations_ = 0;
  // Sizes of all arguments of each recorded sequence, in order.
  int64_t num_repeated_graphs_ = 0;
  std::map<int64_t, std::vector<int64_t>> graphs_;
  bool is_recording_ = false;
  int64_t key_ = 0;
  std::vector<int64_t> recorded_;
};

}  // namespace anyorder::testing
