// Attention kernels with what every x86-64 has (SSE2), and for other architectures.

#define ANYORDER_ATTENTION_ISA attention_base
#include "kernels/cpu/attention/attention_kernels.h"

namespace anyorder::kernels::cpu::attention_base {

const AttentionIsa kIsa = {"base", AnyScratchBytes, RunTask<ForwardTask>, RunTask<BackwardTask>,
                           SumRows};

}  // namespace anyorder::kernels::cpu::attention_base
