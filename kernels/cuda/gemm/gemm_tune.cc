// Tuning: all candidates of each shape in the table, timed on operands made up for it. One that
// does not give the same bits each time is not taken: a run could not be repeated with it.

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "kernels/arguments.h"
#include "kernels/cuda/gemm/gemm_cublaslt.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch_shape.h"
#include "kernels/digest.h"

namespace anyorder::kernels::cuda {
namespace {

constexpr int kTunedCandidates = 32;
constexpr int kRepeats = 50;  // of which all must have the same bits
constexpr int64_t kOperandGap = 512;

// Elements from the first of the first product's to the last of the last one's.
int64_t Span(const GemmKey& key, int64_t step, int64_t elements) {
  return (key.batch - 1) * step + elements;
}
int64_t OperandBytes(const GemmKey& key) {
  return (Span(key, key.step_a, key.m * key.k) + Span(key, key.step_b, key.k * key.n)) *
             SizeOf(key.in) +
         Span(key, key.step_c, key.m * key.n) * SizeOf(key.out) +
         key.batch * (key.m + 2 * key.n + kBiasAlignment) * SizeOf(DType::kFloat32) +
         6 * kOperandGap;
}

// Of this shape and alignment, its operands one behind the other in `data`.
GemmArgs ArgumentsIn(char* data, const GemmKey& key) {
  const auto take = [&](int64_t step, int64_t elements, DType dtype, int alignment) {
    char* const begin = data;
    data += (Span(key, step, elements) * SizeOf(dtype) + kOperandGap) / 256 * 256;
    return begin + alignment % 16;
  };
  GemmArgs args;
  args.transpose_a = key.transpose_a;
  args.transpose_b = key.transpose_b;
  args.batch = {.count = key.batch, .a = key.step_a, .b = key.step_b, .c = key.step_c};
  args.a = ConstTensorView(take(key.step_a, key.m * key.k, key.in, key.align_a), key.in,
                           key.transpose_a ? Shape{key.k, key.m} : Shape{key.m, key.k});
  args.b = ConstTensorView(take(key.step_b, key.k * key.n, key.in, key.align_b), key.in,
                           key.transpose_b ? Shape{key.n, key.k} : Shape{key.k, key.n});
  args.c =
      TensorView(take(key.step_c, key.m * key.n, key.out, key.align_c), key.out, {key.m, key.n});
  if (key.has_bias) {
    args.batch.bias = CeilDivide(key.n, kBiasAlignment) * kBiasAlignment;
    args.bias =
        ConstTensorView(take(args.batch.bias, key.n, key.out, kBiasAlignment), key.out, {key.n});
  }
  args.beta = key.accumulates ? 1.0f : 0.0f;
  const auto sum = [&](int64_t elements) {
    args.batch.sum = elements;
    return TensorView(take(elements, elements, DType::kFloat32, kBiasAlignment), DType::kFloat32,
                      Shape{elements});
  };
  if (key.sum == GemmSum::kA) args.a_sum = sum(key.m);
  if (key.sum == GemmSum::kB) args.b_sum = sum(key.n);
  return args;
}

void FillRandom(Runtime& runtime, char* data, int64_t bytes) {
  const int64_t chunk = std::min<int64_t>(bytes, int64_t{4} << 20) / 4 * 4;
  const absl::StatusOr<void*> pinned = runtime.AllocatePinned(chunk);
  if (!pinned.ok()) EndWith(pinned.status());
  RandomStream random(1, RandomPurpose::kInit, 0, 0);
  auto* const words = static_cast<uint32_t*>(*pinned);
  for (int64_t i = 0; i < chunk / 4; ++i) words[i] = TuningOperand(random.Next());
  runtime.CopyToDevice(words, data, chunk, {});
  for (int64_t at = chunk; at < bytes; at += chunk)
    runtime.CopyOnDevice(data, data + at, std::min(chunk, bytes - at), {});
  runtime.Synchronize(runtime.main_stream());
  runtime.FreePinned(*pinned);
}

}  // namespace

struct CublasLtGemm::Trial {
  GemmArgs args;
  ColumnMajorProduct product;
  ConstTensorView memory;  // uint8: all operands and results
  TensorView results;      // uint8: c of all products
  DigestValue* digests;    // [kRepeats], on the device
};

bool CublasLtGemm::RunTrial(const Plan& plan, const Trial& trial) {
  const StreamView stream = runtime().main_stream();
  if (Start(plan, trial.product, stream) != CUBLAS_STATUS_SUCCESS) return false;
  if (plan.fuses_sum || SumOf(trial.args).y.is_null()) return true;
  for (int64_t i = 0; i < trial.args.batch.count; ++i)
    SumApart(SumOf(ProductOf(trial.args, i)), stream);
  return true;
}

// The mean of several runs, the sum included, after ten that raise the clock. Negative: it does not
// run.
double CublasLtGemm::Microseconds(const Plan& plan, const Trial& trial) {
  constexpr int kWarmUp = 10;
  constexpr int kRuns = 40;
  const StreamView stream = runtime().main_stream();
  const EventView begin = runtime().MakeTimedEvent();
  const EventView end = runtime().MakeTimedEvent();
  bool runs = true;
  for (int i = 0; i < kWarmUp + kRuns && runs; ++i) {
    if (i == kWarmUp) runtime().Record(begin, stream);
    runs = RunTrial(plan, trial);
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

bool CublasLtGemm::Repeats(const Plan& plan, const Trial& trial) {
  const StreamView stream = runtime().main_stream();
  const int64_t elements = DigestScratchElements(trial.memory.num_bytes());
  for (int i = 0; i < kRepeats; ++i) {
    // A product that is added to what was there would differ each time.
    runtime().FillBytes(trial.results.raw(), 0x3c, trial.results.num_bytes(), stream);
    ANYORDER_CHECK(RunTrial(plan, trial)) << "an algorithm that ran does not any more";
    // The product is done with the workspace.
    auto* const partials = static_cast<float*>(Workspace(stream, elements * sizeof(float)));
    const TensorView digest(trial.digests + i, DType::kUint8, {sizeof(DigestValue)});
    cuda::Run(DigestArgs{trial.memory, digest}, partials, stream);
  }
  constexpr int64_t kBytes = kRepeats * sizeof(DigestValue);
  const absl::StatusOr<void*> pinned = runtime().AllocatePinned(kBytes);
  if (!pinned.ok()) EndWith(pinned.status());
  runtime().CopyToHost(trial.digests, *pinned, kBytes, stream);
  runtime().Synchronize(stream);
  const auto* const digests = static_cast<const DigestValue*>(*pinned);
  const bool is_same = std::count(digests, digests + kRepeats, digests[0]) == kRepeats;
  runtime().FreePinned(*pinned);
  return is_same;
}

void CublasLtGemm::TryCandidates(const Trial& trial, bool fuses_sum, TunedGemm* tuned,
                                 PinnedGemm* pinned) {
  Plan plan = Describe(trial.product, fuses_sum);
  for (const auto& candidate : Candidates(plan, tuned->key, kTunedCandidates)) {
    plan.algorithm = candidate.algo;
    const double microseconds = Microseconds(plan, trial);
    ++tuned->candidates;
    // Whatever runs is better than what does not.
    const bool has_best = tuned->best_microseconds >= 0;
    if (microseconds < 0 || (has_best && microseconds >= tuned->best_microseconds)) continue;
    if (!Repeats(plan, trial)) {
      ++tuned->unsteady;
      continue;
    }
    tuned->best_microseconds = microseconds;
    tuned->fuses_sum = pinned->fuses_sum = fuses_sum;
    std::memcpy(pinned->algorithm.data(), &candidate.algo, sizeof candidate.algo);
  }
  Destroy(plan);
}

TunedGemm CublasLtGemm::TuneOne(const GemmKey& key, char* data, PinnedGemm* pinned) {
  const int64_t bytes = OperandBytes(key) / 8 * 8;
  Trial trial;
  trial.args = ArgumentsIn(data, key);
  trial.product = ColumnMajorOf(trial.args);
  trial.product.key = key;
  trial.product.sum = SumOf(trial.args).y.raw();
  trial.product.step_bias = trial.args.batch.bias;
  trial.memory = ConstTensorView(data, DType::kUint8, {bytes});
  trial.results = TensorView(trial.args.c.raw(), DType::kUint8,
                             {Span(key, key.step_c, key.m * key.n) * SizeOf(key.out)});
  trial.digests = reinterpret_cast<DigestValue*>(data + bytes);
  const Plan& plan = PlanOf(trial.product, runtime().main_stream());
  TunedGemm tuned;
  tuned.key = key;
  tuned.fuses_sum = plan.fuses_sum;
  // Of an algorithm that is refused another came, which may be the fastest already.
  if (plan.exists) *pinned = PinnedOf(plan);
  tuned.before_microseconds = plan.exists ? Microseconds(plan, trial) : -1;
  const bool may_stay = tuned.before_microseconds >= 0 && Repeats(plan, trial);
  tuned.best_microseconds = may_stay ? tuned.before_microseconds : -1;
  if (tuned.before_microseconds >= 0 && !may_stay) ++tuned.unsteady;
  if (MayFuseSum(key)) TryCandidates(trial, /*fuses_sum=*/true, &tuned, pinned);
  TryCandidates(trial, /*fuses_sum=*/false, &tuned, pinned);
  return tuned;
}

absl::Status CublasLtGemm::Tune(const std::function<void(const TunedGemm&)>& report) {
  GemmTable tuned = table_;
  for (auto& [key, pinned] : tuned.algorithms) {
    const int64_t bytes = OperandBytes(key);
    ASSIGN_OR_RETURN(
        void* const data,
        runtime().AllocateDevice(bytes + kRepeats * static_cast<int64_t>(sizeof(DigestValue))));
    FillRandom(runtime(), static_cast<char*>(data), bytes);
    report(TuneOne(key, static_cast<char*>(data), &pinned));
    runtime().FreeDevice(data);
  }
  table_ = std::move(tuned);
  return WriteGemmTable(table_, table_path_);
}

}  // namespace anyorder::kernels::cuda
