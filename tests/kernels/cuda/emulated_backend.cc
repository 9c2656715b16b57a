#include "tests/kernels/cuda/emulated_backend.h"

#include <limits>
#include <string>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/cuda/operations.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::kernels::cuda {
namespace {

class EmulatedBackend final : public testing::ForwardingBackend {
 public:
  explicit EmulatedBackend(const emulation::Schedule& schedule)
      : ForwardingBackend(MakeReferenceBackend()), schedule_(schedule) {}

  std::string name() const override { return "cuda (emulated)"; }
  bool Supports(DType dtype) const override {
    return dtype == DType::kFloat32 || dtype == DType::kBFloat16;
  }

  void LayerNormForward(const LayerNormForwardArgs& args, StreamView stream) override {
    CheckArguments(args);
    Begin();
    cuda::LayerNormForward(args, stream);
  }
  void LayerNormBackward(const LayerNormBackwardArgs& args, StreamView stream) override {
    CheckArguments(args);
    Begin();
    cuda::LayerNormBackward(args, ScratchOf(LayerNormScratchElements(NumColumns(args.dy))), stream);
  }
  void ActivationForward(const ActivationForwardArgs& args, StreamView stream) override {
    CheckArguments(args);
    Begin();
    cuda::ActivationForward(args, stream);
  }
  void ActivationBackward(const ActivationBackwardArgs& args, StreamView stream) override {
    CheckArguments(args);
    Begin();
    cuda::ActivationBackward(args, stream);
  }
  void DropoutApply(const DropoutArgs& args, StreamView stream) override {
    CheckArguments(args);
    Begin();
    cuda::DropoutApply(args, stream);
  }
  void EmbeddingForward(const EmbeddingForwardArgs& args, StreamView stream) override {
    CheckArguments(args);
    Begin();
    cuda::EmbeddingForward(args, stream);
  }
  void EmbeddingBackward(const EmbeddingBackwardArgs& args, StreamView stream) override {
    CheckArguments(args);
    Begin();
    cuda::EmbeddingBackward(
        args,
        ScratchOf(EmbeddingBackwardScratchElements(NumRows(args.dy), NumColumns(args.dy))),
        stream);
  }
  int64_t LinearCrossEntropyWorkspaceBytes(int64_t rows,
                                           int64_t columns,
                                           int64_t vocab,
                                           DType dtype) const override {
    return cuda::LinearCrossEntropyWorkspaceBytes(rows, columns, vocab, dtype);
  }
  void LinearCrossEntropy(const LinearCrossEntropyArgs& args, StreamView stream) override {
    CheckArguments(args,
                   LinearCrossEntropyWorkspaceBytes(
                       NumRows(args.x), NumColumns(args.x), NumRows(args.weight), args.x.dtype()));
    Begin();
    const auto gemm = [this](const GemmArgs& product, StreamView on) { Gemm(product, on); };
    cuda::LinearCrossEntropy(args, gemm, stream);
  }
  void GatherRows(const GatherRowsArgs& args, StreamView stream) override {
    CheckArguments(args);
    Begin();
    cuda::GatherRows(args, stream);
  }
  void RotaryApply(const RotaryArgs& args, StreamView stream) override {
    CheckArguments(args);
    Begin();
    cuda::RotaryApply(args, stream);
  }
  void ColumnSum(const ColumnSumArgs& args, StreamView stream) override {
    CheckArguments(args);
    Begin();
    cuda::ColumnSum(
        args, ScratchOf(ColumnSumScratchElements(NumRows(args.x), NumColumns(args.x))), stream);
  }
  void AdamW(const AdamWArgs& args, StreamView stream) override {
    CheckArguments(args);
    Begin();
    cuda::AdamW(args, stream);
  }
  void SumOfSquares(ConstTensorView x, TensorView sums, StreamView stream) override {
    CheckSumOfSquares(x, sums);
    Begin();
    cuda::SumOfSquares(x, sums, stream);
  }
  void FoldNorm(const FoldNormArgs& args, StreamView stream) override {
    CheckArguments(args);
    Begin();
    cuda::FoldNorm(args, stream);
  }
  void Add(ConstTensorView a, ConstTensorView b, TensorView y, StreamView stream) override {
    CheckAdd(a, b, y);
    Begin();
    cuda::Add(a, b, y, stream);
  }
  void Cast(ConstTensorView x, TensorView y, StreamView stream) override {
    CheckCast(x, y);
    Begin();
    cuda::Cast(x, y, stream);
  }
  void CopyRows(const CopyRowsArgs& args, StreamView stream) override {
    CheckArguments(args);
    Begin();
    cuda::CopyRows(args, stream);
  }
  void FillZero(TensorView x, StreamView stream) override {
    Begin();
    cuda::FillZero(x, stream);
  }

 private:
  void Begin() { emulation::SetSchedule(schedule_); }
  // Poisoned: what is read of it must have been written by the call.
  Scratch ScratchOf(int64_t elements) {
    scratch_.assign(static_cast<size_t>(elements), std::numeric_limits<float>::quiet_NaN());
    return {scratch_.data(), elements};
  }

  emulation::Schedule schedule_;
  std::vector<float> scratch_;
};

}  // namespace

std::unique_ptr<Backend> MakeEmulatedBackend(const emulation::Schedule& schedule) {
  return std::make_unique<EmulatedBackend>(schedule);
}

}  // namespace anyorder::kernels::cuda
