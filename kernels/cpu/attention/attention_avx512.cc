// Attention kernels with AVX-512 (F, BW, DQ, VL).

#define ANYORDER_ATTENTION_ISA attention_avx512
#include "kernels/cpu/attention/attention_kernels.h"

namespace anyorder::kernels::cpu::attention_avx512 {

const AttentionIsa kIsa = {"avx512", AnyScratchBytes, RunTask<ForwardTask>, RunTask<BackwardTask>,
                           SumRows};

}  // namespace anyorder::kernels::cpu::attention_avx512
