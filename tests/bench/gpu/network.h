// XLNet of a size, and random text for it.

#pragma once

#include "core/objective/objective.h"
#include "tests/bench/gpu/counts.h"

namespace anyorder::bench {

// In bf16.
ModelConfig ModelOf(const XlnetSize& size, double dropout);
SamplingConfig SamplingOf(const XlnetSize& size);
Batch DrawBatch(const Objective& objective, const XlnetSize& size, int64_t batch, int64_t step);

}  // namespace anyorder::bench
