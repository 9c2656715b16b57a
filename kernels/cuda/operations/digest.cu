#include <algorithm>

#include "kernels/cuda/operations/digest.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {
namespace {

// Several waves of any chip. More would only add to what the last block joins.
constexpr int64_t kMostBlocks = 2048;

int64_t BlocksFor(int64_t bytes) {
  constexpr int64_t kWordsPerThread = 4;
  return std::clamp<int64_t>(CeilDivide(bytes, 8 * kDigestThreads * kWordsPerThread), 1,
                             kMostBlocks);
}

}  // namespace

int64_t DigestScratchElements(int64_t bytes) {
  return BlocksFor(bytes) * static_cast<int64_t>(sizeof(DigestValue) / sizeof(float));
}

void Run(const DigestArgs& args, float* scratch, StreamView stream) {
  const int64_t bytes = args.x.num_bytes();
  const int64_t blocks = BlocksFor(bytes);
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
