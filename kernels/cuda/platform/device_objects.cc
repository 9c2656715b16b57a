#include "kernels/cuda/platform/device_objects.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"

namespace anyorder::kernels::cuda {
namespace {

using SharedRuntime = std::shared_ptr<Runtime>;

// Memory of the device or pinned memory, as its `free` says.
class RuntimeBuffer final : public Buffer {
 public:
  using Free = void (Runtime::*)(void*);

  RuntimeBuffer(SharedRuntime runtime, Free free, void* data, int64_t size_bytes)
      : runtime_(std::move(runtime)), free_(free), data_(data), size_bytes_(size_bytes) {}
  ~RuntimeBuffer() override { (runtime_.get()->*free_)(data_); }
  void* data() const override { return data_; }
  int64_t size_bytes() const override { return size_bytes_; }

 private:
  const SharedRuntime runtime_;
  const Free free_;
  void* const data_;
  const int64_t size_bytes_;
};

class Registration final : public HostRegistration {
 public:
  Registration(SharedRuntime runtime, void* data) : runtime_(std::move(runtime)), data_(data) {}
  ~Registration() override { runtime_->UnregisterHost(data_); }

 private:
  const SharedRuntime runtime_;
  void* const data_;
};

class DeviceStream final : public Stream {
 public:
  DeviceStream(SharedRuntime runtime, StreamPurpose purpose)
      : runtime_(std::move(runtime)), stream_(runtime_->MakeStream(purpose)) {}
  ~DeviceStream() override { runtime_->DestroyStream(stream_); }
  StreamView view() const override { return stream_; }

 private:
  const SharedRuntime runtime_;
  const StreamView stream_;
};

class DeviceEvent final : public Event {
 public:
  explicit DeviceEvent(SharedRuntime runtime)
      : runtime_(std::move(runtime)), event_(runtime_->MakeEvent()) {}
  ~DeviceEvent() override { runtime_->DestroyEvent(event_); }
  void Record(StreamView stream) override { runtime_->Record(event_, stream); }
  void Wait(StreamView stream) override { runtime_->Wait(stream, event_); }
  absl::StatusOr<bool> IsReached() override {
    ANYORDER_RETURN_IF_ERROR(runtime_->LastError());
    return runtime_->IsDone(event_);
  }
  void Await() override { runtime_->Synchronize(event_); }

 private:
  const SharedRuntime runtime_;
  const EventView event_;
};

absl::Status CheckSize(int64_t bytes) {
  if (bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("allocate ", bytes, " bytes"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Buffer>> AllocateDeviceBuffer(SharedRuntime runtime, int64_t bytes) {
  ANYORDER_RETURN_IF_ERROR(CheckSize(bytes));
  // A buffer of size 0 still has an address.
  const int64_t taken = std::max<int64_t>(bytes, 1);
  ANYORDER_ASSIGN_OR_RETURN(void* const data, runtime->AllocateDevice(taken));
  auto buffer = std::make_unique<RuntimeBuffer>(runtime, &Runtime::FreeDevice, data, bytes);
  runtime->FillBytes(data, 0, taken, StreamView{});
  // Other streams may be the first to use it.
  runtime->Synchronize(StreamView{});
  return buffer;
}

absl::StatusOr<std::unique_ptr<Buffer>> AllocatePinnedBuffer(SharedRuntime runtime, int64_t bytes) {
  ANYORDER_RETURN_IF_ERROR(CheckSize(bytes));
  const int64_t taken = std::max<int64_t>(bytes, 1);
  ANYORDER_ASSIGN_OR_RETURN(void* const data, runtime->AllocatePinned(taken));
  std::memset(data, 0, static_cast<size_t>(taken));
  return std::make_unique<RuntimeBuffer>(std::move(runtime), &Runtime::FreePinned, data, bytes);
}

absl::StatusOr<std::unique_ptr<HostRegistration>> RegisterHostMemory(SharedRuntime runtime,
                                                                     void* data, int64_t bytes) {
  ANYORDER_RETURN_IF_ERROR(runtime->RegisterHost(data, bytes));
  return std::make_unique<Registration>(std::move(runtime), data);
}

std::unique_ptr<Stream> MakeDeviceStream(SharedRuntime runtime, StreamPurpose purpose) {
  return std::make_unique<DeviceStream>(std::move(runtime), purpose);
}
std::unique_ptr<Event> MakeDeviceEvent(SharedRuntime runtime) {
  return std::make_unique<DeviceEvent>(std::move(runtime));
}

}  // namespace anyorder::kernels::cuda
