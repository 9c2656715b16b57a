// Losses of heads (kernels/losses.h). A warp has a row and each of its lanes every 32nd column,
// in all passes, so that gradients may overwrite the logits: nobody else reads a place. Sums are
// joined by butterflies, the same on every GPU.

#include "kernels/arguments.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

inline constexpr int kHeadLossWarps = 4;  // rows of a block

template <typename T>
struct HeadLossParams {
  const T* logits;
  const uint8_t* valid;  // or null
  const int32_t* labels;
  const float* targets;
  const float* row_weights;
  float smoothing;
  float* loss;
  T* dlogits;  // or null
  int64_t rows;
  int columns;
};

// What a lane does of one row that has a weight. Losses are the same in all lanes.
template <typename T>
struct HeadLossRow {
  const HeadLossParams<T>& p;
  int64_t row;

  ANYORDER_DEVICE int64_t At(int column) const { return row * p.columns + column; }
  ANYORDER_DEVICE float Logit(int column) const { return ToFloat(p.logits[At(column)]); }
  ANYORDER_DEVICE bool IsValid(int column) const {
    return p.valid == nullptr || p.valid[At(column)] != 0;
  }
  ANYORDER_DEVICE void Store(int column, float value) const {
    if (p.dlogits != nullptr) p.dlogits[At(column)] = FromFloat<T>(value);
  }
  ANYORDER_DEVICE void StoreDerivative(int column, float derivative) const {
    Store(column, p.row_weights[row] * derivative);
  }
  template <typename Visitor>
  ANYORDER_DEVICE void ForEachValid(Visitor&& visit) const {
    for (int column = Lane(); column < p.columns; column += kWarp) {
      if (IsValid(column)) visit(column);
    }
  }
  ANYORDER_DEVICE void StoreZeros() const {
    for (int column = Lane(); column < p.columns; column += kWarp) Store(column, 0.0f);
  }

  ANYORDER_DEVICE float Softmax() const {
    const int label = p.labels[row];
    if (label < 0 || label >= p.columns || !IsValid(label)) Trap("a label is no valid column");
    int count = 0;
    float largest = -INFINITY;
    ForEachValid([&](int column) {
      ++count;
      largest = fmaxf(largest, Logit(column));
    });
    count = WarpSum(count);
    largest = Butterfly(largest, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0;
    float below = 0;  // of all logits under the largest
    float at_label = 0;
    ForEachValid([&](int column) {
      const float z = Logit(column) - largest;
      sum += expf(z);
      below += z;
      if (column == label) at_label = z;
    });
    sum = WarpSum(sum);
    below = WarpSum(below);
    at_label = WarpSum(at_label);
    const float share = p.smoothing / static_cast<float>(count);
    if (p.dlogits != nullptr) StoreSoftmax(label, largest, sum, share);
    const float loss = logf(sum) - (1.0f - p.smoothing) * at_label;
    return share > 0.0f ? loss - share * below : loss;
  }
  ANYORDER_DEVICE void StoreSoftmax(int label, float largest, float sum, float share) const {
    for (int column = Lane(); column < p.columns; column += kWarp) {
      if (!IsValid(column)) {
        Store(column, 0.0f);
        continue;
      }
      const float target = (column == label ? 1.0f - p.smoothing : 0.0f) + share;
      StoreDerivative(column, expf(Logit(column) - largest) / sum - target);
    }
  }

  // Of the one column: lane 0 has it.
  ANYORDER_DEVICE float Sigmoid() const {
    const int label = p.labels[row];
    if (label != 0 && label != 1) Trap("a label is neither 0 nor 1");
    const float sign = label == 0 ? 1.0f : -1.0f;
    const float s = sign * Logit(0);
    StoreDerivative(0, sign / (1.0f + expf(-s)));
    return fmaxf(s, 0.0f) + log1pf(expf(-fabsf(s)));
  }
  ANYORDER_DEVICE float SquaredError() const {
    const float difference = Logit(0) - p.targets[row];
    StoreDerivative(0, 2.0f * difference);
    return difference * difference;
  }
};

template <typename T, HeadLossKind kKind>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kHeadLossWarps* kWarp, 4)
    HeadLossKernel(HeadLossParams<T> p) {
  const HeadLossRow<T> work{p, int64_t{BlockX()} * kHeadLossWarps + Thread() / kWarp};
  if (work.row >= p.rows) return;
  float loss = 0;
  if (p.row_weights[work.row] == 0.0f) {
    work.StoreZeros();
  } else if constexpr (kKind == HeadLossKind::kSoftmax) {
    loss = work.Softmax();
  } else if (Lane() == 0) {
    loss = kKind == HeadLossKind::kSigmoid ? work.Sigmoid() : work.SquaredError();
  }
  if (Lane() == 0) p.loss[work.row] = loss;
}

namespace {

template <typename T>
HeadLossParams<T> ParamsOf(const HeadLossArgs& args) {
  return {args.logits.data<T>(),
          args.valid,
          args.labels,
          args.targets,
          args.row_weights,
          static_cast<float>(args.smoothing),
          args.loss.data<float>(),
          DataOrNull<T>(args.dlogits),
          NumRows(args.logits),
          static_cast<int>(NumColumns(args.logits))};
}

}  // namespace

void Run(const HeadLossArgs& args, StreamView stream) {
  WithStorage(args.logits.dtype(), [&]<typename T>() {
    const HeadLossParams<T> params = ParamsOf<T>(args);
    const LaunchShape shape{.blocks_x = CeilDivide(params.rows, kHeadLossWarps),
                            .threads = kHeadLossWarps * kWarp};
    switch (args.kind) {
      case HeadLossKind::kSoftmax:
        return Launch(HeadLossKernel<T, HeadLossKind::kSoftmax>, shape, params, stream);
      case HeadLossKind::kSigmoid:
        return Launch(HeadLossKernel<T, HeadLossKind::kSigmoid>, shape, params, stream);
      case HeadLossKind::kSquaredError:
        return Launch(HeadLossKernel<T, HeadLossKind::kSquaredError>, shape, params, stream);
    }
  });
}

}  // namespace anyorder::kernels::cuda
