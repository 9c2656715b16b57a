#include "core/train/state/device_pieces.h"

#include <algorithm>
#include <vector>

#include "core/base/status.h"

namespace anyorder {
namespace {

constexpr int64_t kPieceBytes = int64_t{16} << 20;

absl::Status ForEachPiece(TensorView target, kernels::Backend& backend, bool keeps,
                          const FillPiece& fill) {
  const int64_t elements = target.is_null() ? 0 : target.num_elements();
  if (elements == 0) return absl::OkStatus();
  if (backend.is_host_memory()) return fill(0, elements, target.raw());
  const int64_t most = kPieceBytes / SizeOf(target.dtype());
  std::vector<char> bytes(static_cast<size_t>(std::min(most, elements) * SizeOf(target.dtype())));
  for (int64_t begin = 0; begin < elements; begin += most) {
    const TensorView piece = target.Slice(begin, {std::min(most, elements - begin)});
    if (keeps) {
      backend.CopyToHost(piece.raw(), bytes.data(), piece.num_bytes(), {});
      backend.Synchronize({});
    }
    ANYORDER_RETURN_IF_ERROR(fill(begin, begin + piece.num_elements(), bytes.data()));
    backend.CopyToDevice(bytes.data(), piece.raw(), piece.num_bytes(), {});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteInPieces(TensorView target, kernels::Backend& backend, const FillPiece& fill) {
  return ForEachPiece(target, backend, /*keeps=*/false, fill);
}

absl::Status EditInPieces(TensorView target, kernels::Backend& backend, const FillPiece& edit) {
  return ForEachPiece(target, backend, /*keeps=*/true, edit);
}

}  // namespace anyorder
