// A backend that passes every call on: what a test derives from to put a fault into one of them.

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "kernels/backend.h"

namespace anyorder::testing {

class ForwardingBackend : public kernels::Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<kernels::Backend> inner) : inner_(std::move(inner)) {}

  std::string name() const override { return inner_->name(); }
  bool Supports(DType dtype) const override { return inner_->Supports(dtype); }
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override {
    return inner_->Allocate(bytes);
  }
  absl::Status Reserve(const kernels::OperationSizes& sizes) override {
    return inner_->Reserve(sizes);
  }
  void ReleaseReserved() override { inner_->ReleaseReserved(); }
  bool is_host_memory() const override { return inner_->is_host_memory(); }
  void CopyToDevice(const void* host, void* device, int64_t bytes, StreamView stream) override {
    inner_->CopyToDevice(host, device, bytes, stream);
  }
  void CopyToHost(const void* device, void* host, int64_t bytes, StreamView stream) override {
    inner_->CopyToHost(device, host, bytes, stream);
  }
  void Synchronize(StreamView stream) override { inner_->Synchronize(stream); }
  std::string device_id() const override { return inner_->device_id(); }
  absl::StatusOr<std::unique_ptr<kernels::Stream>> MakeStream(
      kernels::StreamPurpose purpose) override {
    return inner_->MakeStream(purpose);
  }
  absl::StatusOr<std::unique_ptr<kernels::Event>> MakeEvent() override {
    return inner_->MakeEvent();
  }
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> AllocateStaging(int64_t bytes) override {
    return inner_->AllocateStaging(bytes);
  }
  absl::StatusOr<std::unique_ptr<kernels::HostRegistration>> RegisterHost(void* data,
                                                                          int64_t bytes) override {
    return inner_->RegisterHost(data, bytes);
  }
  void CopyFromStaging(const void* host, void* device, int64_t bytes, StreamView stream) override {
    inner_->CopyFromStaging(host, device, bytes, stream);
  }
  void BeginGraph(int64_t key, StreamView stream) override { inner_->BeginGraph(key, stream); }
  void EndGraph(StreamView stream) override { inner_->EndGraph(stream); }
  int64_t AttentionPlanBytes(const kernels::AttentionShape& shape, DType dtype) const override {
    return inner_->AttentionPlanBytes(shape, dtype);
  }
  void PlanAttention(const kernels::AttentionPlan& plan, StreamView stream) override {
    inner_->PlanAttention(plan, stream);
  }
  void ForgetGraph(int64_t key) override { inner_->ForgetGraph(key); }
  int64_t AttentionBackwardWorkspaceBytes(const kernels::AttentionShape& shape,
                                          DType dtype) const override {
    return inner_->AttentionBackwardWorkspaceBytes(shape, dtype);
  }
  int64_t LinearCrossEntropyWorkspaceBytes(int64_t rows, int64_t columns, int64_t vocab,
                                           DType dtype) const override {
    return inner_->LinearCrossEntropyWorkspaceBytes(rows, columns, vocab, dtype);
  }
  void Gemm(const kernels::GemmArgs& args, StreamView stream) override {
    inner_->Gemm(args, stream);
  }
  void ColumnSum(const kernels::ColumnSumArgs& args, StreamView stream) override {
    inner_->ColumnSum(args, stream);
  }
  void AttentionForward(const kernels::AttentionForwardArgs& args, StreamView stream) override {
    inner_->AttentionForward(args, stream);
  }
  void AttentionBackward(const kernels::AttentionBackwardArgs& args, StreamView stream) override {
    inner_->AttentionBackward(args, stream);
  }
  void ActivationForward(const kernels::ActivationForwardArgs& args, StreamView stream) override {
    inner_->ActivationForward(args, stream);
  }
  void ActivationBackward(const kernels::ActivationBackwardArgs& args, StreamView stream) override {
    inner_->ActivationBackward(args, stream);
  }
  void DropoutApply(const kernels::DropoutArgs& args, StreamView stream) override {
    inner_->DropoutApply(args, stream);
  }
  void LayerNormForward(const kernels::LayerNormForwardArgs& args, StreamView stream) override {
    inner_->LayerNormForward(args, stream);
  }
  void LayerNormBackward(const kernels::LayerNormBackwardArgs& args, StreamView stream) override {
    inner_->LayerNormBackward(args, stream);
  }
  void EmbeddingForward(const kernels::EmbeddingForwardArgs& args, StreamView stream) override {
    inner_->EmbeddingForward(args, stream);
  }
  void EmbeddingBackward(const kernels::EmbeddingBackwardArgs& args, StreamView stream) override {
    inner_->EmbeddingBackward(args, stream);
  }
  void LinearCrossEntropy(const kernels::LinearCrossEntropyArgs& args, StreamView stream) override {
    inner_->LinearCrossEntropy(args, stream);
  }
  void AdamW(const kernels::AdamWArgs& args, StreamView stream) override {
    inner_->AdamW(args, stream);
  }
  void CopyRows(const kernels::CopyRowsArgs& args, StreamView stream) override {
    inner_->CopyRows(args, stream);
  }
  void GatherRows(const kernels::GatherRowsArgs& args, StreamView stream) override {
    inner_->GatherRows(args, stream);
  }
  void RotaryApply(const kernels::RotaryArgs& args, StreamView stream) override {
    inner_->RotaryApply(args, stream);
  }
  void SumOfSquares(ConstTensorView x, TensorView sums, StreamView stream) override {
    inner_->SumOfSquares(x, sums, stream);
  }
  void ComputeGradientClip(const kernels::ComputeGradientClipArgs& args,
                           StreamView stream) override {
    inner_->ComputeGradientClip(args, stream);
  }
  void Add(ConstTensorView a, ConstTensorView b, TensorView y, StreamView stream) override {
    inner_->Add(a, b, y, stream);
  }
  void Cast(ConstTensorView x, TensorView y, StreamView stream) override {
    inner_->Cast(x, y, stream);
  }
  void FillZero(TensorView x, StreamView stream) override { inner_->FillZero(x, stream); }
  void Digest(ConstTensorView x, TensorView digest, StreamView stream) override {
    inner_->Digest(x, digest, stream);
  }

 private:
  const std::unique_ptr<kernels::Backend> inner_;
};

}  // namespace anyorder::testing
