// A backend that passes every call on and adds up where the time goes, and how much arithmetic was
// asked for.

#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>

#include "kernels/backend.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::bench {

enum class Part { kGemm, kAttention, kSoftmax, kOptimizer, kRest };
inline constexpr std::array<const char*, 5> kPartNames = {"gemm", "attention", "softmax",
                                                          "optimizer", "rest"};

class TimedBackend final : public kernels::Backend {
 public:
  // Without `timed` only arithmetic is counted.
  TimedBackend(kernels::Backend& inner, bool timed) : inner_(inner), timed_(timed) {}

  void Reset() {
    seconds_ = {};
    gemm_flops_ = attention_flops_ = 0;
  }
  double seconds(Part part) const { return seconds_[static_cast<size_t>(part)]; }
  // Multiplications and additions that the definitions need; nothing that a kernel computes again
  // counts.
  double gemm_flops() const { return gemm_flops_; }
  double attention_flops() const { return attention_flops_; }

  std::string name() const override { return inner_.name(); }
  bool Supports(DType dtype) const override { return inner_.Supports(dtype); }
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override {
    return inner_.Allocate(bytes);
  }
  bool is_host_memory() const override { return inner_.is_host_memory(); }
  void CopyToDevice(const void* host, void* device, int64_t bytes, StreamView stream) override {
    inner_.CopyToDevice(host, device, bytes, stream);
  }
  void CopyToHost(const void* device, void* host, int64_t bytes, StreamView stream) override {
    inner_.CopyToHost(device, host, bytes, stream);
  }
  void Synchronize(StreamView stream) override { inner_.Synchronize(stream); }
  int64_t AttentionPlanBytes(const kernels::AttentionShape& shape, DType dtype) const override {
    return inner_.AttentionPlanBytes(shape, dtype);
  }
  void PlanAttention(const kernels::AttentionPlan& plan, StreamView stream) override {
    Time(Part::kAttention, [&] { inner_.PlanAttention(plan, stream); });
  }
  int64_t AttentionBackwardWorkspaceBytes(const kernels::AttentionShape& shape,
                                          DType dtype) const override {
    return inner_.AttentionBackwardWorkspaceBytes(shape, dtype);
  }
  int64_t LinearCrossEntropyWorkspaceBytes(int64_t rows, int64_t columns, int64_t vocab,
                                           DType dtype) const override {
    return inner_.LinearCrossEntropyWorkspaceBytes(rows, columns, vocab, dtype);
  }

 private:
  using Operation = kernels::Operation;
  template <typename... Args>
  static bool IsOne(const Operation& operation) {
    return (std::holds_alternative<const Args*>(operation) || ...);
  }
  static Part PartOf(const Operation& operation) {
    if (IsOne<kernels::GemmArgs>(operation)) return Part::kGemm;
    if (IsOne<kernels::LinearCrossEntropyArgs>(operation)) return Part::kSoftmax;
    if (IsOne<kernels::AttentionForwardArgs, kernels::AttentionBackwardArgs>(operation))
      return Part::kAttention;
    if (IsOne<kernels::AdamWArgs, kernels::SumOfSquaresArgs, kernels::ComputeGradientClipArgs>(
            operation))
      return Part::kOptimizer;
    return Part::kRest;
  }

  void Count(const kernels::GemmArgs& args) {
    const int64_t inner = args.transpose_a ? args.a.dim(0) : args.a.dim(1);
    const int64_t results = args.batch.count * args.c.num_elements();
    gemm_flops_ += 2.0 * static_cast<double>(results) * static_cast<double>(inner);
  }
  void Count(const kernels::AttentionForwardArgs& args) {
    attention_flops_ += 3 * ProductFlops(args.in.shape);
  }
  void Count(const kernels::AttentionBackwardArgs& args) {
    attention_flops_ += 6 * ProductFlops(args.in.shape);
  }
  void Count(const kernels::LinearCrossEntropyArgs& args) {
    const double products = args.dx.is_null() ? 1 : 3;
    gemm_flops_ += products * 2.0 * static_cast<double>(args.x.num_elements()) *
                   static_cast<double>(args.weight.dim(0));
  }
  template <typename Args>
  void Count(const Args&) {}

  void Enqueue(const Operation& operation, StreamView stream) override {
    std::visit([this](const auto* args) { Count(*args); }, operation);
    Time(PartOf(operation), [&] { testing::Call(inner_, operation, stream); });
  }

  // One [rows, keys] by head_dim product in every head. Forward needs three (content and position
  // scores, values), backward six (dV, dP, and two factors for each kind of score).
  static double ProductFlops(const kernels::AttentionShape& shape) {
    return 2.0 * static_cast<double>(shape.num_rows() * shape.num_keys * shape.model_dim());
  }

  template <typename Call>
  void Time(Part part, const Call& call) {
    if (!timed_) {
      call();
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    seconds_[static_cast<size_t>(part)] += elapsed.count();
  }

  kernels::Backend& inner_;
  bool timed_;
  std::array<double, 5> seconds_{};
  double gemm_flops_ = 0;
  double attention_flops_ = 0;
};

}  // namespace anyorder::bench
