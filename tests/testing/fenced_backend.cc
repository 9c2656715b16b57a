#include "tests/testing/fenced_backend.h"

#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "tests/testing/fenced_memory.h"
#include "tests/testing/operation_arguments.h"

namespace anyorder::testing {
namespace {

using Opening = FencedMemory::Opening;

class FencedBuffer final : public kernels::Buffer {
 public:
  FencedBuffer(std::shared_ptr<FencedMemory> memory, void* data, int64_t bytes)
      : memory_(std::move(memory)), data_(data), bytes_(bytes) {}
  ~FencedBuffer() override { memory_->Free(data_); }
  void* data() const override { return data_; }
  int64_t size_bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<FencedMemory> memory_;
  void* const data_;
  const int64_t bytes_;
};

}  // namespace

FencedBackend::FencedBackend(std::unique_ptr<kernels::Backend> inner)
    : ForwardingBackend(std::move(inner)), memory_(std::make_shared<FencedMemory>()) {
  ANYORDER_CHECK(ForwardingBackend::is_host_memory()) << "a fence around device memory";
}

FencedBackend::~FencedBackend() = default;

absl::StatusOr<std::unique_ptr<kernels::Buffer>> FencedBackend::Allocate(int64_t bytes) {
  CheckNotRecording("Allocate");
  void* const data = memory_->Allocate(bytes);
  if (data == nullptr) return ResourceExhausted("allocate ", bytes, " bytes within a fence");
  return std::make_unique<FencedBuffer>(memory_, data, bytes);
}

void FencedBackend::CopyToDevice(const void* host, void* device, int64_t bytes, StreamView stream) {
  CheckNotRecording("CopyToDevice");
  CheckRange(device, bytes);
  ANYORDER_CHECK(!memory_->Touches(host, bytes)) << "CopyToDevice from device memory";
  const Opening opening(*memory_);
  ForwardingBackend::CopyToDevice(host, device, bytes, stream);
}

void FencedBackend::CopyToHost(const void* device, void* host, int64_t bytes, StreamView stream) {
  CheckNotRecording("CopyToHost");
  CheckRange(device, bytes);
  ANYORDER_CHECK(!memory_->Touches(host, bytes)) << "CopyToHost to device memory";
  if (bytes == 0) return;
  // Until then it is not a number.
  std::memset(host, 0xff, static_cast<size_t>(bytes));
  HostCopy copy{host, std::vector<char>(bytes)};
  {
    const Opening opening(*memory_);
    ForwardingBackend::CopyToHost(device, copy.bytes.data(), bytes, stream);
  }
  const MutexLock lock(&mutex_);
  copies_.push_back(std::move(copy));
}

void FencedBackend::Synchronize(StreamView stream) {
  CheckNotRecording("Synchronize");
  ForwardingBackend::Synchronize(stream);
  GiveCopies();
  ++num_synchronizations_;
}

void FencedBackend::BeginGraph(int64_t key, StreamView) {
  CheckNotRecording("BeginGraph");
  is_recording_ = true;
  key_ = key;
  recorded_.clear();
}

void FencedBackend::EndGraph(StreamView) {
  ANYORDER_CHECK(is_recording_) << "EndGraph without BeginGraph";
  is_recording_ = false;
  const auto [before, is_new] = graphs_.emplace(key_, recorded_);
  num_repeated_graphs_ += is_new ? 0 : 1;
  ANYORDER_CHECK(before->second == recorded_)
      << "sequence " << key_ << " has other operations than before";
}

void FencedBackend::CheckNotRecording(const char* what) const {
  ANYORDER_CHECK(!is_recording_) << what << " in a sequence that is recorded";
}

void FencedBackend::GiveCopies() {
  const MutexLock lock(&mutex_);
  for (const HostCopy& copy : copies_) std::memcpy(copy.host, copy.bytes.data(), copy.bytes.size());
  copies_.clear();
}

class FencedBackend::QueueEvent final : public kernels::Event {
 public:
  explicit QueueEvent(FencedBackend& backend) : backend_(backend) {}
  void Record(StreamView) override {}
  void Wait(StreamView) override {}
  absl::StatusOr<bool> IsReached() override {
    backend_.GiveCopies();
    return true;
  }
  void Await() override { backend_.GiveCopies(); }

 private:
  FencedBackend& backend_;
};

absl::StatusOr<std::unique_ptr<kernels::Event>> FencedBackend::MakeEvent() {
  return std::make_unique<QueueEvent>(*this);
}

void FencedBackend::CheckRange(const void* data, int64_t bytes) const {
  if (data == nullptr || bytes == 0) return;
  ANYORDER_CHECK(memory_->Contains(data, bytes))
      << bytes << " bytes of an argument are no device memory";
}

void FencedBackend::Enqueue(const kernels::Operation& operation, StreamView stream) {
  const auto check_view = [this](const auto& view, int64_t behind) {
    const int64_t elements = view.is_null() ? 0 : view.num_elements() + behind;
    const int64_t bytes = elements * SizeOf(view.dtype());
    CheckRange(view.raw(), bytes);
    if (is_recording_) recorded_.push_back(bytes);
  };
  const auto check_array = [this]<typename T>(const T* array, int64_t count) {
    CheckRange(array, count * static_cast<int64_t>(sizeof(T)));
  };
  PlaceVisitor visitor{check_view, check_array};
  std::visit(
      [&](const auto* args) {
        auto copy = *args;
        VisitArguments(copy, visitor);
      },
      operation);
  const Opening opening(*memory_);
  ForwardingBackend::Enqueue(operation, stream);
}

}  // namespace anyorder::testing
