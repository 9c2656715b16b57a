// Large tensors of a device, made or read by the host in pieces of bounded size; where memory is the host's, whole and in place.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"

#include "core/base/tensor.h"
#include "data/digest.h"
#include "kernels/backend.h"

namespace anyorder {

// Elements [begin, end) of a tensor, at `data`, which the function fills.
using FillPiece = std::function<absl::Status(int64_t begin, int64_t end, void* data)>;

// Overwrites `target` with what `fill` makes of each piece, in order. The first error ends it.
absl::Status WriteInPieces(TensorView target, kernels::Backend& backend, const FillPiece& fill);
// The same, but `data` holds the elements as they are.
absl::Status EditInPieces(TensorView target, kernels::Backend& backend, const FillPiece& edit);

// Digests of tensors, again and again: the device copies one piece while the host digests the one before.
class DeviceDigest {
 public:
  explicit DeviceDigest(kernels::Backend& backend) : backend_(backend) {}

  // Staging memory, where it takes any. ResourceExhausted.
  absl::Status Allocate();
  // data::DigestOf its bytes, as they are in the order of the stream.
  data::Digest128 Of(ConstTensorView x);

 private:
  struct Piece {
    std::unique_ptr<kernels::Buffer> staging;
    std::unique_ptr<kernels::Event> copied;
  };

  kernels::Backend& backend_;
  Piece pieces_[2];
};

}  // namespace anyorder
