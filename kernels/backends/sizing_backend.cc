#include "kernels/backends/sizing_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <numeric>

#include "core/base/check.h"
#include "core/base/status.h"
#include "kernels/cuda/operations/operation_sizes.h"

namespace anyorder::kernels {
namespace {

// Pages that nobody touches take no memory. Of a GPU's the host touches nothing, and what cannot be
// touched counts for no limit of the machine's.
class Addresses final : public Buffer {
 public:
  Addresses(int64_t bytes, bool is_touched)
      : bytes_(bytes),
        data_(::mmap(nullptr, MappedBytes(), is_touched ? PROT_READ | PROT_WRITE : PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ != MAP_FAILED) ::madvise(data_, MappedBytes(), MADV_NOHUGEPAGE);
  }
  ~Addresses() override {
    if (data_ != MAP_FAILED) ::munmap(data_, MappedBytes());
  }
  void* data() const override { return data_; }
  int64_t size_bytes() const override { return bytes_; }

 private:
  // No bytes have an address, too.
  size_t MappedBytes() const { return static_cast<size_t>(std::max<int64_t>(bytes_, 1)); }

  const int64_t bytes_;
  void* const data_;
};

class ClockStream final : public Stream {
 public:
  StreamView view() const override { return {const_cast<ClockStream*>(this)}; }
};

class ClockEvent final : public Event {
 public:
  explicit ClockEvent(SizingBackend& backend) : backend_(backend) {}
  void Record(StreamView stream) override { time_ = backend_.Clock(stream); }
  void Wait(StreamView stream) override {
    backend_.Clock(stream) = std::max(backend_.Clock(stream), time_);
  }
  absl::StatusOr<bool> IsReached() override { return true; }
  void Await() override {}

 private:
  SizingBackend& backend_;
  double time_ = 0;
};

}  // namespace

SizingBackend::SizingBackend(const SizedDevice& device)
    : device_(device), cpu_(device.is_gpu ? nullptr : MakeCpuBackend({}).value()) {}

absl::StatusOr<std::unique_ptr<Buffer>> SizingBackend::Take(MemoryPlace place, int64_t bytes) {
  // Messages are copied within the host's, which is small unless it takes a GPU's part.
  constexpr int64_t kMostTouched = int64_t{256} << 20;
  const bool is_touched = !device_.is_gpu || (place == MemoryPlace::kHost && bytes <= kMostTouched);
  auto buffer = std::make_unique<Addresses>(bytes, is_touched);
  if (bytes < 0 || buffer->data() == MAP_FAILED)
    return ResourceExhausted(bytes, " bytes are more than a process can address");
  // As the CUDA backend allocates.
  allocations_.push_back({purpose(), place, std::max<int64_t>(bytes, device_.is_gpu ? 1 : 0)});
  return buffer;
}

absl::Status SizingBackend::Reserve(const OperationSizes& sizes) {
  if (!device_.is_gpu) return cpu_->Reserve(sizes);
  const cuda::GemmReserve gemm =
      cuda::GemmReserveOf(sizes.rows, sizes.columns, device_.library_workspace_bytes);
  const int64_t wanted[] = {cuda::ReservedScratchBytes(sizes), gemm.workspace, gemm.bias, gemm.sum};
  for (size_t i = 0; i < std::size(wanted); ++i) reserved_[i] = std::max(reserved_[i], wanted[i]);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Stream>> SizingBackend::MakeStream(StreamPurpose) {
  return std::make_unique<ClockStream>();
}

absl::StatusOr<std::unique_ptr<Event>> SizingBackend::MakeEvent() {
  return std::make_unique<ClockEvent>(*this);
}

void SizingBackend::Enqueue(const Operation& operation, StreamView stream) {
  const OperationCost cost = CostOf(operation);
  cost_ += cost;
  if (device_.flops_per_second > 0) Clock(stream) += cost.flops / device_.flops_per_second;
  if (device_.bytes_per_second > 0) Clock(stream) += cost.flat_bytes / device_.bytes_per_second;
}

int64_t SizingBackend::reserved_bytes() const {
  return std::accumulate(std::begin(reserved_), std::end(reserved_), int64_t{0});
}

int64_t SizingBackend::AttentionPlanBytes(const AttentionShape& shape, DType dtype) const {
  return device_.is_gpu ? cuda::AttentionPlanBytes(shape, dtype)
                        : cpu_->AttentionPlanBytes(shape, dtype);
}

int64_t SizingBackend::AttentionBackwardWorkspaceBytes(const AttentionShape& shape,
                                                       DType dtype) const {
  return device_.is_gpu ? cuda::AttentionBackwardWorkspaceBytes(shape, dtype)
                        : cpu_->AttentionBackwardWorkspaceBytes(shape, dtype);
}

int64_t SizingBackend::LinearCrossEntropyWorkspaceBytes(int64_t rows, int64_t columns,
                                                        int64_t vocab, DType dtype) const {
  return device_.is_gpu ? cuda::LinearCrossEntropyWorkspaceBytes(rows, columns, vocab, dtype)
                        : cpu_->LinearCrossEntropyWorkspaceBytes(rows, columns, vocab, dtype);
}

}  // namespace anyorder::kernels
