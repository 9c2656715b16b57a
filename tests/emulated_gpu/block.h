// Runs a kernel's blocks on the CPU and finds what only sometimes goes wrong on a GPU.
//
// Every thread is a fiber that runs until it waits for its warp or its block. What makes it a test
// instrument, stricter than hardware:
// - Order. Under a seed (Schedule) blocks run in a drawn order, warps are held back, and each turn
//   of a warp runs its lanes in a drawn order: a result that depends on it was a race, between
//   blocks, warps, or lanes without a SyncWarp. Without a seed all are in order.
// - Collectives. All lanes of a warp must come to the same call in the source, of the same instance
//   of a template, and all threads of a block, or of a pair of warps, to the same barrier. PTX asks
//   it of `.aligned` instructions (ldmatrix, mma, __syncthreads); of `.sync` ones (shuffles,
//   __syncwarp) sm_70 and later only want the same kind, but no kernel here needs more. Lanes that
//   ended are missed, too.
// - Memory. Shared memory begins as NaN, between pages that cannot be touched (guarded_pages.h); a
//   seed draws which end is exact. An access that no GPU would take, misaligned ones included
//   (faults.cc), ends the program.
// - Asynchronous copies. They arrive at the wait, not before, and their destination is NaN until
//   then. Their source must still hold at the wait what it held at the call, and nobody may have
//   written to the destination. A thread may end with copies under way: a GPU completes them before
//   the block's memory goes; here they never arrive, and a thread that reads their place finds NaN.
// - Places that a thread claims for itself (ClaimAlone) and another does too: updates that a GPU
//   would lose, and the emulation would not. What is wrong ends the program with the kernel's name,
//   the block, the thread, and what all threads wait for.
//
// It does not see: time; races that no order of whole stretches between two collectives shows, such
// as two threads that write the same value; whether lanes that went different ways have come
// together again before an `.aligned` instruction that all of them reach; which call of a device
// function a collective inside it belongs to; that a copy under way at a thread's end may still
// overwrite its place.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>

#include "core/base/stream.h"

namespace anyorder::kernels::cuda::emulation {

struct Grid {
  int x = 1;
  int y = 1;
  int z = 1;
  int threads = 32;  // a block; a multiple of 32
  int64_t shared_bytes = 0;
};

struct Schedule {
  uint64_t seed = 0;  // 0: blocks, warps and lanes in order
};
// Of the launches from now on, in this thread.
void SetSchedule(const Schedule& schedule);

// Returns when every block has run `thread` in each of its threads. `kernel` is the function, for
// messages.
void Run(const void* kernel, const Grid& grid, const std::function<void()>& thread);

// Whether this thread is inside Run.
bool IsInKernel();

// What a thread of a kernel asks for. Only inside Run.
struct Position {
  int thread = 0;
  int block_x = 0;
  int block_y = 0;
  int block_z = 0;
};
Position Here();
const Grid& CurrentGrid();
unsigned char* SharedMemoryOfBlock();

// What the lanes of a warp do together, once all of them are there (collectives.cc).
enum class Collective {
  kSync,
  kShuffleXor,
  kLoadMatrices,
  kLoadMatricesTransposed,
  kMultiplyAccumulate
};

struct ShuffleIn {
  uint64_t bits;
  int mask;
};
struct MultiplyIn {
  uint32_t a[4];
  uint32_t b[2];
};

// A lane's operands: nothing, ShuffleIn and uint64_t, a row of a matrix and uint32_t[4], MultiplyIn
// and float[4].
struct Operands {
  const void* in = nullptr;
  void* out = nullptr;
};

inline constexpr int kLanes = 32;
void Execute(Collective collective, const Operands (&lanes)[kLanes]);

// Where a kernel calls a collective: the place in its source stands for the instruction.
using Site = std::source_location;

// `operands` belong to the calling lane and live until it returns.
void MeetWarp(Collective collective, const Operands& operands, const Site& site);
// Whether any thread of the block came with true.
bool MeetBlock(bool value, const Site& site);
// Warps 2n and 2n + 1.
void MeetPair(const Site& site);

// 16 bytes, zeros unless `valid`; see above.
void CopyLater(void* shared, const void* global, bool valid);
void CommitCopyGroup();
void WaitForCopyGroups(int newest);
// Ends the program if a thread of this launch did the same with this place before.
void Claim(const void* place);
// Ends the program with `what`, the kernel's position and states. Outside Run, with `what` alone.
[[noreturn]] void Fail(const char* what);
// Ends the program unless 16 bytes of the block's shared memory are at `pointer`, a multiple of 16.
void CheckShared(const void* pointer, const char* what);
// Ends the program unless `pointer` is a multiple of `bytes`.
void CheckAligned(const void* pointer, size_t bytes, const char* what);
// From now on an access of this thread to pages that are not open ends the program by Fail if a
// kernel runs, in place of the system's bare signal. Where somebody else handles the signal, a
// sanitizer for example, that stays.
void ReportFaults();

// Streams without a GPU: work waits in its stream's queue until somebody synchronises, so that a
// wait that is missing shows (runtime.h).
//
// A library's call. `work` may touch device memory (guarded_pages.h) when it runs. A null stream,
// which only tests of single kernels use, runs it now.
void Enqueue(StreamView stream, std::function<void()> work);
// The same for a kernel.
void EnqueueKernel(StreamView stream, const void* kernel, std::function<void()> work);

}  // namespace anyorder::kernels::cuda::emulation
