// What lanes do together.

#include "core/base/dtype.h"
#include "tests/emulated_gpu/block.h"

namespace anyorder::kernels::cuda::emulation {
namespace {

float Bf16ToFloat(uint32_t bits) {
  BFloat16 value;
  value.bits = static_cast<uint16_t>(bits);
  return static_cast<float>(value);
}

void Shuffle(const Operands (&lanes)[kLanes]) {
  for (int i = 0; i < kLanes; ++i) {
    const auto* in = static_cast<const ShuffleIn*>(lanes[i].in);
    const auto* other = static_cast<const ShuffleIn*>(lanes[(i ^ in->mask) % kLanes].in);
    *static_cast<uint64_t*>(lanes[i].out) = other->bits;
  }
}

// PTX ISA, "ldmatrix": lane l holds elements (l / 4, 2 (l % 4) + {0, 1}) of each matrix, or of its
// transpose.
void LoadMatrixRows(const Operands (&lanes)[kLanes], bool is_transposed) {
  for (int matrix = 0; matrix < 4; ++matrix) {
    for (int i = 0; i < kLanes; ++i) {
      uint32_t packed = 0;
      for (int e = 0; e < 2; ++e) {
        const int major = i / 4;
        const int minor = 2 * (i % 4) + e;
        const int row = is_transposed ? minor : major;
        const int column = is_transposed ? major : minor;
        const auto* elements = static_cast<const uint16_t*>(lanes[8 * matrix + row].in);
        packed |= static_cast<uint32_t>(elements[column]) << (16 * e);
      }
      static_cast<uint32_t*>(lanes[i].out)[matrix] = packed;
    }
  }
}

// PTX ISA, "mma.m16n8k16": places of a, b and c in the lanes' registers. Products are summed in
// increasing k; hardware does not say how it does.
void Multiply(const Operands (&lanes)[kLanes]) {
  float a[16][16];
  float b[16][8];
  for (int i = 0; i < kLanes; ++i) {
    const auto* in = static_cast<const MultiplyIn*>(lanes[i].in);
    for (int e = 0; e < 2; ++e) {
      for (int part = 0; part < 4; ++part)
        a[i / 4 + 8 * (part & 1)][2 * (i % 4) + e + 8 * (part >> 1)] =
            Bf16ToFloat(in->a[part] >> (16 * e));
      for (int part = 0; part < 2; ++part)
        b[2 * (i % 4) + e + 8 * part][i / 4] = Bf16ToFloat(in->b[part] >> (16 * e));
    }
  }
  for (int i = 0; i < kLanes; ++i) {
    auto* c = static_cast<float*>(lanes[i].out);
    for (int part = 0; part < 4; ++part) {
      const int row = i / 4 + 8 * (part >> 1);
      const int column = 2 * (i % 4) + (part & 1);
      float sum = c[part];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      c[part] = sum;
    }
  }
}

}  // namespace

void Execute(Collective collective, const Operands (&lanes)[kLanes]) {
  switch (collective) {
    case Collective::kSync: return;
    case Collective::kShuffleXor: return Shuffle(lanes);
    case Collective::kLoadMatrices: return LoadMatrixRows(lanes, false);
    case Collective::kLoadMatricesTransposed: return LoadMatrixRows(lanes, true);
    case Collective::kMultiplyAccumulate: return Multiply(lanes);
  }
}

}  // namespace anyorder::kernels::cuda::emulation
