// Choosing the algorithms of matrix products by measuring them.

#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"

#include "kernels/cuda/gemm/gemm_table.h"

namespace anyorder::kernels::cuda {

// Two bf16 numbers, or one in fp32, of either sign and of sizes from 2^-15 to 2: their sums are
// rounded, so that results show the order in which they were added. `draw`: 32 random bits.
constexpr uint32_t TuningOperand(uint32_t draw) { return (draw & 0x87ff87ffu) | 0x38003800u; }

struct TunedGemm {
  GemmKey key;
  bool fuses_sum = false;          // the fastest does
  double before_microseconds = 0;  // of the algorithm that the table had; negative: it does not run
  double best_microseconds = 0;    // negative: none runs and repeats
  int candidates = 0;
  int unsteady =
      0;  // the fastest so far, the table's too, that did not give the same bits each time
};

// Times all candidates of each shape in the table at `path` on the first GPU, sums fused and apart,
// calls `report` after each shape, and writes the table with the fastest. `begin` is called once
// nothing can be refused any more. Errors: those of OpenDevice and ReadGemmTable; NotFound without
// cuBLASLt; FailedPrecondition if the table is another chip's or library's.
absl::Status TuneGemms(const std::string& path, const std::function<void()>& begin,
                       const std::function<void(const TunedGemm&)>& report);

}  // namespace anyorder::kernels::cuda
