// A backend that passes every call on: what a test derives from to put a fault into one of them;
// and the way from an operation back to its member.

#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"

#include "kernels/backend.h"

namespace anyorder::testing {

// The members of Backend that take their arguments as one struct, each of a type of its own.
inline constexpr auto kMembers = std::make_tuple(
    &kernels::Backend::Gemm, &kernels::Backend::ColumnSum, &kernels::Backend::AttentionForward,
    &kernels::Backend::AttentionBackward, &kernels::Backend::ActivationForward,
    &kernels::Backend::ActivationBackward, &kernels::Backend::DropoutApply,
    &kernels::Backend::LayerNormForward, &kernels::Backend::LayerNormBackward,
    &kernels::Backend::EmbeddingForward, &kernels::Backend::EmbeddingBackward,
    &kernels::Backend::LinearCrossEntropy, &kernels::Backend::HeadLoss, &kernels::Backend::AdamW,
    &kernels::Backend::CopyRows, &kernels::Backend::GatherRows, &kernels::Backend::RotaryApply,
    &kernels::Backend::ComputeGradientClip);

// Calls the member of Backend that an operation names.
struct OperationCaller {
  template <typename Args>
  void operator()(const Args* args) const {
    using Member = void (kernels::Backend::*)(const Args&, StreamView);
    (backend.*std::get<Member>(kMembers))(*args, stream);
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

class ForwardingBackend : public kernels::Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<kernels::Backend> inner) : inner_(std::move(inner)) {}

  std::string name() const override { return inner_->name(); }
  bool Supports(DType dtype) const override { return inner_->Supports(dtype); }
  bool RoundsProductFirst() const override { return inner_->RoundsProductFirst(); }
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override {
    return inner_->Allocate(bytes);
  }
  absl::Status Reserve(const kernels::OperationSizes& sizes) override {
    return inner_->Reserve(sizes);
  }
  bool is_host_memory() const override { return inner_->is_host_memory(); }
  void CopyToDevice(const void* host, void* device, int64_t bytes, StreamView stream) override {
    inner_->CopyToDevice(host, device, bytes, stream);
  }
  void CopyToHost(const void* device, void* host, int64_t bytes, StreamView stream) override {
    inner_->CopyToHost(device, host, bytes, stream);
  }
  void Synchronize(StreamView stream) override { inner_->Synchronize(stream); }
  std::string device_id() const override { return inner_->device_id(); }
  DeviceBytes device_bytes() const override { return inner_->device_bytes(); }
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
    std::visit(OperationCaller{*inner_, stream}, operation);
  }

 private:
  const std::unique_ptr<kernels::Backend> inner_;
};

}  // namespace anyorder::testing
