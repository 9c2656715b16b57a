#include "tests/bench/gpu/cases.h"

namespace anyorder::bench {

ProfilerMarks CudaProfilerMarks() {
  return {[] {}, [] {}};
}

}  // namespace anyorder::bench
