// Attention kernels with AVX-512 and its bf16 dot product.

#define ANYORDER_ATTENTION_ISA attention_avx512_bf16
#include "kernels/cpu/attention/attention_kernels.h"

namespace anyorder::kernels::cpu::attention_avx512_bf16 {

const AttentionIsa kIsa = {"avx512_bf16", AnyScratchBytes, RunTask<ForwardTask>,
                           RunTask<BackwardTask>, SumRows};

}  // namespace anyorder::kernels::cpu::attention_avx512_bf16
