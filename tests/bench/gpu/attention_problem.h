// Attention at training shapes, in device memory.

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

// One stream over its own keys with neither bias nor position term, as networks of Llama's kind
// have it.
struct PlainSize {
  int64_t heads = 32;
  int64_t kv_heads = 8;
  int64_t head_dim = 64;
  int64_t length = 2048;
  bool is_causal = true;
};

// `batch` lanes with a plan made ahead, as a network's layers share it. Where backward begins, out
// and lse are those of the last forward. Numbers are random and the same for all kinds of values.
class AttentionProblem {
 public:
  // XLNet's, both streams and both reading directions, as its sampler draws them.
  AttentionProblem(kernels::Backend& backend, const XlnetSize& size, int64_t batch, double dropout,
                   ProblemValues values = ProblemValues::kBf16);
  AttentionProblem(kernels::Backend& backend, const PlainSize& size, int64_t batch);

  const kernels::AttentionForwardArgs& forward() const { return forward_; }
  const kernels::AttentionBackwardArgs& backward() const { return backward_; }
  const kernels::AttentionPlan& plan() const { return plan_; }

 private:
  AttentionProblem(kernels::Backend& backend, const kernels::testing::AttentionCase& drawn,
                   double dropout, ProblemValues values);
  void SetCase(const kernels::testing::AttentionCase& drawn, double dropout);
  void SetTensors(const kernels::testing::AttentionCase& drawn);
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
