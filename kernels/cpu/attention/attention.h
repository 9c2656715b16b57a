// Fused two-stream relative attention on the CPU; the operation and its layouts are
// kernels/attention.h.
//
// No score matrix is ever held. A task is one (lane, head): it packs that head's keys, values and
// relative table once (O((K + R) * D) of scratch), then walks blocks of 48 rows against chunks of
// at most 512 keys (O(48 * 512) of scratch). A task of backward is one (lane, key/value head): it
// does so for each head that reads these keys, in order, and adds up their gradients in fp32; with
// fewer lanes and key/value heads than threads, some threads have none. Tiles of 64 keys are
// skipped, taken whole or tested per element, decided by the minima and maxima of the visibility
// integers. Scratch belongs to the calling threads, grows to the largest shape seen and is reused.
//
// Numerics: fp32 statistics and accumulation. bf16 tensors are multiplied as bf16 where the CPU has
// avx512_bf16 (probabilities and score gradients are then rounded to bf16 too, as unfused bf16 code
// would), and as fp32 elsewhere. The instruction set is chosen at run time.
// Determinism: a task never depends on another and sums over lanes run in lane order, so results
// are the same bits for any number of threads (not across instruction sets).

#pragma once

#include <string>

#include "kernels/attention.h"

namespace anyorder::kernels::cpu {

// Bytes of AttentionBackwardArgs::workspace: one fp32 slab of relative and bias gradients per
// (lane, head).
int64_t CpuAttentionBackwardWorkspaceBytes(const AttentionShape& shape);

// Tensors are fp32 or bf16, all of one dtype save lse and parameter gradients.
void CpuAttentionForward(const AttentionForwardArgs& args, int num_threads);
void CpuAttentionBackward(const AttentionBackwardArgs& args, int num_threads);

// Instruction sets this machine can run, best first, e.g. {"avx512_bf16", "avx512", "avx2",
// "base"}. For tests: makes every later call use `name`; "" goes back to the best.
void ForceAttentionIsa(const std::string& name);
bool AttentionIsaAvailable(const std::string& name);

}  // namespace anyorder::kernels::cpu
