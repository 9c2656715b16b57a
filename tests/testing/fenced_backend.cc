#include "tests/testing/fenced_backend.h"

#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "tests/testing/fenced_memory.h"

namespace anyorder::testing {

FencedBackend::FencedBackend(std::unique_ptr<kernels::Backend> inner)
    : ForwardingBackend(std::move(inner)), memory_(std::make_shared<FencedMemory>()) {
  ANYORDER_CHECK(ForwardingBackend::is_host_memory()) << "a fence around device memory";
}

FencedBackend::~FencedBackend() = default;

absl::StatusOr<std::unique_ptr<kernels::Buffer>> FencedBackend::Allocate(int64_t bytes) {
  CheckNotRecording("Allocate");
  ASSIGN_OR_RETURN(void* const data, memory_->Allocate(bytes));
  return std::make_unique<FencedBuffer>(memory_, data, bytes);
}

void FencedBackend::CopyToDevice(const void* host, void* device, int64_t bytes, StreamView stream) {
  CheckNotRecording("CopyToDevice");
  ANYORDER_CHECK(!memory_->Touches(host, bytes)) << "CopyToDevice from device memory";
  if (bytes > 0) ForwardingBackend::CopyToDevice(host, memory_->Open(device, bytes), bytes, stream);
}

void FencedBackend::CopyToHost(const void* device, void* host, int64_t bytes, StreamView stream) {
  CheckNotRecording("CopyToHost");
  ANYORDER_CHECK(!memory_->Touches(host, bytes)) << "CopyToHost to device memory";
  if (bytes == 0) return;
  // Until then it is not a number.
  std::memset(host, 0xff, static_cast<size_t>(bytes));
  HostCopy copy{host, std::vector<char>(bytes)};
  ForwardingBackend::CopyToHost(memory_->Open(device, bytes), copy.bytes.data(), bytes, stream);
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

void FencedBackend::Enqueue(const kernels::Operation& operation, StreamView stream) {
  std::visit(
      [&](const auto* args) {
        const auto open = OpenArguments(*memory_, *args, is_recording_ ? &recorded_ : nullptr);
        ForwardingBackend::Enqueue(&open, stream);
      },
      operation);
}

}  // namespace anyorder::testing
