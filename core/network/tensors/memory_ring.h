// Recurrence memory as rings (Transformer-XL, Dai et al. 2019, section 3.2; what it holds is
// recurrence.h's): each layer of each lane has C = M + F slots, M for the states that a step reads
// and F = min(advance, M) for those that it leaves. A step writes the free slots only, so that
// backward still finds what forward has read, nothing is moved from step to step, and there is no
// second copy. Where the owner does not advance, the step has left no trace.
//
// B lanes, L layers, d = model_dim; all lanes and layers are at the same slot.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

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
  std::array<SlotRun, 2> Runs(int64_t row, int64_t rows) const;
};

// The rings of some lanes, and where they stand.
class MemoryRing {
 public:
  MemoryRing() = default;  // none
  // Zeros. `shape` is that of the microbatches that the lanes come in. None if the network has no
  // memory, or no lanes. `backend` is borrowed. ResourceExhausted.
  static absl::StatusOr<MemoryRing> Create(const ModelConfig& model, const BatchShape& shape,
                                           int64_t lanes, kernels::Backend& backend);

  // The ring of lanes [first, first + lanes).
  RingView View(int64_t first, int64_t lanes) const;
  // After all lanes' steps: what they left is the newest memory.
  void Advance();

  // The states of one lane, layer by layer and the oldest first: together [L, M, d], in pieces of
  // whole rows. A later step overwrites none of them before the ring has advanced by one; then it
  // may.
  std::vector<TensorView> States(int64_t lane) const;
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
