// Operations on flat ranges: the optimizer's step, sums of squares, sums and casts
// (kernels/adamw.h, kernels/backend.h).

#include <cmath>

#include "kernels/adamw.h"
#include "kernels/arguments.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

inline constexpr int kFlatThreads = 256;

template <typename T>
struct AdamWParams {
  const float* grad;
  float* master;
  float* m;
  float* v;
  T* weights;  // or null
  float grad_scale;
  float learning_rate;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  double epsilon;
  float weight_decay;
  float correction;
  double epsilon_scale;
  const NormControl*
      control;  // or null: then grad_scale, correction and epsilon_scale are as above
  int64_t n;
};

template <typename T>
ANYORDER_DEVICE void AdamWGroup(const AdamWParams<T>& p, const Vector8& grad, Vector8& master,
                                Vector8& m, Vector8& v) {
  const bool is_told = p.control != nullptr;
  const float scale = is_told ? static_cast<float>(p.control->grad_scale) : p.grad_scale;
  const float correction = is_told ? static_cast<float>(p.control->correction) : p.correction;
  // One rounding, as on the CPU.
  const auto epsilon =
      static_cast<float>(p.epsilon * (is_told ? p.control->epsilon_scale : p.epsilon_scale));
  ANYORDER_UNROLL
  for (int i = 0; i < kGroup; ++i) {
    const float g = scale * grad.v[i];
    m.v[i] = p.beta1 * m.v[i] + p.one_minus_beta1 * g;
    v.v[i] = p.beta2 * v.v[i] + p.one_minus_beta2 * g * g;
    const float step =
        correction * m.v[i] / (sqrtf(v.v[i]) + epsilon) + p.weight_decay * master.v[i];
    master.v[i] -= p.learning_rate * step;
  }
}

// Eight elements a thread. kAligned: all ranges begin at 16-byte addresses; the last group may be
// short.
template <typename T, bool kAligned>
ANYORDER_KERNEL void AdamWKernel(AdamWParams<T> p) {
  const int64_t at = (int64_t{BlockX()} * BlockThreads() + Thread()) * kGroup;
  if (at >= p.n || (p.control != nullptr && p.control->skips != 0)) return;
  const int count = p.n - at < kGroup ? static_cast<int>(p.n - at) : kGroup;
  const auto update = [&]<bool kWhole>() {
    const Vector8 grad = LoadGroup<kWhole>(p.grad + at, count);
    Vector8 master = LoadGroup<kWhole>(p.master + at, count);
    Vector8 m = LoadGroup<kWhole>(p.m + at, count);
    Vector8 v = LoadGroup<kWhole>(p.v + at, count);
    AdamWGroup(p, grad, master, m, v);
    StoreGroup<kWhole>(p.master + at, master, count);
    StoreGroup<kWhole>(p.m + at, m, count);
    StoreGroup<kWhole>(p.v + at, v, count);
    if (p.weights != nullptr) StoreGroup<kWhole>(p.weights + at, master, count);
  };
  if (kAligned && count == kGroup) {
    update.template operator()<true>();
  } else {
    update.template operator()<false>();
  }
}

struct SquaresParams {
  const float* x;
  double* sums;
  int64_t n;
};

// The sum over the block, for thread 0: a butterfly in each warp, then the warps in order. Shared
// memory: one double a warp.
ANYORDER_DEVICE double BlockSum(double sum) {
  sum = WarpSum(sum);
  double* const warps = reinterpret_cast<double*>(SharedMemory());
  if (Lane() == 0) warps[Thread() / kWarp] = sum;
  SyncBlock();
  double total = 0;
  if (Thread() != 0) return total;
  for (int warp = 0; warp < BlockThreads() / kWarp; ++warp) total += warps[warp];
  return total;
}

// Block b sums elements [b * kNormBlockElements, ...) in double: each thread its own in steps of
// the block, then BlockSum.
ANYORDER_KERNEL void SumOfSquaresKernel(SquaresParams p) {
  const int64_t begin = int64_t{BlockX()} * kNormBlockElements;
  const int64_t end = begin + kNormBlockElements < p.n ? begin + kNormBlockElements : p.n;
  double sum = 0;
  for (int64_t i = begin + Thread(); i < end; i += BlockThreads())
    sum += static_cast<double>(p.x[i]) * static_cast<double>(p.x[i]);
  const double total = BlockSum(sum);
  if (Thread() == 0) p.sums[BlockX()] = total;
}

struct ComputeGradientClipParams {
  const double* sums;  // [n]
  int64_t n;
  NormControl* control;
  double grad_scale;
  double max_grad_norm;
  double skip_above_norm;
  double beta1;
  double beta2;
  bool bias_correction;
  bool corrects_epsilon;
};

ANYORDER_DEVICE void Decide(const ComputeGradientClipParams& p, double sum) {
  NormControl& control = *p.control;
  const double norm = fabs(p.grad_scale) * sqrt(sum);
  control.norm = norm;
  // Infinity minus itself is not a number, so that only finite numbers pass.
  const bool is_good =
      norm - norm == 0.0 && p.grad_scale - p.grad_scale == 0.0 && norm <= p.skip_above_norm;
  control.skips = is_good ? 0 : 1;
  if (!is_good) return;
  control.clip_factor = p.max_grad_norm > 0 ? p.max_grad_norm / fmax(norm, p.max_grad_norm) : 1.0;
  control.grad_scale = p.grad_scale * control.clip_factor;
  control.updates += 1;
  const double t = static_cast<double>(control.updates);
  const double root = sqrt(1 - pow(p.beta2, t));
  control.correction = p.bias_correction ? root / (1 - pow(p.beta1, t)) : 1.0;
  control.epsilon_scale = p.bias_correction && p.corrects_epsilon ? root : 1.0;
}

// One block. Each thread adds its sums in steps of the block, then BlockSum.
ANYORDER_KERNEL void ComputeGradientClipKernel(ComputeGradientClipParams p) {
  double sum = 0;
  for (int64_t i = Thread(); i < p.n; i += BlockThreads()) sum += p.sums[i];
  const double total = BlockSum(sum);
  if (Thread() == 0) Decide(p, total);
}

template <typename From, typename To>
struct CastParams {
  const From* x;
  To* y;
  int64_t n;
};
template <typename From, typename To>
ANYORDER_KERNEL void CastKernel(CastParams<From, To> p) {
  const int64_t at = int64_t{BlockX()} * BlockThreads() + Thread();
  if (at < p.n) p.y[at] = FromFloat<To>(ToFloat(p.x[at]));
}

template <typename T>
struct AddParams {
  const T* a;
  const T* b;
  T* y;
  int64_t n;
};
template <typename T>
ANYORDER_KERNEL void AddKernel(AddParams<T> p) {
  const int64_t at = int64_t{BlockX()} * BlockThreads() + Thread();
  if (at < p.n) p.y[at] = FromFloat<T>(ToFloat(p.a[at]) + ToFloat(p.b[at]));
}

namespace {

// Of kernels that call BlockSum.
LaunchShape BlockSumShape(int64_t blocks) {
  return {.blocks_x = blocks,
          .threads = kFlatThreads,
          .shared_bytes = kFlatThreads / kWarp * static_cast<int64_t>(sizeof(double))};
}

// Constants are made in double and rounded once.
template <typename T>
AdamWParams<T> ParamsOf(const AdamWArgs& args) {
  const auto f = [](double x) { return static_cast<float>(x); };
  return {args.grad.data<float>(),
          args.master.data<float>(),
          args.m.data<float>(),
          args.v.data<float>(),
          DataOrNull<T>(args.weights),
          f(args.grad_scale),
          f(args.learning_rate),
          f(args.beta1),
          f(1 - args.beta1),
          f(args.beta2),
          f(1 - args.beta2),
          args.epsilon,
          f(args.weight_decay),
          f(BiasCorrection(args, args.step + 1)),
          EpsilonScale(args, args.step + 1),
          args.control,
          args.grad.num_elements()};
}

}  // namespace

void Run(const AdamWArgs& args, StreamView stream) {
  const DType weights = args.weights.is_null() ? DType::kFloat32 : args.weights.dtype();
  const bool is_aligned = AreAligned(kGroup, args.grad, args.master, args.m, args.v, args.weights);
  const LaunchShape shape =
      ShapeOfThreads(CeilDivide(args.grad.num_elements(), kGroup), kFlatThreads);
  WithForm(weights, is_aligned, [&]<typename T, bool kAligned>() {
    Launch(AdamWKernel<T, kAligned>, shape, ParamsOf<T>(args), stream);
  });
}

void Run(const SumOfSquaresArgs& args, StreamView stream) {
  const SquaresParams params{args.x.data<float>(), args.sums.data<double>(), args.x.num_elements()};
  Launch(SumOfSquaresKernel, BlockSumShape(args.sums.num_elements()), params, stream);
}

void Run(const ComputeGradientClipArgs& args, StreamView stream) {
  const ComputeGradientClipParams params{
      args.sums.data<double>(), args.sums.num_elements(), args.control, args.grad_scale,
      args.max_grad_norm,       args.skip_above_norm,     args.beta1,   args.beta2,
      args.bias_correction,     args.corrects_epsilon};
  Launch(ComputeGradientClipKernel, BlockSumShape(1), params, stream);
}

void Run(const AddArgs& args, StreamView stream) {
  WithStorage(args.a.dtype(), [&]<typename T>() {
    const AddParams<T> params{args.a.data<T>(), args.b.data<T>(), args.y.data<T>(),
                              args.a.num_elements()};
    Launch(AddKernel<T>, ShapeOfThreads(params.n, kFlatThreads), params, stream);
  });
}

void Run(const CastArgs& args, StreamView stream) {
  WithStorage(args.x.dtype(), [&]<typename From>() {
    WithStorage(args.y.dtype(), [&]<typename To>() {
      const CastParams<From, To> params{args.x.data<From>(), args.y.data<To>(),
                                        args.x.num_elements()};
      Launch(CastKernel<From, To>, ShapeOfThreads(params.n, kFlatThreads), params, stream);
    });
  });
}

}  // namespace anyorder::kernels::cuda
