// The digest of a range of bytes (kernels/digest.h): blocks add the words that are theirs, and one
// block adds the blocks.

#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/scratch.h"
#include "kernels/cuda/platform/launch.h"
#include "kernels/digest.h"

namespace anyorder::kernels::cuda {

inline constexpr int64_t kDigestBytes = kDigestThreads * static_cast<int64_t>(sizeof(DigestValue));

struct DigestParams {
  const uint64_t* words;
  int64_t bytes;
  int64_t blocks;
  DigestValue* partials;  // [blocks]
};

struct JoinDigestsParams {
  const DigestValue* partials;
  int64_t blocks;
  int64_t bytes;
  DigestValue* digest;
};

// Thread 0 gets the block's sum. Shared memory: a value a thread.
ANYORDER_DEVICE DigestValue BlockSum(const DigestValue& mine) {
  auto* const shared = reinterpret_cast<DigestValue*>(SharedMemory());
  shared[Thread()] = mine;
  DigestValue sum = mine;
  for (int half = kDigestThreads / 2; half > 0; half /= 2) {
    SyncBlock();
    if (Thread() >= half) continue;
    sum.lo += shared[Thread() + half].lo;
    sum.hi += shared[Thread() + half].hi;
    shared[Thread()] = sum;
  }
  return sum;
}

// Neighbouring threads read neighbouring words, all blocks together one stripe after the other.
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kDigestThreads, 4) DigestKernel(DigestParams p) {
  const int64_t whole = p.bytes / 8;
  const int64_t first = int64_t{BlockX()} * kDigestThreads + Thread();
  DigestValue mine;
  for (int64_t i = first; i < whole; i += p.blocks * kDigestThreads) AddWord(p.words[i], i, mine);
  if (first == 0 && p.bytes % 8 != 0) {
    const auto* const rest = reinterpret_cast<const unsigned char*>(p.words + whole);
    uint64_t word = 0;
    for (int i = 0; i < p.bytes % 8; ++i) word |= uint64_t{rest[i]} << (8 * i);
    AddWord(word, whole, mine);
  }
  const DigestValue sum = BlockSum(mine);
  if (Thread() == 0) p.partials[BlockX()] = sum;
}

// One block.
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kDigestThreads, 4)
    JoinDigestsKernel(JoinDigestsParams p) {
  DigestValue mine;
  for (int64_t i = Thread(); i < p.blocks; i += kDigestThreads) {
    mine.lo += p.partials[i].lo;
    mine.hi += p.partials[i].hi;
  }
  const DigestValue sum = BlockSum(mine);
  if (Thread() == 0) *p.digest = FinishDigest(sum, p.bytes);
}

void Run(const DigestArgs& args, float* scratch, StreamView stream) {
  const int64_t bytes = args.x.num_bytes();
  const int64_t blocks = DigestBlocks(bytes);
  auto* const partials = reinterpret_cast<DigestValue*>(scratch);
  const LaunchShape shape{
      .blocks_x = blocks, .threads = kDigestThreads, .shared_bytes = kDigestBytes};
  Launch(DigestKernel, shape,
         DigestParams{static_cast<const uint64_t*>(args.x.raw()), bytes, blocks, partials}, stream);
  Launch(JoinDigestsKernel, {.threads = kDigestThreads, .shared_bytes = kDigestBytes},
         JoinDigestsParams{partials, blocks, bytes, static_cast<DigestValue*>(args.digest.raw())},
         stream);
}

}  // namespace anyorder::kernels::cuda
