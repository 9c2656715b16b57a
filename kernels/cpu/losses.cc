#include "kernels/cpu/losses.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "kernels/arguments.h"
#include "kernels/cpu/parallel.h"

namespace anyorder::kernels::cpu {

namespace {

double ToDouble(float x) { return x; }
double ToDouble(BFloat16 x) { return static_cast<float>(x); }

// A row that has a weight. `d` is where its gradients go, over the logits maybe, or null; a logit
// is read before its place is written. Returns the loss.
template <typename T>
struct Row {
  const HeadLossArgs& args;
  int64_t row;
  int64_t columns;
  T* d;

  double Softmax() const {
    double largest = -INFINITY;
    int64_t count = 0;
    for (int64_t c = 0; c < columns; ++c) {
      if (!IsValid(c)) continue;
      largest = std::max(largest, Logit(c));
      ++count;
    }
    double sum = 0;
    double below = 0;  // of all logits under the largest
    for (int64_t c = 0; c < columns; ++c) {
      if (!IsValid(c)) continue;
      sum += std::exp(Logit(c) - largest);
      below += Logit(c) - largest;
    }
    const int32_t label = args.labels[row];
    const double share = args.smoothing / static_cast<double>(count);
    double loss = std::log(sum) - (1 - args.smoothing) * (Logit(label) - largest);
    if (share > 0) loss -= share * below;
    for (int64_t c = 0; d != nullptr && c < columns; ++c) {
      if (!IsValid(c)) {
        d[c] = T(0.0f);
        continue;
      }
      const double target = (c == label ? 1 - args.smoothing : 0.0) + share;
      Store(c, std::exp(Logit(c) - largest) / sum - target);
    }
    return loss;
  }

  double Sigmoid() const {
    const double sign = args.labels[row] == 0 ? 1 : -1;
    const double s = sign * Logit(0);
    if (d != nullptr) Store(0, sign / (1 + std::exp(-s)));
    return std::max(s, 0.0) + std::log1p(std::exp(-std::fabs(s)));
  }

  double SquaredError() const {
    const double difference = Logit(0) - args.targets[row];
    if (d != nullptr) Store(0, 2 * difference);
    return difference * difference;
  }

  bool IsValid(int64_t c) const {
    return args.valid == nullptr || args.valid[row * columns + c] != 0;
  }
  double Logit(int64_t c) const { return ToDouble(args.logits.data<T>()[row * columns + c]); }
  void Store(int64_t c, double derivative) const {
    d[c] = T(static_cast<float>(args.row_weights[row] * derivative));
  }
};

template <typename T>
double LossOf(const Row<T>& row) {
  if (row.args.row_weights[row.row] == 0.0f) {
    if (row.d != nullptr) std::fill_n(row.d, row.columns, T(0.0f));
    return 0;
  }
  switch (row.args.kind) {
    case HeadLossKind::kSoftmax: return row.Softmax();
    case HeadLossKind::kSigmoid: return row.Sigmoid();
    case HeadLossKind::kSquaredError: break;
  }
  return row.SquaredError();
}

template <typename T>
void RunRows(const HeadLossArgs& args, int num_threads) {
  const int64_t columns = NumColumns(args.logits);
  T* const dlogits = DataOrNull<T>(args.dlogits);
  ParallelForRanges(
      NumRows(args.logits), RowGrain(columns), num_threads, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          T* const d = dlogits == nullptr ? nullptr : dlogits + r * columns;
          args.loss.data<float>()[r] = static_cast<float>(LossOf(Row<T>{args, r, columns, d}));
        }
      });
}

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

void HeadLoss(const HeadLossArgs& args, int num_threads) {
  switch (args.logits.dtype()) {
    case DType::kFloat32: return RunRows<float>(args, num_threads);
    case DType::kBFloat16: return RunRows<BFloat16>(args, num_threads);
    default: ANYORDER_CHECK(false) << "the cpu backend has no " << Name(args.logits.dtype());
  }
}

}  // namespace anyorder::kernels::cpu
