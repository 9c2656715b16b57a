#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "kernels/arguments.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/staging.h"

namespace anyorder::kernels::cuda {
namespace {

// As the CUDA runtime reads it.
bool LaunchesWait() {
  const char* const value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

// What the backend gives away: memory, streams and events that free themselves. They keep the
// runtime alive, so that they may outlive the backend.
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
    RETURN_IF_ERROR(runtime_->LastError());
    return runtime_->IsDone(event_);
  }
  void Await() override { runtime_->Synchronize(event_); }

 private:
  const SharedRuntime runtime_;
  const EventView event_;
};

absl::Status CheckSize(int64_t bytes) {
  if (bytes >= 0) return absl::OkStatus();
  return InvalidArgument("allocate ", bytes, " bytes");
}

int64_t ScratchElements(const ColumnSumArgs& args) {
  return ColumnSumScratchElements(NumRows(args.x), NumColumns(args.x));
}
int64_t ScratchElements(const AttentionForwardArgs& args) {
  return AttentionScratchElements(args.in.shape);
}
int64_t ScratchElements(const LayerNormBackwardArgs& args) {
  return LayerNormScratchElements(NumColumns(args.dy));
}
int64_t ScratchElements(const EmbeddingBackwardArgs& args) {
  return EmbeddingBackwardScratchElements(NumRows(args.dy), NumColumns(args.dy));
}
int64_t ScratchElements(const DigestArgs& args) {
  return DigestScratchElements(args.x.num_bytes());
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(SharedRuntime runtime)
      : runtime_(std::move(runtime)), staging_(*runtime_), scratch_(runtime_->MakeScratch()) {}
  ~CudaBackend() override {
    runtime_->Synchronize(StreamView{});
    for (const auto& [key, graph] : graphs_) {
      if (graph.handle != nullptr) runtime_->DestroyGraph(graph);
    }
  }
  absl::Status Prepare(const GemmOptions& options) {
    RETURN_IF_ERROR(staging_.Prepare());
    ASSIGN_OR_RETURN(gemm_, MakeGemmEngine(*runtime_, options));
    return absl::OkStatus();
  }

  std::string name() const override {
    const DeviceProperties& device = runtime_->properties();
    return absl::StrCat("cuda (", device.name, ", sm_", device.chip, ")");
  }
  bool Supports(DType dtype) const override {
    return dtype == DType::kFloat32 || dtype == DType::kBFloat16;
  }
  bool RoundsProductFirst() const override { return gemm_->rounds_product_first(); }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    RETURN_IF_ERROR(CheckSize(bytes));
    // A buffer of size 0 still has an address.
    const int64_t taken = std::max<int64_t>(bytes, 1);
    ASSIGN_OR_RETURN(void* const data, runtime_->AllocateDevice(taken));
    auto buffer = std::make_unique<RuntimeBuffer>(runtime_, &Runtime::FreeDevice, data, bytes);
    runtime_->FillBytes(data, 0, taken, StreamView{});
    // Other streams may be the first to use it.
    runtime_->Synchronize(StreamView{});
    return buffer;
  }
  absl::Status Reserve(const OperationSizes& sizes) override {
    RETURN_IF_ERROR(scratch_->Reserve(ReservedScratchBytes(sizes), {}));
    return gemm_->Reserve(sizes.rows, sizes.columns, On({}));
  }
  bool is_host_memory() const override { return false; }
  void CopyToDevice(const void* host, void* device, int64_t bytes, StreamView stream) override {
    staging_.CopyToDevice(host, device, bytes, On(stream));
  }
  void CopyToHost(const void* device, void* host, int64_t bytes, StreamView stream) override {
    staging_.CopyToHost(device, host, bytes, On(stream));
  }
  void Synchronize(StreamView stream) override {
    runtime_->Synchronize(On(stream));
    staging_.Deliver(On(stream));
  }

  std::string device_id() const override { return runtime_->properties().identity; }
  DeviceBytes device_bytes() const override {
    const DeviceMemoryInfo memory = runtime_->memory();
    return {memory.total_bytes, memory.total_bytes - memory.free_bytes, gemm_->workspace_bytes()};
  }
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(StreamPurpose purpose) override {
    return std::make_unique<DeviceStream>(runtime_, purpose);
  }
  absl::StatusOr<std::unique_ptr<Event>> MakeEvent() override {
    return std::make_unique<DeviceEvent>(runtime_);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateStaging(int64_t bytes) override {
    RETURN_IF_ERROR(CheckSize(bytes));
    const int64_t taken = std::max<int64_t>(bytes, 1);
    ASSIGN_OR_RETURN(void* const data, runtime_->AllocatePinned(taken));
    std::memset(data, 0, static_cast<size_t>(taken));
    return std::make_unique<RuntimeBuffer>(runtime_, &Runtime::FreePinned, data, bytes);
  }
  absl::StatusOr<std::unique_ptr<HostRegistration>> RegisterHost(void* data,
                                                                 int64_t bytes) override {
    RETURN_IF_ERROR(runtime_->RegisterHost(data, bytes));
    return std::make_unique<Registration>(runtime_, data);
  }
  void CopyFromStaging(const void* host, void* device, int64_t bytes, StreamView stream) override {
    if (bytes > 0) runtime_->CopyToDevice(host, device, bytes, On(stream));
  }

  void BeginGraph(int64_t key, StreamView stream) override {
    ANYORDER_CHECK(!runtime_->IsCapturing(On(stream))) << "a graph inside of a graph";
    // Launches are waited for to find the kernel that fails, and a graph would hide it.
    if (launches_wait_) return;
    // The first run is a plain one: it grows scratch and chooses the products' algorithms, which a
    // capture cannot.
    if (!graphs_.contains(key)) {
      graphs_[key] = {};
      return;
    }
    captured_key_ = key;
    runtime_->BeginCapture(On(stream));
  }
  void EndGraph(StreamView stream) override {
    if (!runtime_->IsCapturing(On(stream))) return;
    GraphView& graph = graphs_[captured_key_];
    runtime_->EndCapture(On(stream), &graph);
    runtime_->Launch(graph, On(stream));
  }
  void ForgetGraph(int64_t key) override {
    const auto found = graphs_.find(key);
    if (found == graphs_.end()) return;
    if (found->second.handle != nullptr) {
      runtime_->Synchronize(StreamView{});  // it may still run
      runtime_->DestroyGraph(found->second);
    }
    graphs_.erase(found);
  }

  int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape, DType dtype) const override {
    return cuda::AttentionBackwardWorkspaceBytes(shape, dtype);
  }
  int64_t LinearCrossEntropyWorkspaceBytes(int64_t rows, int64_t columns, int64_t vocab,
                                           DType dtype) const override {
    return cuda::LinearCrossEntropyWorkspaceBytes(rows, columns, vocab, dtype);
  }

  int64_t AttentionPlanBytes(const AttentionShape& shape, DType dtype) const override {
    return cuda::AttentionPlanBytes(shape, dtype);
  }
  void PlanAttention(const AttentionPlan& plan, StreamView stream) override {
    cuda::PlanAttention(plan, On(stream));
  }

 private:
  void Enqueue(const Operation& operation, StreamView stream) override {
    CheckArguments(operation, *this);
    std::visit([this, on = On(stream)](const auto* args) { Start(*args, on); }, operation);
  }
  void Start(const GemmArgs& args, StreamView stream) { gemm_->Run(args, stream); }
  void Start(const LinearCrossEntropyArgs& args, StreamView stream) {
    const auto multiply = [this](const GemmArgs& product, StreamView on) {
      gemm_->Run(product, on);
    };
    Run(args, multiply, stream);
  }
  template <typename Args>
  void Start(const Args& args, StreamView stream) {
    if constexpr (requires { ScratchElements(args); }) {
      const int64_t bytes = ScratchElements(args) * static_cast<int64_t>(sizeof(float));
      Run(args, static_cast<float*>(scratch_->Take(bytes, stream)), stream);
    } else {
      Run(args, stream);
    }
  }

  StreamView On(StreamView stream) const { return runtime_->Resolve(stream); }

  const SharedRuntime runtime_;
  Staging staging_;
  const std::unique_ptr<StreamScratch> scratch_;
  std::unique_ptr<GemmEngine> gemm_;
  std::map<int64_t, GraphView> graphs_;  // a null one: its operations ran once
  int64_t captured_key_ = 0;
  const bool launches_wait_ = LaunchesWait();
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Runtime> runtime,
                                                         const GemmOptions& options) {
  auto backend = std::make_unique<CudaBackend>(std::move(runtime));
  RETURN_IF_ERROR(backend->Prepare(options));
  return backend;
}

}  // namespace anyorder::kernels::cuda
