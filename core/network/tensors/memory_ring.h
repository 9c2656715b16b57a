// Recurrence memory as rings (Transformer-XL, Dai et al. 2019, section 3.2; what it holds is
// recurrence.h's): each layer of each lane has C = M + F slots, M for the states that a step reads
// and F = min(advance, M) for those that it leaves. A step writes the free slots only, so that
// backward still finds what forward has read, nothing is moved from step to step, and there is no
// second copy. Where the owner does not advance, the step has left no trace.
//
// B lanes, L layers, d = model_dim; all lanes and layers are at the same slot.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/status.h"
#include "core/base/tensor.h"
#include "core/config/model_config.h"
#include "core/objective/batch.h"
#include "kernels/backend.h"

namespace anyorder {

// Slots [begin, begin + rows) of a ring.
struct SlotRun {
  int64_t begin = 0;
  int64_t rows = 0;
  bool operator==(const SlotRun&) const = default;
};

// What a step is given of it.
struct RingView {
  TensorView slots;   // [B, L, C, d] activation dtype, C = BatchShape::ring_rows(); null if M = 0
  int64_t start = 0;  // slot of the oldest state

  // Where the rows [row, row + rows) lie: 0 is the oldest state, M the first new one. The second
  // run is empty, unless they wrap.
  std::array<SlotRun, 2> Runs(int64_t row, int64_t rows) const {
    if (rows == 0) return {};
    const int64_t size = slots.dim(2);
    const int64_t begin = (start + row) % size;
    const int64_t head = std::min(rows, size - begin);
    return {SlotRun{begin, head}, SlotRun{0, rows - head}};
  }
};

// The rings of some lanes, and where they stand.
class MemoryRing {
 public:
  MemoryRing() = default;  // none
  // Zeros. `shape` is that of the microbatches that the lanes come in. None if the network has no
  // memory, or no lanes. `backend` is borrowed. ResourceExhausted.
  static absl::StatusOr<MemoryRing> Create(const ModelConfig& model, const BatchShape& shape,
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

  // The ring of lanes [first, first + lanes).
  RingView View(int64_t first, int64_t lanes) const {
    if (slots_.is_null()) return {};
    const Shape shape{lanes, slots_.dim(1), slots_.dim(2), slots_.dim(3)};
    return {slots_.Slice(first * slots_.num_elements() / slots_.dim(0), shape), start_};
  }
  // After all lanes' steps: what they left is the newest memory.
  void Advance() {
    if (slots_.is_null()) return;
    const int64_t fresh = slots_.dim(2) - memory_rows_;
    start_ = (start_ + fresh) % slots_.dim(2);
  }

  // The states of one lane, layer by layer and the oldest first: together [L, M, d], in pieces of
  // whole rows. A later step overwrites none of them before the ring has advanced by one; then it
  // may.
  std::vector<TensorView> States(int64_t lane) const {
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
  // Zeros, of all lanes or one.
  void Clear() {
    start_ = 0;
    if (!slots_.is_null()) backend_->FillZero(slots_, {});
  }
  void Clear(int64_t lane) {
    if (!slots_.is_null()) backend_->FillZero(View(lane, 1).slots, {});
  }

 private:
  kernels::Backend* backend_ = nullptr;
  std::unique_ptr<kernels::Buffer> storage_;
  TensorView slots_;  // [lanes, L, C, d]
  int64_t memory_rows_ = 0;
  int64_t start_ = 0;
};

}  // namespace anyorder
