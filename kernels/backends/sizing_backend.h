// A device that counts: what is allocated of it, what its operations would cost, and when they
// would be done. Its memory is addresses, which no operation writes, so that a set-up or a step of
// any size is gone through in no time: what `anyorder plan` says is what the code asks for.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/memory_place.h"
#include "kernels/backend.h"
#include "kernels/cuda/operations/operation_sizes.h"
#include "kernels/operation_cost.h"

namespace anyorder::kernels {

struct SizedDevice {
  bool is_gpu = false;  // whose sizes of workspaces and scratch: the CUDA backend's or the CPU's
  // The matrix products' library's, on a GPU.
  int64_t library_workspace_bytes = cuda::kCublasLtBytes;
  // What is done in a second of operations that multiply matrices, whose rate has a share for those
  // between them, and of those of flat ranges, as the optimizer's. 0: in no time.
  double flops_per_second = 0;
  double bytes_per_second = 0;
};

class SizingBackend : public Backend {
 public:
  struct Allocation {
    const char* purpose;  // Backend::purpose when it was made
    MemoryPlace place;
    int64_t bytes;
  };

  explicit SizingBackend(const SizedDevice& device = {.is_gpu = true});

  std::string name() const override { return "sizes"; }
  bool Supports(DType) const override { return true; }
  bool is_host_memory() const override { return !device_.is_gpu; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    return Take(MemoryPlace::kDevice, bytes);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateStaging(int64_t bytes) override {
    return Take(MemoryPlace::kHost, bytes);
  }
  absl::Status Reserve(const OperationSizes& sizes) override;
  void CopyToDevice(const void*, void*, int64_t, StreamView) override {}
  void CopyFromStaging(const void*, void*, int64_t, StreamView) override {}
  void CopyToHost(const void*, void*, int64_t, StreamView) override {}
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(StreamPurpose) override;
  absl::StatusOr<std::unique_ptr<Event>> MakeEvent() override;
  int64_t AttentionPlanBytes(const AttentionShape& shape, DType dtype) const override;
  int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape, DType dtype) const override;
  int64_t LinearCrossEntropyWorkspaceBytes(int64_t rows, int64_t columns, int64_t vocab,
                                           DType dtype) const override;

  // Freed or not, in that order. What Reserve takes for operations is not among them.
  const std::vector<Allocation>& allocations() const { return allocations_; }
  int64_t reserved_bytes() const;
  // Of all operations so far.
  const OperationCost& cost() const { return cost_; }
  // When all is done that the stream was asked for, in seconds; the caller may let it take longer.
  double& Clock(StreamView stream) { return clocks_[stream.handle]; }

 private:
  void Enqueue(const Operation& operation, StreamView stream) override;
  absl::StatusOr<std::unique_ptr<Buffer>> Take(MemoryPlace place, int64_t bytes);

  const SizedDevice device_;
  const std::unique_ptr<Backend> cpu_;  // null: a GPU
  std::vector<Allocation> allocations_;
  int64_t reserved_[4] = {};  // scratch; workspace, biases and sums of products
  OperationCost cost_;
  std::map<void*, double> clocks_;
};

}  // namespace anyorder::kernels
