// A backend that passes every call on: what a test derives from to put a fault into one of them;
// and the way from an operation back to its member.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"

#include "kernels/backend.h"

namespace anyorder::testing {

// Calls the member of Backend that an operation names; one overload for each alternative.
struct OperationCaller {
  void operator()(const kernels::GemmArgs* args) const { backend.Gemm(*args, stream); }
  void operator()(const kernels::ColumnSumArgs* args) const { backend.ColumnSum(*args, stream); }
  void operator()(const kernels::AttentionForwardArgs* args) const {
    backend.AttentionForward(*args, stream);
  }
  void operator()(const kernels::AttentionBackwardArgs* args) const {
    backend.AttentionBackward(*args, stream);
  }
  void operator()(const kernels::ActivationForwardArgs* args) const {
    backend.ActivationForward(*args, stream);
  }
  void operator()(const kernels::ActivationBackwardArgs* args) const {
    backend.ActivationBackward(*args, stream);
  }
  void operator()(const kernels::DropoutArgs* args) const { backend.DropoutApply(*args, stream); }
  void operator()(const kernels::LayerNormForwardArgs* args) const {
    backend.LayerNormForward(*args, stream);
  }
  void operator()(const kernels::LayerNormBackwardArgs* args) const {
    backend.LayerNormBackward(*args, stream);
  }
  void operator()(const kernels::EmbeddingForwardArgs* args) const {
    backend.EmbeddingForward(*args, stream);
  }
  void operator()(const kernels::EmbeddingBackwardArgs* args) const {
    backend.EmbeddingBackward(*args, stream);
  }
  void operator()(const kernels::LinearCrossEntropyArgs* args) const {
    backend.LinearCrossEntropy(*args, stream);
  }
  void operator()(const kernels::AdamWArgs* args) const { backend.AdamW(*args, stream); }
  void operator()(const kernels::CopyRowsArgs* args) const { backend.CopyRows(*args, stream); }
  void operator()(const kernels::GatherRowsArgs* args) const { backend.GatherRows(*args, stream); }
  void operator()(const kernels::RotaryArgs* args) const { backend.RotaryApply(*args, stream); }
  void operator()(const kernels::ComputeGradientClipArgs* args) const {
    backend.ComputeGradientClip(*args, stream);
  }
  void operator()(const kernels::SumOfSquaresArgs* args) const {
    backend.SumOfSquares(args->x, args->sums, stream);
  }
  void operator()(const kernels::AddArgs* args) const {
    backend.Add(args->a, args->b, args->y, stream);
  }
  void operator()(const kernels::CastArgs* args) const { backend.Cast(args->x, args->y, stream); }
  void operator()(const kernels::FillZeroArgs* args) const { backend.FillZero(args->x, stream); }
  void operator()(const kernels::DigestArgs* args) const {
    backend.Digest(args->x, args->digest, stream);
  }

  kernels::Backend& backend;
  StreamView stream;
};

inline void Call(kernels::Backend& backend, const kernels::Operation& operation,
                 StreamView stream) {
  std::visit(OperationCaller{backend, stream}, operation);
}

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

 protected:
  void Enqueue(const kernels::Operation& operation, StreamView stream) override {
    Call(*inner_, operation, stream);
  }

 private:
  const std::unique_ptr<kernels::Backend> inner_;
};

}  // namespace anyorder::testing
