// simt.h on the GPU: each name is one instruction or intrinsic. sm_80 has all of them. Compiled by
// nvcc only.

#pragma once

#include <cuda_runtime.h>

#include <cassert>
#include <cmath>
#include <cstddef>

#include "core/base/check.h"
#include "core/base/stream.h"
#include "kernels/cuda/platform/launch_error.h"
#include "kernels/cuda/platform/launch_shape.h"

// Static: every source that includes a kernel has its own, used or not.
#define ANYORDER_KERNEL [[maybe_unused]] static __global__
#define ANYORDER_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define ANYORDER_DEVICE __device__ __forceinline__
#define ANYORDER_HOST_DEVICE __host__ __device__ __forceinline__
#define ANYORDER_UNROLL _Pragma("unroll")
#define ANYORDER_ROLLED _Pragma("unroll 1")

// What the device's own assert() calls; its header hides it where NDEBUG is defined.
extern "C" __device__ void __assertfail(const char* what, const char* file, unsigned int line,
                                        const char* function, size_t char_size);

namespace anyorder::kernels::cuda {

ANYORDER_DEVICE int Thread() { return static_cast<int>(threadIdx.x); }
ANYORDER_DEVICE int Lane() { return static_cast<int>(threadIdx.x & 31); }
ANYORDER_DEVICE int BlockThreads() { return static_cast<int>(blockDim.x); }
ANYORDER_DEVICE int BlockX() { return static_cast<int>(blockIdx.x); }
ANYORDER_DEVICE int BlockY() { return static_cast<int>(blockIdx.y); }
ANYORDER_DEVICE int BlockZ() { return static_cast<int>(blockIdx.z); }
ANYORDER_DEVICE int GridX() { return static_cast<int>(gridDim.x); }

extern __shared__ __align__(128) unsigned char anyorder_shared_memory[];
ANYORDER_DEVICE unsigned char* SharedMemory() { return anyorder_shared_memory; }

ANYORDER_DEVICE void SyncWarp() { __syncwarp(); }
ANYORDER_DEVICE void SyncBlock() { __syncthreads(); }
// A barrier of two neighbouring warps, 2n and 2n + 1. A block may have 30 warps: the hardware has
// 16 barriers for it, and one is SyncBlock's.
ANYORDER_DEVICE void SyncPair() {
  asm volatile("bar.sync %0,64;" ::"r"(static_cast<int>(threadIdx.x / 64 + 1)) : "memory");
}
// A barrier that tells every thread whether any of them said true.
ANYORDER_DEVICE bool SyncBlockOr(bool value) { return __syncthreads_or(value ? 1 : 0) != 0; }
template <typename T>
ANYORDER_DEVICE T ShuffleXor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

ANYORDER_DEVICE uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Ends the kernel, and with it the program at its next wait: the runtime prints `what` with block
// and thread. For input that the host cannot look at, such as ids outside a table.
ANYORDER_DEVICE void Trap(const char* what) {
  __assertfail(what, "anyorder", 0, "a CUDA kernel", sizeof(char));
}

// Says that no other thread of the launch touches what is at `place`; the emulation ends the
// program where that is not so.
ANYORDER_DEVICE void ClaimAlone(const void*) {}

// Four 8x8 matrices of 16-bit elements; lane 8m + r names row r of matrix m. Rows are 16-byte
// aligned.
ANYORDER_DEVICE void LoadMatrices(uint32_t (&fragment)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(SharedAddress(row))
               : "memory");
}
ANYORDER_DEVICE void LoadMatricesTransposed(uint32_t (&fragment)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(SharedAddress(row))
               : "memory");
}
// c += a b for a [16, 16] and b [16, 8] in bf16, c in fp32 (mma.m16n8k16).
ANYORDER_DEVICE void MultiplyAccumulate(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 bytes to shared memory in the background, zeros unless `valid`; both ends 16-byte aligned.
// They are there for this thread after WaitForCopies, for others after a barrier behind it.
ANYORDER_DEVICE void CopyAsync16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
ANYORDER_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most kNewest of the committed groups are under way.
template <int kNewest>
ANYORDER_DEVICE void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
}

ANYORDER_DEVICE float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}
ANYORDER_DEVICE uint32_t PackBf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
ANYORDER_DEVICE float LowBf16(uint32_t packed) { return __uint_as_float(packed << 16); }
ANYORDER_DEVICE float HighBf16(uint32_t packed) { return __uint_as_float(packed & 0xffff0000u); }

ANYORDER_DEVICE Words4 LoadWords(const void* global) {
  const uint4 v = *static_cast<const uint4*>(global);
  return {{v.x, v.y, v.z, v.w}};
}
ANYORDER_DEVICE void StoreWords(void* global, const Words4& words) {
  *static_cast<uint4*>(global) =
      make_uint4(words.word[0], words.word[1], words.word[2], words.word[3]);
}
ANYORDER_DEVICE Words2 LoadTwoWords(const void* global) {
  const uint2 v = *static_cast<const uint2*>(global);
  return {{v.x, v.y}};
}
ANYORDER_DEVICE float AsFloat(uint32_t bits) { return __uint_as_float(bits); }
ANYORDER_DEVICE uint32_t AsBits(float value) { return __float_as_uint(value); }

// Starts a kernel whose shape was checked.
template <typename Params>
void StartKernel(void (*kernel)(Params), const LaunchShape& shape, const Params& params,
                 StreamView stream) {
  // The runtime's own null stream would wait for all others.
  ANYORDER_CHECK(stream.handle != nullptr)
      << KernelName(reinterpret_cast<const void*>(kernel)) << ": a kernel without a stream";
  if (shape.shared_bytes > 48 * 1024) {
    CheckCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shape.shared_bytes)),
              "shared memory of a kernel");
  }
  const dim3 grid(static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y),
                  static_cast<unsigned>(shape.blocks_z));
  kernel<<<grid, static_cast<unsigned>(shape.threads), static_cast<size_t>(shape.shared_bytes),
           static_cast<cudaStream_t>(stream.handle)>>>(params);
  CheckCuda(cudaGetLastError(), kLaunchOfAKernel);
}

}  // namespace anyorder::kernels::cuda
