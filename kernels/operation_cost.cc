#include "kernels/operation_cost.h"

#include <initializer_list>

namespace anyorder::kernels {
namespace {

double Bytes(std::initializer_list<ConstTensorView> tensors) {
  double bytes = 0;
  for (const ConstTensorView& tensor : tensors)
    if (!tensor.is_null()) bytes += static_cast<double>(tensor.num_bytes());
  return bytes;
}

OperationCost Flat(double bytes) { return {0, bytes, bytes}; }

// Two a multiply-add.
double Product(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

// Forward: a row's scores of content and of distance, and the sum of values.
double Values(const AttentionInputs& in) {
  return in.seen_share * Product(in.shape.num_rows(), in.shape.num_keys, in.shape.model_dim());
}
double Scores(const AttentionInputs& in) { return (in.relative.is_null() ? 1 : 2) * Values(in); }
double InputBytes(const AttentionInputs& in) {
  return Bytes({in.q, in.k, in.v, in.relative, in.distance_bias});
}

OperationCost Cost(const GemmArgs& args) {
  const int64_t inner = args.a.dim(args.transpose_a ? 0 : 1);
  const auto count = static_cast<double>(args.batch.count);
  return {count * Product(args.c.dim(0), args.c.dim(1), inner),
          count * Bytes({args.a, args.b, args.bias, args.c, args.a_sum, args.b_sum})};
}
OperationCost Cost(const AttentionForwardArgs& args) {
  return {Scores(args.in) + Values(args.in), InputBytes(args.in) + Bytes({args.out, args.lse})};
}
// Scores once more, then two products for each of forward's.
OperationCost Cost(const AttentionBackwardArgs& args) {
  return {3 * Scores(args.in) + 2 * Values(args.in),
          InputBytes(args.in) + Bytes({args.out, args.lse, args.dout, args.dq, args.dk, args.dv,
                                       args.drelative, args.ddistance_bias}),
          0, Scores(args.in)};
}
OperationCost Cost(const LinearCrossEntropyArgs& args) {
  const double product = Product(args.x.dim(0), args.weight.dim(0), args.x.dim(1));
  const double times = 1.0 + (args.dx.is_null() ? 0 : 1) + (args.dweight.is_null() ? 0 : 1);
  return {times * product,
          Bytes({args.x, args.weight, args.bias, args.loss, args.dx, args.dweight, args.dbias})};
}

OperationCost Cost(const ColumnSumArgs& args) { return {0, Bytes({args.x, args.y})}; }
OperationCost Cost(const ActivationForwardArgs& args) {
  return {0, Bytes({args.x, args.factor, args.y})};
}
OperationCost Cost(const ActivationBackwardArgs& args) {
  return {0, Bytes({args.x, args.dy, args.dx, args.factor, args.dfactor})};
}
OperationCost Cost(const DropoutArgs& args) { return {0, Bytes({args.x, args.y})}; }
OperationCost Cost(const LayerNormForwardArgs& args) {
  return {0, Bytes({args.x, args.residual, args.sum, args.y, args.mean, args.rstd})};
}
OperationCost Cost(const LayerNormBackwardArgs& args) {
  return {0, Bytes({args.dy, args.sum, args.mean, args.rstd, args.dx, args.dresidual})};
}
OperationCost Cost(const EmbeddingForwardArgs& args) { return {0, 2 * Bytes({args.y})}; }
OperationCost Cost(const EmbeddingBackwardArgs& args) { return {0, 3 * Bytes({args.dy})}; }
OperationCost Cost(const HeadLossArgs& args) {
  return {0, Bytes({args.logits, args.loss, args.dlogits})};
}
OperationCost Cost(const AdamWArgs& args) {
  return Flat(Bytes({args.grad, args.weights}) + 2 * Bytes({args.master, args.m, args.v}));
}
OperationCost Cost(const ComputeGradientClipArgs& args) { return {0, Bytes({args.sums})}; }
OperationCost Cost(const CopyRowsArgs& args) {
  return {0, 2.0 * static_cast<double>(args.rows) *
                 static_cast<double>(args.columns * SizeOf(args.source.dtype()))};
}
OperationCost Cost(const GatherRowsArgs& args) {
  const int64_t columns = args.x.dim(args.x.shape().rank() - 1);
  return {0, 2.0 * static_cast<double>(args.num_rows) *
                 static_cast<double>(columns * SizeOf(args.x.dtype()))};
}
OperationCost Cost(const RotaryArgs& args) { return {0, Bytes({args.x, args.angles, args.y})}; }
OperationCost Cost(const SumOfSquaresArgs& args) { return Flat(Bytes({args.x, args.sums})); }
OperationCost Cost(const AddArgs& args) { return Flat(Bytes({args.a, args.b, args.y})); }
OperationCost Cost(const CastArgs& args) { return Flat(Bytes({args.x, args.y})); }
OperationCost Cost(const FillZeroArgs& args) { return {0, Bytes({args.x})}; }
OperationCost Cost(const DigestArgs& args) { return Flat(Bytes({args.x})); }

}  // namespace

OperationCost CostOf(const Operation& operation) {
  return std::visit([](const auto* args) { return Cost(*args); }, operation);
}

}  // namespace anyorder::kernels
