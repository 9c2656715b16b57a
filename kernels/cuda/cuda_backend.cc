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
#include "kernels/cuda/platform/stream_scratch.h"

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
      : runtime_(std::move(runtime)), staging_(*runtime_), scratch_(runtime_->MakeScratch()) {}
  ~CudaBackend() override {
    runtime_->Synchronize(StreamView{});
    for (const auto& [key, graph] : graphs_) {
      if (graph.handle != nullptr) runtime_->DestroyGraph(graph);
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
  void ReleaseReserved() override { scratch_->Release({}); }
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
    cuda::PlanAttention(plan, On(stream));
  }

 private:
  void Enqueue(const Operation& operation, StreamView stream) override {
    CheckArguments(operation, *this);
    std::visit([this, on = On(stream)](const auto* args) { Run(*args, on); }, operation);
  }

  void Run(const GemmArgs& args, StreamView stream) { gemm_->Run(args, stream); }
  void Run(const ColumnSumArgs& args, StreamView stream) {
    const int64_t elements = ColumnSumScratchElements(NumRows(args.x), NumColumns(args.x));
    cuda::ColumnSum(args, ScratchOf(elements, stream), stream);
  }
  void Run(const AttentionForwardArgs& args, StreamView stream) {
    const int64_t elements = AttentionScratchElements(args.in.shape);
    cuda::AttentionForward(args, ScratchOf(elements, stream), stream);
  }
  void Run(const AttentionBackwardArgs& args, StreamView stream) {
    cuda::AttentionBackward(args, stream);
  }
  void Run(const ActivationForwardArgs& args, StreamView stream) {
    cuda::ActivationForward(args, stream);
  }
  void Run(const ActivationBackwardArgs& args, StreamView stream) {
    cuda::ActivationBackward(args, stream);
  }
  void Run(const DropoutArgs& args, StreamView stream) { cuda::DropoutApply(args, stream); }
  void Run(const LayerNormForwardArgs& args, StreamView stream) {
    cuda::LayerNormForward(args, stream);
  }
  void Run(const LayerNormBackwardArgs& args, StreamView stream) {
    const int64_t elements = LayerNormScratchElements(NumColumns(args.dy));
    cuda::LayerNormBackward(args, ScratchOf(elements, stream), stream);
  }
  void Run(const EmbeddingForwardArgs& args, StreamView stream) {
    cuda::EmbeddingForward(args, stream);
  }
  void Run(const EmbeddingBackwardArgs& args, StreamView stream) {
    const int64_t elements =
        EmbeddingBackwardScratchElements(NumRows(args.dy), NumColumns(args.dy));
    cuda::EmbeddingBackward(args, ScratchOf(elements, stream), stream);
  }
  void Run(const LinearCrossEntropyArgs& args, StreamView stream) {
    const auto multiply = [this](const GemmArgs& product, StreamView on) {
      gemm_->Run(product, on);
    };
    cuda::LinearCrossEntropy(args, multiply, stream);
  }
  void Run(const AdamWArgs& args, StreamView stream) { cuda::AdamW(args, stream); }
  void Run(const ComputeGradientClipArgs& args, StreamView stream) {
    cuda::ComputeGradientClip(args, stream);
  }
  void Run(const CopyRowsArgs& args, StreamView stream) { cuda::CopyRows(args, stream); }
  void Run(const GatherRowsArgs& args, StreamView stream) { cuda::GatherRows(args, stream); }
  void Run(const RotaryArgs& args, StreamView stream) { cuda::RotaryApply(args, stream); }
  void Run(const SumOfSquaresArgs& args, StreamView stream) {
    cuda::SumOfSquares(args.x, args.sums, stream);
  }
  void Run(const AddArgs& args, StreamView stream) { cuda::Add(args.a, args.b, args.y, stream); }
  void Run(const CastArgs& args, StreamView stream) { cuda::Cast(args.x, args.y, stream); }
  void Run(const FillZeroArgs& args, StreamView stream) { cuda::FillZero(args.x, stream); }
  void Run(const DigestArgs& args, StreamView stream) {
    const int64_t elements = DigestScratchElements(args.x.num_bytes());
    cuda::Digest(args.x, args.digest, ScratchOf(elements, stream), stream);
  }

  StreamView On(StreamView stream) const { return runtime_->Resolve(stream); }
  Scratch ScratchOf(int64_t elements, StreamView stream) {
    const int64_t bytes = elements * static_cast<int64_t>(sizeof(float));
    return {static_cast<float*>(scratch_->Take(bytes, stream)), elements};
  }

  const std::shared_ptr<Runtime> runtime_;
  Staging staging_;
  const std::unique_ptr<StreamScratch> scratch_;
  std::unique_ptr<GemmEngine> gemm_;
  std::map<int64_t, GraphView> graphs_;  // a null one: its operations ran once
  int64_t captured_key_ = 0;
  const bool launches_wait_ = LaunchesWait();
};

absl::Status CudaBackend::Reserve(const OperationSizes& sizes) {
  int64_t elements = std::max({ColumnSumScratchElements(sizes.rows, sizes.columns),
                               LayerNormScratchElements(sizes.columns),
                               EmbeddingBackwardScratchElements(sizes.rows, sizes.columns),
                               DigestScratchElements(std::numeric_limits<int64_t>::max() / 2)});
  for (const AttentionShape& shape : sizes.attention)
    elements = std::max(elements, AttentionScratchElements(shape));
  ANYORDER_RETURN_IF_ERROR(scratch_->Reserve(elements * static_cast<int64_t>(sizeof(float)), {}));
  return gemm_->Reserve(sizes.rows, sizes.columns, On({}));
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

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Runtime> runtime,
                                                         const CudaBackendOptions& options) {
  auto backend = std::make_unique<CudaBackend>(std::move(runtime));
  ANYORDER_RETURN_IF_ERROR(backend->Prepare(options));
  return backend;
}

}  // namespace anyorder::kernels::cuda
