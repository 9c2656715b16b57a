// A backend, and how much memory and how many rows of logits it was asked for.

#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/backend.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {

class CountingBackend final : public ForwardingBackend {
 public:
  explicit CountingBackend(
      int64_t vocab_size, std::unique_ptr<kernels::Backend> inner = kernels::MakeReferenceBackend())
      : ForwardingBackend(std::move(inner)), vocab_size_(vocab_size) {}

  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override {
    bytes_ += bytes;
    return ForwardingBackend::Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> AllocateStaging(int64_t bytes) override {
    bytes_ += bytes;
    return ForwardingBackend::AllocateStaging(bytes);
  }
  void Gemm(const kernels::GemmArgs& args, StreamView stream) override {
    if (args.c.dim(args.c.shape().rank() - 1) == vocab_size_) logit_rows_ += args.c.dim(0);
    ForwardingBackend::Gemm(args, stream);
  }

  void CopyRows(const kernels::CopyRowsArgs& args, StreamView stream) override {
    copied_ += args.rows * args.columns;
    ForwardingBackend::CopyRows(args, stream);
  }

  // Allocated so far, whether it was freed or not.
  int64_t bytes() const { return bytes_; }
  // Of products with a column for each token.
  int64_t logit_rows() const { return logit_rows_; }
  // Elements, by CopyRows.
  int64_t copied() const { return copied_; }

 private:
  const int64_t vocab_size_;
  int64_t bytes_ = 0;
  int64_t logit_rows_ = 0;
  int64_t copied_ = 0;
};

}  // namespace anyorder::testing
