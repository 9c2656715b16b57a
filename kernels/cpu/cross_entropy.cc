#include "kernels/cpu/cross_entropy.h"

#include <algorithm>

#include "kernels/arguments.h"
#include "kernels/cpu/parallel.h"

namespace anyorder::kernels::cpu {

namespace {

// Rows of logits held at a time: as many as fit 64 MiB, because every chunk reads and writes all of
// dweight, but no fewer than make an efficient product.
int64_t ChunkRows(int64_t rows, int64_t vocab) {
  constexpr int64_t kLogits = (int64_t{64} << 20) / 4;
  constexpr int64_t kFewest = 64;
  return std::min(rows, std::max(kFewest, kLogits / std::max<int64_t>(1, vocab)));
}

int64_t RoundedToCacheLine(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// dbias[c] += sum over the chunk's rows of dlogits[r, c], rows in order.
void AddBiasGradient(const float* dlogits, int64_t rows, int64_t vocab, int num_threads,
                     float* dbias) {
  constexpr int64_t kColumnsPerPiece = 1024;
  ParallelForRanges(vocab, kColumnsPerPiece, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = begin; c < end; ++c) dbias[c] += dlogits[r * vocab + c];
    }
  });
}

}  // namespace

int64_t CrossEntropyWorkspaceBytes(int64_t rows, int64_t vocab, DType dtype) {
  const int64_t elements = ChunkRows(rows, vocab) * vocab;
  const int64_t rounded = dtype == DType::kBFloat16 ? RoundedToCacheLine(elements * 2) : 0;
  return RoundedToCacheLine(elements * 4) + rounded;
}

void LinearCrossEntropy(const LinearCrossEntropyArgs& args, const VectorKernels& kernels,
                        int num_threads, Gemm* gemm) {
  const int64_t rows = NumRows(args.x);
  const int64_t columns = NumColumns(args.x);
  const int64_t vocab = NumRows(args.weight);
  const DType dtype = args.x.dtype();
  const bool gradients = !args.dx.is_null();
  const int64_t chunk_rows = ChunkRows(rows, vocab);
  auto* logits = static_cast<float*>(args.workspace.raw());
  auto* rounded = reinterpret_cast<BFloat16*>(static_cast<char*>(args.workspace.raw()) +
                                              RoundedToCacheLine(chunk_rows * vocab * 4));
  for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
    const int64_t count = std::min(chunk_rows, rows - begin);
    const ConstTensorView x = args.x.Slice(begin * columns, {count, columns});
    const TensorView logits_view(logits, {count, vocab});
    gemm->Run({.a = x, .b = args.weight, .transpose_b = true, .bias = args.bias, .c = logits_view});

    const SoftmaxJob job = {
        .logits = logits,
        .labels = args.labels + begin,
        .row_weights = args.row_weights + begin,
        .loss = args.loss.data<float>() + begin,
        .rounded = dtype == DType::kBFloat16 ? reinterpret_cast<uint16_t*>(rounded) : nullptr,
        .gradients = gradients,
        .vocab = vocab};
    ParallelForRanges(count, RowGrain(vocab), num_threads,
                      [&](int64_t first, int64_t last) { kernels.softmax(job, first, last); });
    if (!gradients) continue;

    const ConstTensorView dlogits = dtype == DType::kBFloat16
                                        ? ConstTensorView(rounded, Shape{count, vocab})
                                        : ConstTensorView(logits_view);
    gemm->Run(
        {.a = dlogits, .b = args.weight, .c = args.dx.Slice(begin * columns, {count, columns})});
    if (!args.dweight.is_null())
      gemm->Run({.a = dlogits, .b = x, .transpose_a = true, .beta = 1.0f, .c = args.dweight});
    if (!args.dbias.is_null()) {
      AddBiasGradient(logits, count, vocab, num_threads, args.dbias.data<float>());
    }
  }
}

}  // namespace anyorder::kernels::cpu
