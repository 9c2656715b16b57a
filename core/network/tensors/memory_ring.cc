#include "core/network/tensors/memory_ring.h"

#include <algorithm>

#include "core/base/status.h"

namespace anyorder {

std::array<SlotRun, 2> RingView::Runs(int64_t row, int64_t rows) const {
  if (rows == 0) return {};
  const int64_t size = slots.dim(2);
  const int64_t begin = (start + row) % size;
  const int64_t head = std::min(rows, size - begin);
  return {SlotRun{begin, head}, SlotRun{0, rows - head}};
}

absl::StatusOr<MemoryRing> MemoryRing::Create(const ModelConfig& model, const BatchShape& shape,
                                              int64_t lanes, kernels::Backend& backend) {
  MemoryRing ring;
  if (lanes == 0 || shape.memory_rows == 0) return ring;
  const DType dtype = ToDType(model.dtype);
  const Shape slots{lanes, model.num_layers, shape.ring_rows(), model.model_dim};
  ASSIGN_OR_RETURN(ring.storage_, backend.Allocate(slots.num_elements() * SizeOf(dtype)));
  ring.backend_ = &backend;
  ring.slots_ = TensorView(ring.storage_->data(), dtype, slots);
  ring.memory_rows_ = shape.memory_rows;
  return ring;
}

RingView MemoryRing::View(int64_t first, int64_t lanes) const {
  if (slots_.is_null()) return {};
  const Shape shape{lanes, slots_.dim(1), slots_.dim(2), slots_.dim(3)};
  return {slots_.Slice(first * slots_.num_elements() / slots_.dim(0), shape), start_};
}

void MemoryRing::Advance() {
  if (slots_.is_null()) return;
  const int64_t fresh = slots_.dim(2) - memory_rows_;
  start_ = (start_ + fresh) % slots_.dim(2);
}

std::vector<TensorView> MemoryRing::States(int64_t lane) const {
  std::vector<TensorView> pieces;
  const RingView view = View(lane, 1);
  if (view.slots.is_null()) return pieces;
  const int64_t dim = slots_.dim(3);
  for (int64_t layer = 0; layer < slots_.dim(1); ++layer) {
    for (const SlotRun& run : view.Runs(0, memory_rows_)) {
      if (run.rows == 0) continue;
      pieces.push_back(
          view.slots.Slice((layer * slots_.dim(2) + run.begin) * dim, {run.rows, dim}));
    }
  }
  return pieces;
}

}  // namespace anyorder
