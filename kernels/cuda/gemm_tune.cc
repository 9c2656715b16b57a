// Tuning: all candidates of each shape in the table, timed on operands made up for it.

#include <cstring>
#include <utility>

#include "core/base/status.h"
#include "kernels/arguments.h"
#include "kernels/cuda/gemm_cublaslt.h"

namespace anyorder::kernels::cuda {
namespace {

constexpr int kTunedCandidates = 32;
constexpr int64_t kOperandGap = 512;
constexpr int64_t kBytesOfSum = sizeof(float);

int64_t OperandBytes(const GemmKey& key) {
  return (key.m + key.n) * (key.k * SizeOf(key.in) + kBytesOfSum) +
         (key.m + 1) * key.n * SizeOf(key.out) + 5 * kOperandGap;
}

// Of this shape and alignment, its operands one behind the other in `data`.
GemmArgs ArgumentsIn(char* data, const GemmKey& key) {
  const auto take = [&data](int64_t size, int alignment) {
    char* const begin = data;
    data += (size + kOperandGap) / 256 * 256;
    return begin + alignment % 16;
  };
  GemmArgs args;
  args.transpose_a = key.transpose_a;
  args.transpose_b = key.transpose_b;
  args.a = ConstTensorView(take(key.m * key.k * SizeOf(key.in), key.align_a),
                           key.in,
                           key.transpose_a ? Shape{key.k, key.m} : Shape{key.m, key.k});
  args.b = ConstTensorView(take(key.k * key.n * SizeOf(key.in), key.align_b),
                           key.in,
                           key.transpose_b ? Shape{key.n, key.k} : Shape{key.k, key.n});
  args.c = TensorView(take(key.m * key.n * SizeOf(key.out), key.align_c), key.out, {key.m, key.n});
  if (key.has_bias)
    args.bias = ConstTensorView(take(key.n * SizeOf(key.out), kBiasAlignment), key.out, {key.n});
  args.beta = key.accumulates ? 1.0f : 0.0f;
  const auto sum = [&](int64_t elements) {
    return TensorView(
        take(elements * kBytesOfSum, kBiasAlignment), DType::kFloat32, Shape{elements});
  };
  if (key.sum == GemmSum::kA) args.a_sum = sum(key.m);
  if (key.sum == GemmSum::kB) args.b_sum = sum(key.n);
  return args;
}

}  // namespace

struct CublasLtGemm::Trial {
  ColumnMajorProduct product;
  ColumnSumArgs sum;
};

// The mean of several runs, with the sum, whoever makes it; of ten that do not count the clock has risen. Negative: it does not run.
double CublasLtGemm::Microseconds(const Plan& plan, const Trial& trial) {
  constexpr int kWarmUp = 10;
  constexpr int kRuns = 40;
  const StreamView stream = runtime().main_stream();
  const EventView begin = runtime().MakeTimedEvent();
  const EventView end = runtime().MakeTimedEvent();
  bool runs = true;
  for (int i = 0; i < kWarmUp + kRuns && runs; ++i) {
    if (i == kWarmUp) runtime().Record(begin, stream);
    runs = Start(plan, trial.product, stream) == CUBLAS_STATUS_SUCCESS;
    if (runs && !plan.fuses_sum && !trial.sum.y.is_null()) SumApart(trial.sum, stream);
  }
  double microseconds = -1;
  if (runs) {
    runtime().Record(end, stream);
    microseconds = 1000 * runtime().MillisecondsBetween(begin, end) / kRuns;
  }
  runtime().Synchronize(stream);
  runtime().DestroyEvent(begin);
  runtime().DestroyEvent(end);
  return microseconds;
}

void CublasLtGemm::TryCandidates(const Trial& trial,
                                 bool fuses_sum,
                                 TunedGemm* tuned,
                                 PinnedGemm* pinned) {
  Plan plan = Describe(trial.product, fuses_sum);
  for (const auto& candidate : Candidates(plan, tuned->key, kTunedCandidates)) {
    plan.algorithm = candidate.algo;
    const double microseconds = Microseconds(plan, trial);
    ++tuned->candidates;
    // Whatever runs is better than what does not.
    const bool has_best = tuned->best_microseconds >= 0;
    if (microseconds < 0 || (has_best && microseconds >= tuned->best_microseconds)) continue;
    tuned->best_microseconds = microseconds;
    tuned->fuses_sum = pinned->fuses_sum = fuses_sum;
    std::memcpy(pinned->algorithm.data(), &candidate.algo, sizeof candidate.algo);
  }
  Destroy(plan);
}

TunedGemm CublasLtGemm::TuneOne(const GemmKey& key, char* data, PinnedGemm* pinned) {
  const GemmArgs args = ArgumentsIn(data, key);
  Trial trial{ColumnMajorOf(args), SumOf(args)};
  trial.product.key = key;
  trial.product.sum = trial.sum.y.raw();
  const Plan& plan = PlanOf(trial.product, runtime().main_stream());
  TunedGemm tuned;
  tuned.key = key;
  tuned.fuses_sum = plan.fuses_sum;
  // Of an algorithm that is refused another came, which may be the fastest already.
  if (plan.exists) *pinned = PinnedOf(plan);
  tuned.before_microseconds = plan.exists ? Microseconds(plan, trial) : -1;
  tuned.best_microseconds = tuned.before_microseconds;
  if (MayFuseSum(key)) TryCandidates(trial, /*fuses_sum=*/true, &tuned, pinned);
  TryCandidates(trial, /*fuses_sum=*/false, &tuned, pinned);
  return tuned;
}

absl::Status CublasLtGemm::Tune(const std::function<void(const TunedGemm&)>& report) {
  GemmTable tuned = table_;
  for (auto& [key, pinned] : tuned.algorithms) {
    const int64_t bytes = OperandBytes(key);
    ANYORDER_ASSIGN_OR_RETURN(void* const data, runtime().AllocateDevice(bytes));
    // What the numbers are does not matter, but zeros would be faster than any.
    runtime().FillBytes(data, 0x3c, bytes, {});
    report(TuneOne(key, static_cast<char*>(data), &pinned));
    runtime().FreeDevice(data);
  }
  table_ = std::move(tuned);
  return WriteGemmTable(table_, table_path_);
}

}  // namespace anyorder::kernels::cuda
