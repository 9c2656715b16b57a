#include "core/train/device_pieces.h"

#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder {
namespace {

constexpr int64_t kPieceBytes = int64_t{16} << 20;

absl::Status ForEachPiece(TensorView target,
                          kernels::Backend& backend,
                          bool keeps,
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

absl::Status DeviceDigest::Allocate() {
  if (backend_.is_host_memory()) return absl::OkStatus();
  for (Piece& piece : pieces_) {
    ANYORDER_ASSIGN_OR_RETURN(piece.staging, backend_.AllocateStaging(kPieceBytes));
    ANYORDER_ASSIGN_OR_RETURN(piece.copied, backend_.MakeEvent());
  }
  return absl::OkStatus();
}

data::Digest128 DeviceDigest::Of(ConstTensorView x) {
  const auto* const bytes = static_cast<const char*>(x.raw());
  if (backend_.is_host_memory()) return data::DigestOf({bytes, static_cast<size_t>(x.num_bytes())});
  ANYORDER_CHECK(pieces_[1].copied != nullptr) << "no staging memory";
  const auto size_at = [&](int64_t begin) { return std::min(kPieceBytes, x.num_bytes() - begin); };
  const auto copy = [&](int64_t begin) {
    if (begin >= x.num_bytes()) return;
    Piece& piece = pieces_[begin / kPieceBytes % 2];
    backend_.CopyToHost(bytes + begin, piece.staging->data(), size_at(begin), {});
    piece.copied->Record({});
  };
  data::StreamingDigest digest;
  copy(0);
  for (int64_t begin = 0; begin < x.num_bytes(); begin += kPieceBytes) {
    copy(begin + kPieceBytes);
    Piece& piece = pieces_[begin / kPieceBytes % 2];
    piece.copied->Await();
    digest.Update(
        {static_cast<const char*>(piece.staging->data()), static_cast<size_t>(size_at(begin))});
  }
  return digest.Value();
}

}  // namespace anyorder
