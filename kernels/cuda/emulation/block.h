// Runs a kernel's blocks on the CPU and finds what only sometimes goes wrong on a GPU.
//
// Every thread is a fiber that runs until it waits for its warp or its block. What makes it a test instrument:
// - shared memory begins as NaN and ends at a page that cannot be touched; an asynchronous copy poisons its destination until the
//   thread waits for it, so that a missing wait or barrier shows as NaN;
// - blocks run in a drawn order and warps are held back at random (Schedule::seed), as on a busy GPU: what is then different was a race;
// - lanes that reach different collectives, a barrier that some threads never reach, and misaligned addresses end the program with
//   kernel position and states.
// - places that a thread claims for itself (ClaimAlone) and another does too: updates that a GPU would lose, and the emulation would not.
// It does not see races between the lanes of one warp between two collectives, nor time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace anyorder::kernels::cuda::emulation {

struct Grid {
  int x = 1;
  int y = 1;
  int z = 1;
  int threads = 32;  // a block; a multiple of 32
  int64_t shared_bytes = 0;
};

struct Schedule {
  uint64_t seed = 0;  // 0: blocks and warps in order
};
// Of the launches from now on, in this thread.
void SetSchedule(const Schedule& schedule);

// Returns when every block has run `thread` in each of its threads.
void Run(const Grid& grid, const std::function<void()>& thread);

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

// What the lanes of a warp do together. `in` and `out` belong to the calling lane and live until it returns.
enum class Collective {
  kSync,
  kShuffleXor,
  kLoadMatrices,
  kLoadMatricesTransposed,
  kMultiplyAccumulate
};
void MeetWarp(Collective collective, const void* in, void* out);
void MeetBlock();
// Whether any thread of the block came with true. All threads of a barrier must come by the same of the two.
bool MeetBlockOr(bool value);

struct ShuffleIn {
  uint64_t bits;
  int mask;
};
struct MultiplyIn {
  uint32_t a[4];
  uint32_t b[2];
};

void CopyLater(void* shared, const void* global, bool valid);
void CommitCopyGroup();
void WaitForCopyGroups(int newest);
// Ends the program if a thread of this launch did the same with this place before.
void Claim(const void* place);
// Ends the program with `what`, kernel position and states.
[[noreturn]] void Fail(const char* what);
// Ends the program unless `pointer` is a multiple of `bytes`.
void CheckAligned(const void* pointer, size_t bytes, const char* what);

}  // namespace anyorder::kernels::cuda::emulation
