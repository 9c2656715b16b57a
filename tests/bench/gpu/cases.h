// What gpu_bench measures, a group each, and XLNet of a size. Sizes come from an XlnetSize, so that
// tests run every group at a size of nothing.

#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

#include "core/objective/objective.h"
#include "core/train/run/run_config.h"
#include "tests/bench/gpu/attention_problem.h"
#include "tests/bench/gpu/counts.h"
#include "tests/bench/gpu/measure.h"

namespace anyorder::bench {

// In bf16.
ModelConfig ModelOf(const XlnetSize& size, double dropout);
SamplingConfig SamplingOf(const XlnetSize& size);
// Random text.
Batch DrawBatch(const Objective& objective, const XlnetSize& size, int64_t batch, int64_t step);

struct CeilingSize {
  int64_t copy_bytes = int64_t{4} << 30;  // read, and as many written
  int64_t gemm = 8192;
};
// A copy and a large product: what the other groups are shares of.
void MeasureCeilings(Bench& bench, const CeilingSize& size);
// The model's matrix products at `batch` lanes: forward, to inputs, to weights (fp32, added to).
void MeasureGemms(Bench& bench, const XlnetSize& size, int64_t batch);
// Both streams forward, and backward: all of it, and pass by pass where the device tells them
// apart. The goals' names are for kGoalBatch.
inline constexpr int64_t kGoalBatch = 64;
void MeasureAttention(Bench& bench, const XlnetSize& size, int64_t batch, double dropout);
// Forward and backward of `batch` lanes of plain attention, as "plain_d64_t2048_causal_forward".
void MeasurePlainAttention(Bench& bench, const PlainSize& size, int64_t batch);
// Everything that is bound by memory: LayerNorm, GELU, the classifier, the table's gradient, AdamW
// over all parameters.
void MeasureRows(Bench& bench, const XlnetSize& size, int64_t batch, double dropout);
struct ProfilerMarks {
  std::function<void()> begin, end;
};
// A whole training step of core/network with the optimizer, as tokens/s ("step_large", or
// "step_large_b8" at another batch than kGoalBatch). ResourceExhausted where it does not fit the
// device. With marks, for profilers that are told when to look ("step_once_large"): the same steps
// to get warm, graphs and all, then a single one between the marks. Its time is of one sample, and
// includes the profiler's.
absl::Status MeasureStep(Bench& bench, const XlnetSize& size, int64_t batch, double dropout,
                         const ProfilerMarks* marks = nullptr);
// The same of one microbatch of a run's configuration, as "step_NAME" or "step_once_NAME", with
// `vocab` tokens: of the text that the run would read there is none.
absl::Status MeasureStep(Bench& bench, const std::string& name, const RunConfig& config,
                         int64_t vocab, const ProfilerMarks* marks = nullptr);

}  // namespace anyorder::bench
