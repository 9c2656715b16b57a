// Choosing the algorithms of matrix products by measuring them.

#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"

#include "kernels/cuda/gemm_table.h"

namespace anyorder::kernels::cuda {

struct TunedGemm {
  GemmKey key;
  bool fuses_sum = false;          // the fastest does
  double before_microseconds = 0;  // of the algorithm that the table had; negative: it does not run
  double best_microseconds = 0;    // negative: none runs and repeats
  int candidates = 0;
  int unsteady =
      0;  // of them: would have been the fastest, but did not give the same bits each time
};

// Times all candidates of each shape in the table at `path` on the first GPU, sums fused and apart, calls `report` after each shape, and
// writes the table with the fastest. `begin` is called once nothing can be refused any more. Errors: those of OpenDevice and
// ReadGemmTable; NotFound without cuBLASLt; FailedPrecondition if the table is another chip's or library's.
absl::Status TuneGemms(const std::string& path,
                       const std::function<void()>& begin,
                       const std::function<void(const TunedGemm&)>& report);

}  // namespace anyorder::kernels::cuda
