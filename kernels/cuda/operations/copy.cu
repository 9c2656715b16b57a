#include <algorithm>

#include "kernels/cuda/operations/copy.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {
namespace {

struct ByteRows {
  const char* source;
  int64_t source_stride;
  char* destination;
  int64_t destination_stride;
  int64_t rows;
  int64_t row_bytes;
};

ByteRows BytesOf(const CopyRowsArgs& args) {
  const int64_t size = SizeOf(args.source.dtype());
  return {static_cast<const char*>(args.source.raw()) + args.source_begin * size,
          args.source_stride * size,
          static_cast<char*>(args.destination.raw()) + args.destination_begin * size,
          args.destination_stride * size,
          args.rows,
          args.columns * size};
}

// The bits that any of the addresses, strides and lengths has below a power of two tell whether
// that divides them all.
uint64_t LowBits(const ByteRows& r) {
  return reinterpret_cast<uintptr_t>(r.source) | reinterpret_cast<uintptr_t>(r.destination) |
         static_cast<uint64_t>(r.source_stride) | static_cast<uint64_t>(r.destination_stride) |
         static_cast<uint64_t>(r.row_bytes);
}

template <typename Unit>
void LaunchCopy(const ByteRows& r, StreamView stream) {
  constexpr int64_t kSize = sizeof(Unit);
  const CopyParams<Unit> params{reinterpret_cast<const Unit*>(r.source),
                                r.source_stride / kSize,
                                reinterpret_cast<Unit*>(r.destination),
                                r.destination_stride / kSize,
                                r.rows,
                                r.row_bytes / kSize};
  Launch(CopyRowsKernel<Unit>,
         {.blocks_x = CeilDivide(params.rows * params.units, kCopyThreads * kCopyUnits),
          .threads = kCopyThreads},
         params, stream);
}

}  // namespace

void CopyRows(const CopyRowsArgs& args, StreamView stream) {
  const ByteRows rows = BytesOf(args);
  const uint64_t low = LowBits(rows);
  if (low % 16 == 0) {
    LaunchCopy<Words4>(rows, stream);
  } else if (low % 4 == 0) {
    LaunchCopy<uint32_t>(rows, stream);
  } else if (low % 2 == 0) {
    LaunchCopy<uint16_t>(rows, stream);
  } else {
    LaunchCopy<uint8_t>(rows, stream);
  }
}

void FillZero(const TensorView& x, StreamView stream) {
  const int64_t bytes = x.num_bytes();
  if (bytes == 0) return;
  auto* const begin = static_cast<unsigned char*>(x.raw());
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) % kWordsBytes);
  const int64_t head = std::min(bytes, (kWordsBytes - misaligned) % kWordsBytes);
  const FillParams params{begin, begin + head, (bytes - head) / kWordsBytes, begin + bytes};
  Launch(FillZeroKernel,
         {.blocks_x = CeilDivide(std::max<int64_t>(params.num_words, kWordsBytes), kCopyThreads),
          .threads = kCopyThreads},
         params, stream);
}

}  // namespace anyorder::kernels::cuda
