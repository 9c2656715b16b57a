// Moves rows and clears memory: bytes, whatever they mean (kernels/rows.h, kernels/backend.h).
//
// Units are the largest of 16, 4, 2 and 1 bytes that divides all addresses, strides and lengths:
// tensors of the model are moved by 16 bytes, and any others still. A thread reads four units
// before it writes them, so that enough are under way to fill the memory's pipe.

#include <algorithm>

#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {

inline constexpr int kCopyThreads = 256;
inline constexpr int kCopyUnits = 4;  // of a thread
inline constexpr int kWordsBytes = 16;

template <typename Unit>
ANYORDER_DEVICE Unit LoadUnit(const Unit* from) {
  if constexpr (sizeof(Unit) == kWordsBytes) {
    return LoadWords(from);
  } else {
    return *from;
  }
}
template <typename Unit>
ANYORDER_DEVICE void StoreUnit(Unit* to, const Unit& unit) {
  if constexpr (sizeof(Unit) == kWordsBytes) {
    StoreWords(to, unit);
  } else {
    *to = unit;
  }
}

// Lengths and strides count units.
template <typename Unit>
struct CopyParams {
  const Unit* source;
  int64_t source_stride;
  Unit* destination;
  int64_t destination_stride;
  int64_t rows;
  int64_t units;  // a row
};
template <typename Unit>
ANYORDER_KERNEL void CopyRowsKernel(CopyParams<Unit> p) {
  const int64_t limit = p.rows * p.units;
  const int64_t first = int64_t{BlockX()} * kCopyThreads * kCopyUnits + Thread();
  Unit units[kCopyUnits];
  int64_t to[kCopyUnits];
  ANYORDER_UNROLL
  for (int i = 0; i < kCopyUnits; ++i) {
    const int64_t index = first + i * kCopyThreads;
    if (index >= limit) continue;
    const Quotient at = Divide(index, p.units, limit);
    to[i] = at.quotient * p.destination_stride + at.remainder;
    units[i] = LoadUnit(p.source + at.quotient * p.source_stride + at.remainder);
  }
  ANYORDER_UNROLL
  for (int i = 0; i < kCopyUnits; ++i) {
    if (first + i * kCopyThreads < limit) StoreUnit(p.destination + to[i], units[i]);
  }
}

// [begin, end) in three parts: bytes up to `words`, which is 16-byte aligned, `num_words` units of
// 16 bytes, and the bytes that are left.
struct FillParams {
  unsigned char* begin;
  unsigned char* words;
  int64_t num_words;
  unsigned char* end;
};
ANYORDER_KERNEL void FillZeroKernel(FillParams p) {
  const int64_t index = int64_t{BlockX()} * BlockThreads() + Thread();
  if (index < p.num_words) StoreWords(p.words + index * kWordsBytes, Words4{});
  if (p.begin + index < p.words) p.begin[index] = 0;
  unsigned char* const rest = p.words + p.num_words * kWordsBytes;
  if (rest + index < p.end) rest[index] = 0;
}

namespace {

using ByteRows = CopyParams<char>;

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
         static_cast<uint64_t>(r.units);
}

template <typename Unit>
void LaunchCopy(const ByteRows& r, StreamView stream) {
  constexpr int64_t kSize = sizeof(Unit);
  const CopyParams<Unit> params{reinterpret_cast<const Unit*>(r.source),
                                r.source_stride / kSize,
                                reinterpret_cast<Unit*>(r.destination),
                                r.destination_stride / kSize,
                                r.rows,
                                r.units / kSize};
  Launch(CopyRowsKernel<Unit>,
         ShapeOfThreads(CeilDivide(params.rows * params.units, kCopyUnits), kCopyThreads), params,
         stream);
}

}  // namespace

void Run(const CopyRowsArgs& args, StreamView stream) {
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

void Run(const FillZeroArgs& args, StreamView stream) {
  const int64_t bytes = args.x.num_bytes();
  if (bytes == 0) return;
  auto* const begin = static_cast<unsigned char*>(args.x.raw());
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) % kWordsBytes);
  const int64_t head = std::min(bytes, (kWordsBytes - misaligned) % kWordsBytes);
  const FillParams params{begin, begin + head, (bytes - head) / kWordsBytes, begin + bytes};
  Launch(FillZeroKernel,
         ShapeOfThreads(std::max<int64_t>(params.num_words, kWordsBytes), kCopyThreads), params,
         stream);
}

}  // namespace anyorder::kernels::cuda
