// Flat device tensors and the ranges of the parameter space that an optimizer treats alike, for
// programs that train in one process.

#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/tensor.h"
#include "core/network/tensors/memory_ring.h"
#include "core/network/tensors/parameters.h"
#include "kernels/backend.h"

namespace anyorder::bench {

// Device memory of one flat tensor; no memory for one of no elements, whose view is null.
struct FlatTensor {
  FlatTensor(kernels::Backend& backend, DType dtype, int64_t elements) {
    if (elements == 0) return;
    absl::StatusOr<std::unique_ptr<kernels::Buffer>> allocated =
        backend.Allocate(elements * SizeOf(dtype));
    ANYORDER_CHECK_OK(allocated.status());
    buffer = *std::move(allocated);
    view = TensorView(buffer->data(), dtype, {elements});
  }
  std::unique_ptr<kernels::Buffer> buffer;
  TensorView view;
};

// The recurrence memory of one microbatch.
inline MemoryRing MemoryOrDie(const ModelConfig& model, const BatchShape& shape,
                              kernels::Backend& backend) {
  absl::StatusOr<MemoryRing> memory = MemoryRing::Create(model, shape, shape.batch_size, backend);
  ANYORDER_CHECK_OK(memory.status());
  return *std::move(memory);
}

// Elements [begin, end) of the flat space that are updated alike.
struct DecayRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool decays = false;
};

inline std::vector<DecayRange> DecayRanges(const ParameterLayout& layout) {
  std::vector<DecayRange> ranges;
  for (const ParameterInfo& info : layout.parameters()) {
    if (ranges.empty() || ranges.back().decays != info.decays) {
      ranges.push_back({info.offset, info.offset, info.decays});
    }
    ranges.back().end = info.end();
  }
  return ranges;
}

}  // namespace anyorder::bench
