// Attention kernels with AVX2 and FMA.

#define ANYORDER_ATTENTION_ISA attention_avx2
#include "kernels/cpu/attention/attention_kernels.h"

namespace anyorder::kernels::cpu::attention_avx2 {

const AttentionIsa kIsa = {"avx2", AnyScratchBytes, RunTask<ForwardTask>, RunTask<BackwardTask>,
                           SumRows};

}  // namespace anyorder::kernels::cpu::attention_avx2
