// Operations of operations.h that have no kernel yet, by the reference's loops in emulated device memory.

#include "kernels/backend.h"
#include "kernels/cuda/emulation/stream.h"
#include "kernels/cuda/operations.h"

namespace anyorder::kernels::cuda {
namespace {

Backend& Loops() {
  static Backend* const loops = MakeReferenceBackend().release();
  return *loops;
}

}  // namespace

int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape, DType dtype) {
  return Loops().AttentionBackwardWorkspaceBytes(shape, dtype);
}
void AttentionBackward(const AttentionBackwardArgs& args, StreamView stream) {
  emulation::Enqueue(stream, [=] { Loops().AttentionBackward(args, {}); });
}

}  // namespace anyorder::kernels::cuda
