#include <cstring>

#include "kernels/backend.h"
#include "kernels/host_buffer.h"
#include "kernels/reference/operations.h"

namespace anyorder::kernels {

namespace {

class ReferenceBackend : public Backend {
 public:
  std::string name() const override { return "reference"; }
  bool Supports(DType dtype) const override {
    return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kBFloat16;
  }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    return AllocateHostBuffer(bytes);
  }
  int64_t AttentionBackwardWorkspaceBytes(const AttentionShape&, DType) const override { return 0; }
  int64_t LinearCrossEntropyWorkspaceBytes(int64_t, int64_t, int64_t, DType) const override {
    return 0;
  }

  void Gemm(const GemmArgs& args, StreamView) override { reference::Gemm(args); }
  void ColumnSum(const ColumnSumArgs& args, StreamView) override { reference::ColumnSum(args); }
  void AttentionForward(const AttentionForwardArgs& args, StreamView) override {
    reference::AttentionForward(args);
  }
  void AttentionBackward(const AttentionBackwardArgs& args, StreamView) override {
    reference::AttentionBackward(args);
  }
  void ActivationForward(const ActivationForwardArgs& args, StreamView) override {
    reference::ActivationForward(args);
  }
  void ActivationBackward(const ActivationBackwardArgs& args, StreamView) override {
    reference::ActivationBackward(args);
  }
  void DropoutApply(const DropoutArgs& args, StreamView) override { reference::DropoutApply(args); }
  void LayerNormForward(const LayerNormForwardArgs& args, StreamView) override {
    reference::LayerNormForward(args);
  }
  void LayerNormBackward(const LayerNormBackwardArgs& args, StreamView) override {
    reference::LayerNormBackward(args);
  }
  void EmbeddingForward(const EmbeddingForwardArgs& args, StreamView) override {
    reference::EmbeddingForward(args);
  }
  void EmbeddingBackward(const EmbeddingBackwardArgs& args, StreamView) override {
    reference::EmbeddingBackward(args);
  }
  void LinearCrossEntropy(const LinearCrossEntropyArgs& args, StreamView) override {
    reference::LinearCrossEntropy(args);
  }
  void AdamW(const AdamWArgs& args, StreamView) override { reference::AdamW(args); }
  void CopyRows(const CopyRowsArgs& args, StreamView) override { reference::CopyRows(args); }
  void GatherRows(const GatherRowsArgs& args, StreamView) override { reference::GatherRows(args); }
  void RotaryApply(const RotaryArgs& args, StreamView) override { reference::RotaryApply(args); }
  void SumOfSquares(ConstTensorView x, TensorView sums, StreamView) override {
    reference::SumOfSquares(x, sums);
  }
  void Add(ConstTensorView a, ConstTensorView b, TensorView y, StreamView) override {
    reference::Add(a, b, y);
  }
  void Cast(ConstTensorView x, TensorView y, StreamView) override { reference::Cast(x, y); }
  void FillZero(TensorView x, StreamView) override {
    if (x.num_bytes() > 0) std::memset(x.raw(), 0, x.num_bytes());
  }
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace anyorder::kernels
