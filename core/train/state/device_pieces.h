// Large tensors of a device, made or read by the host in pieces of bounded size; where memory is
// the host's, whole and in place.

#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

#include "core/base/tensor.h"
#include "kernels/backend.h"

namespace anyorder {

// Elements [begin, end) of a tensor, at `data`, which the function fills.
using FillPiece = std::function<absl::Status(int64_t begin, int64_t end, void* data)>;

// Overwrites `target` with what `fill` makes of each piece, in order. The first error ends it.
absl::Status WriteInPieces(TensorView target, kernels::Backend& backend, const FillPiece& fill);
// The same, but `data` holds the elements as they are.
absl::Status EditInPieces(TensorView target, kernels::Backend& backend, const FillPiece& edit);

}  // namespace anyorder
