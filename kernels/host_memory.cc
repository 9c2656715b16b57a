#include "kernels/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/base/status.h"
#include "kernels/digest.h"

namespace anyorder::kernels {

namespace {

constexpr int64_t kCacheLine = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;
// More than a 64-bit machine can address; not worth asking the allocator, which may answer by
// aborting.
constexpr int64_t kTooManyBytes = int64_t{1} << 47;
constexpr int64_t kZeroedAtOnce = int64_t{128} << 20;

class HostBuffer : public Buffer {
 public:
  HostBuffer(void* data, int64_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer() override { std::free(data_); }

  void* data() const override { return data_; }
  int64_t size_bytes() const override { return size_bytes_; }

 private:
  void* data_;
  int64_t size_bytes_;
};

class OnlyStream final : public Stream {
 public:
  StreamView view() const override { return {}; }
};

// Of a backend with one queue, where the order of calls is the order of work.
class OnlyStreamEvent final : public Event {
 public:
  explicit OnlyStreamEvent(Backend& backend) : backend_(backend) {}
  void Record(StreamView stream) override { stream_ = stream; }
  void Wait(StreamView) override {}
  absl::StatusOr<bool> IsReached() override {
    Await();
    return true;
  }
  void Await() override { backend_.Synchronize(stream_); }

 private:
  Backend& backend_;
  StreamView stream_;
};

}  // namespace

void Backend::CopyToDevice(const void* host, void* device, int64_t bytes, StreamView) {
  if (bytes > 0) std::memcpy(device, host, static_cast<size_t>(bytes));
}

void Backend::CopyToHost(const void* device, void* host, int64_t bytes, StreamView) {
  if (bytes > 0) std::memcpy(host, device, static_cast<size_t>(bytes));
}

absl::StatusOr<std::unique_ptr<Stream>> Backend::MakeStream(StreamPurpose) {
  return std::make_unique<OnlyStream>();
}

absl::StatusOr<std::unique_ptr<Event>> Backend::MakeEvent() {
  return std::make_unique<OnlyStreamEvent>(*this);
}

absl::StatusOr<std::unique_ptr<Buffer>> Backend::AllocateStaging(int64_t bytes) {
  return AllocateHostBuffer(bytes);
}

absl::StatusOr<std::unique_ptr<HostRegistration>> Backend::RegisterHost(void*, int64_t) {
  return std::unique_ptr<HostRegistration>();
}

absl::StatusOr<std::unique_ptr<Buffer>> AllocateHostBuffer(int64_t bytes,
                                                           const AllocationObserver& allocated) {
  if (bytes < 0) return InvalidArgument("allocate ", bytes, " bytes");
  const int64_t alignment = bytes >= 2 * kHugePage ? kHugePage : kCacheLine;
  // At least one unit, so that a buffer of size 0 still has an address.
  const int64_t rounded = (std::min(bytes, kTooManyBytes) / alignment + 1) * alignment;
  void* data = bytes < kTooManyBytes ? std::aligned_alloc(alignment, rounded) : nullptr;
  if (data == nullptr) {
    return ResourceExhausted("allocate ", bytes,
                             " bytes of host memory: none left; use a smaller model or "
                             "microbatch, or more memory");
  }
  // Advice only: where it is refused, the memory has small pages.
  if (alignment == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);
  auto buffer = std::make_unique<HostBuffer>(data, bytes);
  // The pages come with the zeros, which takes seconds where they are many.
  for (int64_t begin = 0; begin < rounded; begin += kZeroedAtOnce) {
    const int64_t piece = std::min(kZeroedAtOnce, rounded - begin);
    std::memset(static_cast<char*>(data) + begin, 0, piece);
    if (allocated) RETURN_IF_ERROR(allocated(piece));
  }
  return buffer;
}

void ComputeGradientClipOnHost(const ComputeGradientClipArgs& args) {
  double sum = 0;
  for (int64_t i = 0; i < args.sums.num_elements(); ++i) sum += args.sums.data<double>()[i];
  NormControl& control = *args.control;
  control.norm = std::abs(args.grad_scale) * std::sqrt(sum);
  // Written so that a norm that is not a number skips.
  const bool is_good = std::isfinite(control.norm) && std::isfinite(args.grad_scale) &&
                       control.norm <= args.skip_above_norm;
  control.skips = is_good ? 0 : 1;
  if (!is_good) return;
  control.clip_factor = args.max_grad_norm > 0
                            ? args.max_grad_norm / std::max(control.norm, args.max_grad_norm)
                            : 1.0;
  control.grad_scale = args.grad_scale * control.clip_factor;
  ++control.updates;
  control.correction = BiasCorrection(args, control.updates);
  control.epsilon_scale = EpsilonScale(args, control.updates);
}

void DigestOnHost(const DigestArgs& args) {
  const auto* const bytes = static_cast<const char*>(args.x.raw());
  const int64_t whole = args.x.num_bytes() / 8;
  DigestValue sums;
  for (int64_t i = 0; i < whole; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + 8 * i, sizeof word);
    AddWord(word, i, sums);
  }
  if (args.x.num_bytes() % 8 != 0) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + 8 * whole, static_cast<size_t>(args.x.num_bytes() % 8));
    AddWord(word, whole, sums);
  }
  const DigestValue value = FinishDigest(sums, args.x.num_bytes());
  std::memcpy(args.digest.raw(), &value, sizeof value);
}

}  // namespace anyorder::kernels
