// XLNet's attention at a pretraining shape, in device memory.

#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "tests/bench/gpu/counts.h"
#include "tests/bench/operands.h"
#include "tests/kernels/attention_case.h"

namespace anyorder::bench {

// What the tensors of a problem hold: numbers of bf16; the same numbers in fp32, which the general
// kernels compute with; or numbers in fp32 that bf16 would round to neighbours of these, at most
// (tests/testing/dithered.h).
enum class ProblemValues { kBf16, kBf16InFp32, kDitheredInFp32 };

// Both streams of `batch` lanes in both reading directions, as XLNet's sampler draws them, with a
// plan made ahead, as a network's layers share it. Where backward begins, out and lse are those of
// the last forward. Numbers are random and the same for all kinds of values.
class AttentionProblem {
 public:
  AttentionProblem(kernels::Backend& backend, const XlnetSize& size, int64_t batch, double dropout,
                   ProblemValues values = ProblemValues::kBf16);

  const kernels::AttentionForwardArgs& forward() const { return forward_; }
  const kernels::AttentionBackwardArgs& backward() const { return backward_; }
  const kernels::AttentionPlan& plan() const { return plan_; }

 private:
  void SetCase(const kernels::testing::AttentionCase& drawn, double dropout);
  void SetTensors();
  void SetPlan();
  TensorView Random(Shape shape, uint64_t seed, double deviation = 1.0);

  kernels::Backend& backend_;
  const ProblemValues values_;
  const DType dtype_;
  DeviceMemory memory_;
  kernels::AttentionInputs in_;
  kernels::AttentionPlan plan_;
  kernels::AttentionForwardArgs forward_;
  kernels::AttentionBackwardArgs backward_;
};

}  // namespace anyorder::bench
