#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "kernels/arguments.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/device_objects.h"
#include "kernels/cuda/platform/staging.h"

namespace anyorder::kernels::cuda {
namespace {

// As the CUDA runtime reads it.
bool LaunchesWait() {
  const char* const value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(std::shared_ptr<Runtime> runtime)
      : runtime_(std::move(runtime)), staging_(*runtime_) {}
  ~CudaBackend() override {
    runtime_->Synchronize(StreamView{});
    for (const auto& [key, graph] : graphs_) {
      if (graph.handle != nullptr) runtime_->DestroyGraph(graph);
    }
    for (const auto& [stream, scratch] : scratch_) {
      if (scratch.data != nullptr) runtime_->FreeDevice(scratch.data);
    }
  }
  absl::Status Prepare(const CudaBackendOptions& options) {
    ANYORDER_RETURN_IF_ERROR(staging_.Prepare());
    ANYORDER_ASSIGN_OR_RETURN(
        gemm_, MakeGemmEngine(*runtime_, {options.gemm_table, options.writes_gemm_table}));
    return absl::OkStatus();
  }

  std::string name() const override {
    const DeviceProperties& device = runtime_->properties();
    return absl::StrCat("cuda (", device.name, ", sm_", device.chip, ")");
  }
  bool Supports(DType dtype) const override {
    return dtype == DType::kFloat32 || dtype == DType::kBFloat16;
  }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    return AllocateDeviceBuffer(runtime_, bytes);
  }
  absl::Status Reserve(const OperationSizes& sizes) override;
  void ReleaseReserved() override;
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
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(StreamPurpose purpose) override {
    return MakeDeviceStream(runtime_, purpose);
  }
  absl::StatusOr<std::unique_ptr<Event>> MakeEvent() override { return MakeDeviceEvent(runtime_); }
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateStaging(int64_t bytes) override {
    return AllocatePinnedBuffer(runtime_, bytes);
  }
  absl::StatusOr<std::unique_ptr<HostRegistration>> RegisterHost(void* data,
                                                                 int64_t bytes) override {
    return RegisterHostMemory(runtime_, data, bytes);
  }
  void CopyFromStaging(const void* host, void* device, int64_t bytes, StreamView stream) override {
    if (bytes > 0) runtime_->CopyToDevice(host, device, bytes, On(stream));
  }

  void BeginGraph(int64_t key, StreamView stream) override;
  void EndGraph(StreamView stream) override;
  void ForgetGraph(int64_t key) override;

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
    Poison(plan.memory.raw(), AttentionPlanBytes(plan.shape, plan.dtype), stream);
    cuda::PlanAttention(plan, On(stream));
  }

  void Gemm(const GemmArgs& args, StreamView stream) override {
    CheckArguments(args);
    gemm_->Run(args, On(stream));
  }
  void ColumnSum(const ColumnSumArgs& args, StreamView stream) override {
    CheckArguments(args);
    const int64_t elements = ColumnSumScratchElements(NumRows(args.x), NumColumns(args.x));
    cuda::ColumnSum(args, ScratchOf(elements, stream), On(stream));
  }
  void AttentionForward(const AttentionForwardArgs& args, StreamView stream) override {
    CheckArguments(args);
    const int64_t elements = AttentionScratchElements(args.in.shape);
    cuda::AttentionForward(args, ScratchOf(elements, stream), On(stream));
  }
  void AttentionBackward(const AttentionBackwardArgs& args, StreamView stream) override {
    CheckArguments(args, AttentionBackwardWorkspaceBytes(args.in.shape, args.in.q.dtype()));
    cuda::AttentionBackward(args, On(stream));
  }
  void ActivationForward(const ActivationForwardArgs& args, StreamView stream) override {
    CheckArguments(args);
    cuda::ActivationForward(args, On(stream));
  }
  void ActivationBackward(const ActivationBackwardArgs& args, StreamView stream) override {
    CheckArguments(args);
    cuda::ActivationBackward(args, On(stream));
  }
  void DropoutApply(const DropoutArgs& args, StreamView stream) override {
    CheckArguments(args);
    cuda::DropoutApply(args, On(stream));
  }
  void LayerNormForward(const LayerNormForwardArgs& args, StreamView stream) override {
    CheckArguments(args);
    cuda::LayerNormForward(args, On(stream));
  }
  void LayerNormBackward(const LayerNormBackwardArgs& args, StreamView stream) override {
    CheckArguments(args);
    const int64_t elements = LayerNormScratchElements(NumColumns(args.dy));
    cuda::LayerNormBackward(args, ScratchOf(elements, stream), On(stream));
  }
  void EmbeddingForward(const EmbeddingForwardArgs& args, StreamView stream) override {
    CheckArguments(args, Values::kOnDevice);
    cuda::EmbeddingForward(args, On(stream));
  }
  void EmbeddingBackward(const EmbeddingBackwardArgs& args, StreamView stream) override {
    CheckArguments(args, Values::kOnDevice);
    const int64_t elements =
        EmbeddingBackwardScratchElements(NumRows(args.dy), NumColumns(args.dy));
    cuda::EmbeddingBackward(args, ScratchOf(elements, stream), On(stream));
  }
  void LinearCrossEntropy(const LinearCrossEntropyArgs& args, StreamView stream) override;
  void AdamW(const AdamWArgs& args, StreamView stream) override {
    CheckArguments(args);
    cuda::AdamW(args, On(stream));
  }
  void CopyRows(const CopyRowsArgs& args, StreamView stream) override {
    CheckArguments(args);
    cuda::CopyRows(args, On(stream));
  }
  void GatherRows(const GatherRowsArgs& args, StreamView stream) override {
    CheckArguments(args, Values::kOnDevice);
    cuda::GatherRows(args, On(stream));
  }
  void RotaryApply(const RotaryArgs& args, StreamView stream) override {
    CheckArguments(args);
    cuda::RotaryApply(args, On(stream));
  }
  void SumOfSquares(ConstTensorView x, TensorView sums, StreamView stream) override {
    CheckSumOfSquares(x, sums);
    cuda::SumOfSquares(x, sums, On(stream));
  }
  void ComputeGradientClip(const ComputeGradientClipArgs& args, StreamView stream) override {
    CheckArguments(args);
    cuda::ComputeGradientClip(args, On(stream));
  }
  void Add(ConstTensorView a, ConstTensorView b, TensorView y, StreamView stream) override {
    CheckAdd(a, b, y);
    cuda::Add(a, b, y, On(stream));
  }
  void Cast(ConstTensorView x, TensorView y, StreamView stream) override {
    CheckCast(x, y);
    cuda::Cast(x, y, On(stream));
  }
  void FillZero(TensorView x, StreamView stream) override { cuda::FillZero(x, On(stream)); }
  void Digest(ConstTensorView x, TensorView digest, StreamView stream) override {
    CheckDigest(x, digest);
    const int64_t elements = DigestScratchElements(x.num_bytes());
    cuda::Digest(x, digest, ScratchOf(elements, stream), On(stream));
  }

 private:
  StreamView On(StreamView stream) const { return runtime_->Resolve(stream); }
  // Each stream has its own, whose operations use it one after another. It grows when a shape comes
  // up for the first time.
  Scratch ScratchOf(int64_t elements, StreamView stream);
  // In the emulation: what is read of the memory must have been written by the operation that
  // follows.
  void Poison(void* memory, int64_t bytes, StreamView stream) {
    if (runtime_->is_emulated() && bytes > 0) runtime_->FillBytes(memory, 0xff, bytes, On(stream));
  }
  absl::Status Grow(Scratch& scratch, int64_t elements);

  const std::shared_ptr<Runtime> runtime_;
  Staging staging_;
  std::unique_ptr<GemmEngine> gemm_;
  std::map<void*, Scratch> scratch_;
  std::map<int64_t, GraphView> graphs_;  // a null one: its operations ran once
  int64_t captured_key_ = 0;
  const bool launches_wait_ = LaunchesWait();
};

absl::Status CudaBackend::Grow(Scratch& scratch, int64_t elements) {
  if (scratch.elements >= elements) return absl::OkStatus();
  if (scratch.data != nullptr) runtime_->FreeDevice(scratch.data);
  scratch = {};
  ANYORDER_ASSIGN_OR_RETURN(
      void* const data, runtime_->AllocateDevice(elements * static_cast<int64_t>(sizeof(float))));
  scratch = {static_cast<float*>(data), elements};
  return absl::OkStatus();
}

absl::Status CudaBackend::Reserve(const OperationSizes& sizes) {
  int64_t elements = std::max({ColumnSumScratchElements(sizes.rows, sizes.columns),
                               LayerNormScratchElements(sizes.columns),
                               EmbeddingBackwardScratchElements(sizes.rows, sizes.columns),
                               DigestScratchElements(std::numeric_limits<int64_t>::max() / 2)});
  for (const AttentionShape& shape : sizes.attention)
    elements = std::max(elements, AttentionScratchElements(shape));
  ANYORDER_RETURN_IF_ERROR(Grow(scratch_[On({}).handle], elements));
  return gemm_->Reserve(sizes.rows, sizes.columns, On({}));
}

void CudaBackend::ReleaseReserved() {
  Scratch& scratch = scratch_[On({}).handle];
  if (scratch.data != nullptr) runtime_->FreeDevice(scratch.data);
  scratch = {};
}

Scratch CudaBackend::ScratchOf(int64_t elements, StreamView stream) {
  if (elements == 0) return {};
  Scratch& scratch = scratch_[On(stream).handle];
  if (scratch.elements < elements) {
    ANYORDER_CHECK(!runtime_->IsCapturing(On(stream)))
        << "an operation needs " << elements
        << " floats of scratch for the first time inside of a graph";
    if (const absl::Status status = Grow(scratch, elements); !status.ok()) EndWith(status);
  }
  Poison(scratch.data, elements * static_cast<int64_t>(sizeof(float)), stream);
  return scratch;
}

void CudaBackend::BeginGraph(int64_t key, StreamView stream) {
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

void CudaBackend::EndGraph(StreamView stream) {
  if (!runtime_->IsCapturing(On(stream))) return;
  GraphView& graph = graphs_[captured_key_];
  runtime_->EndCapture(On(stream), &graph);
  runtime_->Launch(graph, On(stream));
}

void CudaBackend::ForgetGraph(int64_t key) {
  const auto found = graphs_.find(key);
  if (found == graphs_.end()) return;
  if (found->second.handle != nullptr) {
    runtime_->Synchronize(StreamView{});  // it may still run
    runtime_->DestroyGraph(found->second);
  }
  graphs_.erase(found);
}

void CudaBackend::LinearCrossEntropy(const LinearCrossEntropyArgs& args, StreamView stream) {
  CheckArguments(args,
                 LinearCrossEntropyWorkspaceBytes(NumRows(args.x), NumColumns(args.x),
                                                  NumRows(args.weight), args.x.dtype()),
                 Values::kOnDevice);
  const auto multiply = [this](const GemmArgs& product, StreamView on) { gemm_->Run(product, on); };
  cuda::LinearCrossEntropy(args, multiply, On(stream));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Runtime> runtime,
                                                         const CudaBackendOptions& options) {
  auto backend = std::make_unique<CudaBackend>(std::move(runtime));
  ANYORDER_RETURN_IF_ERROR(backend->Prepare(options));
  return backend;
}

}  // namespace anyorder::kernels::cuda
