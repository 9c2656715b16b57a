#include <cmath>

#include "kernels/cuda/operations/flat.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"
#include "kernels/cuda/platform/storage.h"

namespace anyorder::kernels::cuda {
namespace {

LaunchShape ShapeOf(int64_t threads) {
  return {.blocks_x = CeilDivide(threads, kFlatThreads), .threads = kFlatThreads};
}

// Constants are made in double and rounded once.
template <typename T>
AdamWParams<T> ParamsOf(const AdamWArgs& args) {
  const double t = static_cast<double>(args.step) + 1;
  const double correction =
      args.bias_correction ? std::sqrt(1 - std::pow(args.beta2, t)) / (1 - std::pow(args.beta1, t))
                           : 1.0;
  const auto f = [](double x) { return static_cast<float>(x); };
  return {args.grad.data<float>(),
          args.master.data<float>(),
          args.m.data<float>(),
          args.v.data<float>(),
          args.weights.is_null() ? nullptr : args.weights.data<T>(),
          f(args.grad_scale),
          f(args.learning_rate),
          f(args.beta1),
          f(1 - args.beta1),
          f(args.beta2),
          f(1 - args.beta2),
          f(args.epsilon),
          f(args.weight_decay),
          f(correction),
          args.control,
          args.grad.num_elements()};
}

}  // namespace

void AdamW(const AdamWArgs& args, StreamView stream) {
  const DType weights = args.weights.is_null() ? DType::kFloat32 : args.weights.dtype();
  const bool is_aligned = AreAligned(kGroup, args.grad, args.master, args.m, args.v, args.weights);
  WithStorage(weights, [&]<typename T>() {
    const AdamWParams<T> params = ParamsOf<T>(args);
    WithBool(is_aligned, [&]<bool kAligned>() {
      Launch(AdamWKernel<T, kAligned>, ShapeOf(CeilDivide(params.n, kGroup)), params, stream);
    });
  });
}

void SumOfSquares(const ConstTensorView& x, const TensorView& sums, StreamView stream) {
  const SquaresParams params{x.data<float>(), sums.data<double>(), x.num_elements()};
  const LaunchShape shape{
      .blocks_x = sums.num_elements(),
      .threads = kFlatThreads,
      .shared_bytes = kFlatThreads / kWarp * static_cast<int64_t>(sizeof(double))};
  Launch(SumOfSquaresKernel, shape, params, stream);
}

void ComputeGradientClip(const ComputeGradientClipArgs& args, StreamView stream) {
  const ComputeGradientClipParams params{
      args.sums.data<double>(), args.sums.num_elements(), args.control, args.grad_scale,
      args.max_grad_norm,       args.skip_above_norm,     args.beta1,   args.beta2,
      args.bias_correction};
  Launch(ComputeGradientClipKernel,
         {.threads = kFlatThreads,
          .shared_bytes = kFlatThreads / kWarp * static_cast<int64_t>(sizeof(double))},
         params, stream);
}

void Add(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y,
         StreamView stream) {
  WithStorage(a.dtype(), [&]<typename T>() {
    const AddParams<T> params{a.data<T>(), b.data<T>(), y.data<T>(), a.num_elements()};
    Launch(AddKernel<T>, ShapeOf(params.n), params, stream);
  });
}

void Cast(const ConstTensorView& x, const TensorView& y, StreamView stream) {
  WithStorage(x.dtype(), [&]<typename From>() {
    WithStorage(y.dtype(), [&]<typename To>() {
      const CastParams<From, To> params{x.data<From>(), y.data<To>(), x.num_elements()};
      Launch(CastKernel<From, To>, ShapeOf(params.n), params, stream);
    });
  });
}

}  // namespace anyorder::kernels::cuda
