#include "kernels/cpu/vector_kernels.h"

namespace anyorder::kernels::cpu {

namespace isa_baseline {
extern const VectorKernels kVectorKernels;
}
#ifdef ANYORDER_X86_VARIANTS
namespace isa_avx2 {
extern const VectorKernels kVectorKernels;
}
namespace isa_avx512 {
extern const VectorKernels kVectorKernels;
}
#endif

VectorVariants RunnableVectorVariants() {
  VectorVariants variants;
  int count = 0;
  variants.variant[count++] = &isa_baseline::kVectorKernels;
#ifdef ANYORDER_X86_VARIANTS
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
  if (avx2) variants.variant[count++] = &isa_avx2::kVectorKernels;
  if (avx512) variants.variant[count++] = &isa_avx512::kVectorKernels;
#endif
  return variants;
}

const VectorKernels& SelectVectorKernels() {
  const VectorVariants variants = RunnableVectorVariants();
  const VectorKernels* widest = variants.variant[0];
  for (const VectorKernels* variant : variants.variant) {
    if (variant != nullptr) widest = variant;
  }
  return *widest;
}

}  // namespace anyorder::kernels::cpu
