// The entry points of one instruction set. CMake compiles this file once for each, with its own -m
// flags and ANYORDER_ISA, the namespace.

#include "kernels/cpu/attention/attention_backward.h"
#include "kernels/cpu/attention/attention_forward.h"

namespace anyorder::kernels::cpu::ANYORDER_ISA {

namespace {

// bf16 activations: multiplied as bf16 where there is an instruction for it, else as fp32.
#ifdef __AVX512BF16__
using Bf16Number = Bf16Pairs;
#else
using Bf16Number = Fp32;
#endif

template <template <class, class> class Task>
int64_t ScratchBytes(const AttentionProblem& p, bool bf16) {
  return bf16 ? Task<Bf16Number, uint16_t>(p, 0, 0, nullptr).scratch_bytes()
              : Task<Fp32, float>(p, 0, 0, nullptr).scratch_bytes();
}

template <template <class, class> class Task>
void RunTask(const AttentionProblem& p, bool bf16, int64_t lane, int64_t head, void* scratch) {
  if (bf16)
    Task<Bf16Number, uint16_t>(p, lane, head, scratch).Run();
  else
    Task<Fp32, float>(p, lane, head, scratch).Run();
}

int64_t AnyScratchBytes(const AttentionProblem& p, bool bf16, bool backward) {
  return backward ? ScratchBytes<BackwardTask>(p, bf16) : ScratchBytes<ForwardTask>(p, bf16);
}

template <typename T>
void SumRowsTo(const RowSum& x, T* dst) {
  const Floats factor = Set(x.factor);
  for (int64_t d = 0; d < x.dim; d += kLanes) {
    Floats sum{};
    for (int64_t row = 0; row < x.num_rows; ++row) sum = Add(sum, Load(x.rows[row] + d));
    float last[kLanes];
    Store(last, Mul(sum, factor));
    FromFloatRow(last, Min(kLanes, x.dim - d), dst + d);
  }
}

void SumRows(const RowSum& x, bool bf16, void* dst) {
  if (bf16)
    SumRowsTo(x, static_cast<uint16_t*>(dst));
  else
    SumRowsTo(x, static_cast<float*>(dst));
}

}  // namespace

// Without the "attention_" of the namespace.
extern const AttentionIsa kIsa;
const AttentionIsa kIsa = {&ANYORDER_STRING(ANYORDER_ISA)[10], AnyScratchBytes,
                           RunTask<ForwardTask>, RunTask<BackwardTask>, SumRows};

}  // namespace anyorder::kernels::cpu::ANYORDER_ISA
