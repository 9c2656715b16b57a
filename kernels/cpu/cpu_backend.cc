// The product's embedded backend: oneDNN for matrix products, vector kernels for the rest.

#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "kernels/arguments.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/losses.h"
#include "kernels/cpu/parallel.h"
#include "kernels/host_memory.h"

namespace anyorder::kernels {

namespace cpu::isa_baseline {
extern const VectorKernels kVectorKernels;
}
#ifdef ANYORDER_X86_VARIANTS
namespace cpu::isa_avx2 {
extern const VectorKernels kVectorKernels;
}
namespace cpu::isa_avx512 {
extern const VectorKernels kVectorKernels;
}
#endif

namespace {

using cpu::Element;
using cpu::RowGrain;

// Elements of a flat range that make a piece worth a thread's while.
constexpr int64_t kFlatGrain = 65536;

Element ElementOf(DType dtype) {
  ANYORDER_CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16)
      << "the cpu backend computes in F32 and BF16, not " << Name(dtype);
  return dtype == DType::kBFloat16 ? Element::kBFloat16 : Element::kFloat32;
}

cpu::DropoutJob JobOf(const Dropout& dropout, const int32_t* row_ids) {
  return {.key0 = dropout.key0,
          .key1 = dropout.key1,
          .site = dropout.site,
          .threshold = dropout.threshold,
          .scale = dropout.scale(),
          .row_ids = row_ids};
}

// Of lookups and their gradients; `rows` has a row for each id.
template <typename Args>
cpu::EmbeddingJob EmbeddingJobOf(const Args& args, const ConstTensorView& source,
                                 const TensorView& target, const ConstTensorView& rows) {
  return {.element = ElementOf(source.dtype()),
          .source = source.raw(),
          .target = target.raw(),
          .ids = args.ids,
          .scale = args.scale,
          .rows = NumRows(rows),
          .columns = NumColumns(rows),
          .dropout = JobOf(args.dropout, args.row_ids)};
}

cpu::Pointwise PointwiseOf(Activation activation) {
  switch (activation) {
    case Activation::kGeluTanh: return cpu::Pointwise::kGeluTanh;
    case Activation::kGeluErf: return cpu::Pointwise::kGeluErf;
    case Activation::kRelu: return cpu::Pointwise::kRelu;
    case Activation::kSilu: return cpu::Pointwise::kSilu;
    case Activation::kTanh: return cpu::Pointwise::kTanh;
  }
  return cpu::Pointwise::kIdentity;
}

// Rows whose sums make one partial; by size only, and at most kMaxPartials of them.
int64_t PartialGrain(int64_t rows) {
  constexpr int64_t kFewestRows = 32;
  constexpr int64_t kMaxPartials = 64;
  return std::max(kFewestRows, (rows + kMaxPartials - 1) / kMaxPartials);
}

// y[c] = (accumulate ? y[c] : 0) + sum of partials [count, stride] in order.
void AddPartials(const float* partials, int64_t count, int64_t stride, int64_t columns,
                 bool accumulate, float* y) {
  if (!accumulate) std::fill_n(y, columns, 0.0f);
  for (int64_t p = 0; p < count; ++p) {
    for (int64_t c = 0; c < columns; ++c) y[c] += partials[p * stride + c];
  }
}

class CpuBackend : public Backend {
 public:
  CpuBackend(const CpuBackendOptions& options, const cpu::VectorKernels& vector)
      : num_threads_(options.num_threads),
        allocated_(options.allocated),
        gemm_(options.num_threads),
        vector_(vector) {}

  std::string name() const override {
    return absl::StrCat("cpu (", vector_.name, cpu::MultipliesBFloat16() ? ", bf16)" : ")");
  }
  bool Supports(DType dtype) const override {
    return dtype == DType::kFloat32 || dtype == DType::kBFloat16;
  }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    return AllocateHostBuffer(bytes, allocated_);
  }
  int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape, DType) const override {
    return cpu::CpuAttentionBackwardWorkspaceBytes(shape);
  }
  int64_t LinearCrossEntropyWorkspaceBytes(int64_t rows, int64_t, int64_t vocab,
                                           DType dtype) const override {
    return cpu::CrossEntropyWorkspaceBytes(rows, vocab, dtype);
  }

 private:
  void Enqueue(const Operation& operation, StreamView) override {
    CheckArguments(operation, *this);
    std::visit([this](const auto* args) { Run(*args); }, operation);
  }

  void Run(const GemmArgs& args) {
    gemm_.Run(args);
    if (SumOf(args).y.is_null()) return;
    for (int64_t i = 0; i < args.batch.count; ++i) Run(SumOf(ProductOf(args, i)));
  }
  void Run(const AttentionForwardArgs& args) { cpu::CpuAttentionForward(args, num_threads_); }
  void Run(const AttentionBackwardArgs& args) { cpu::CpuAttentionBackward(args, num_threads_); }
  void Run(const LinearCrossEntropyArgs& args) {
    cpu::LinearCrossEntropy(args, vector_, num_threads_, &gemm_);
  }
  void Run(const HeadLossArgs& args) { cpu::HeadLoss(args, num_threads_); }
  void Run(const ComputeGradientClipArgs& args) { ComputeGradientClipOnHost(args); }
  void Run(const DigestArgs& args) { DigestOnHost(args); }

  void Run(const ColumnSumArgs& args) {
    const Element element = ElementOf(args.x.dtype());
    const int64_t rows = NumRows(args.x);
    const int64_t columns = NumColumns(args.x);
    const int64_t grain = PartialGrain(rows);
    const int64_t count = (rows + grain - 1) / grain;
    float* partials = Partials(count * columns);
    InRanges(rows, grain, [&](int64_t begin, int64_t end) {
      vector_.column_sum(element, args.x.raw(), columns, begin, end,
                         partials + begin / grain * columns);
    });
    AddPartials(partials, count, columns, columns, args.beta != 0.0f, args.y.data<float>());
  }

  void Run(const ActivationForwardArgs& args) {
    cpu::PointwiseJob job = PointwiseJobOf(args, PointwiseOf(args.activation), args.y);
    job.factor = args.factor.raw();
    RunRows(NumRows(args.x), job, vector_.pointwise);
  }

  void Run(const ActivationBackwardArgs& args) {
    cpu::PointwiseJob job = PointwiseJobOf(args, PointwiseOf(args.activation), args.dx);
    job.dy = args.dy.raw();
    job.factor = args.factor.raw();
    job.dfactor = args.dfactor.raw();
    RunRows(NumRows(args.x), job, vector_.pointwise);
  }

  void Run(const DropoutArgs& args) {
    RunRows(NumRows(args.x), PointwiseJobOf(args, cpu::Pointwise::kIdentity, args.y),
            vector_.pointwise);
  }

  void Run(const LayerNormForwardArgs& args) {
    const cpu::LayerNormForwardJob job = {.element = ElementOf(args.x.dtype()),
                                          .x = args.x.raw(),
                                          .residual = args.residual.raw(),
                                          .gamma = args.gamma.raw(),
                                          .beta = args.beta.raw(),
                                          .epsilon = args.epsilon,
                                          .sum = args.sum.raw(),
                                          .mean = DataOrNull<float>(args.mean),
                                          .rstd = args.rstd.data<float>(),
                                          .y = args.y.raw(),
                                          .columns = NumColumns(args.x),
                                          .dropout = JobOf(args.dropout, args.row_ids)};
    RunRows(NumRows(args.x), job, vector_.layer_norm_forward);
  }

  void Run(const LayerNormBackwardArgs& args) {
    const cpu::LayerNormBackwardJob job = {.element = ElementOf(args.dy.dtype()),
                                           .dy = args.dy.raw(),
                                           .sum = args.sum.raw(),
                                           .mean = DataOrNull<float>(args.mean),
                                           .rstd = args.rstd.data<float>(),
                                           .gamma = args.gamma.raw(),
                                           .dx = args.dx.raw(),
                                           .dresidual = args.dresidual.raw(),
                                           .columns = NumColumns(args.dy),
                                           .dropout = JobOf(args.dropout, args.row_ids)};
    const int64_t rows = NumRows(args.dy);
    const int64_t grain = PartialGrain(rows);
    const int64_t count = (rows + grain - 1) / grain;
    float* partials = Partials(2 * count * job.columns);
    InRanges(rows, grain, [&](int64_t begin, int64_t end) {
      float* dgamma = partials + 2 * (begin / grain) * job.columns;
      vector_.layer_norm_backward(job, begin, end, dgamma, dgamma + job.columns);
    });
    const int64_t stride = 2 * job.columns;
    AddPartials(partials, count, stride, job.columns, false, args.dgamma.data<float>());
    if (args.dbeta.is_null()) return;
    AddPartials(partials + job.columns, count, stride, job.columns, false,
                args.dbeta.data<float>());
  }

  void Run(const EmbeddingForwardArgs& args) {
    const cpu::EmbeddingJob job = EmbeddingJobOf(args, args.table, args.y, args.y);
    RunRows(job.rows, job, vector_.embedding_forward);
  }

  void Run(const EmbeddingBackwardArgs& args) {
    const cpu::EmbeddingJob job = EmbeddingJobOf(args, args.dy, args.dtable, args.dy);
    // Split by columns: every entry of the table has one writer, which adds rows in order, and a
    // batch whose ids are all alike (the query stream's mask embedding) is shared out as well as
    // any other.
    constexpr int64_t kColumnsPerPiece = 64;
    InRanges(job.columns, kColumnsPerPiece,
             [&](int64_t begin, int64_t end) { vector_.embedding_backward(job, begin, end); });
  }

  void Run(const RotaryArgs& args) {
    const cpu::RotaryJob job = {.element = ElementOf(args.x.dtype()),
                                .x = args.x.raw(),
                                .angles = args.angles.data<float>(),
                                .y = args.y.raw(),
                                .sign = args.inverse ? -1.0f : 1.0f,
                                .columns = NumColumns(args.x),
                                .head_dim = NumColumns(args.angles)};
    RunRows(NumRows(args.x), job, vector_.rotary);
  }

  void Run(const AdamWArgs& args) {
    if (args.control != nullptr && args.control->skips != 0) return;
    const bool is_told = args.control != nullptr;
    const bool stores = !args.weights.is_null();
    const cpu::AdamWJob job = {
        .grad = args.grad.data<float>(),
        .master = args.master.data<float>(),
        .m = args.m.data<float>(),
        .v = args.v.data<float>(),
        .weights = args.weights.raw(),
        .weights_element = stores ? ElementOf(args.weights.dtype()) : Element::kFloat32,
        .grad_scale = static_cast<float>(is_told ? args.control->grad_scale : args.grad_scale),
        .beta1 = static_cast<float>(args.beta1),
        .one_minus_beta1 = static_cast<float>(1 - args.beta1),
        .beta2 = static_cast<float>(args.beta2),
        .one_minus_beta2 = static_cast<float>(1 - args.beta2),
        .learning_rate = static_cast<float>(args.learning_rate),
        .correction = static_cast<float>(is_told ? args.control->correction
                                                 : BiasCorrection(args, args.step + 1)),
        .epsilon = static_cast<float>(args.epsilon * (is_told ? args.control->epsilon_scale
                                                              : EpsilonScale(args, args.step + 1))),
        .weight_decay = static_cast<float>(args.weight_decay)};
    InRanges(args.grad.num_elements(), kFlatGrain,
             [&](int64_t begin, int64_t end) { vector_.adamw(job, begin, end); });
  }

  void Run(const CopyRowsArgs& args) {
    const int64_t size = SizeOf(args.source.dtype());
    const char* source = static_cast<const char*>(args.source.raw()) + args.source_begin * size;
    char* destination = static_cast<char*>(args.destination.raw()) + args.destination_begin * size;
    InRanges(args.rows, RowGrain(args.columns), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        std::memcpy(destination + r * args.destination_stride * size,
                    source + r * args.source_stride * size, args.columns * size);
      }
    });
  }

  void Run(const GatherRowsArgs& args) {
    const Element element = ElementOf(args.x.dtype());
    const int64_t columns = NumColumns(args.x);
    const int64_t row_bytes = columns * SizeOf(args.x.dtype());
    const char* x = static_cast<const char*>(args.x.raw());
    char* y = static_cast<char*>(args.y.raw());
    InRanges(args.num_rows, RowGrain(columns), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        if (args.scatter_add) {
          char* row = y + args.rows[r] * row_bytes;
          vector_.add(element, row, x + r * row_bytes, row, 0, columns);
        } else {
          std::memcpy(y + r * row_bytes, x + args.rows[r] * row_bytes, row_bytes);
        }
      }
    });
  }

  void Run(const SumOfSquaresArgs& args) {
    const float* x = args.x.data<float>();
    double* sums = args.sums.data<double>();
    InRanges(args.x.num_elements(), kNormBlockElements, [&](int64_t begin, int64_t end) {
      sums[begin / kNormBlockElements] = vector_.sum_of_squares(x + begin, end - begin);
    });
  }

  void Run(const AddArgs& args) {
    const Element element = ElementOf(args.a.dtype());
    InRanges(args.a.num_elements(), kFlatGrain, [&](int64_t begin, int64_t end) {
      vector_.add(element, args.a.raw(), args.b.raw(), args.y.raw(), begin, end);
    });
  }

  void Run(const CastArgs& args) {
    const Element from = ElementOf(args.x.dtype());
    const Element to = ElementOf(args.y.dtype());
    const int64_t size = SizeOf(args.x.dtype());
    const char* x = static_cast<const char*>(args.x.raw());
    char* y = static_cast<char*>(args.y.raw());
    InRanges(args.x.num_elements(), kFlatGrain, [&](int64_t begin, int64_t end) {
      if (from == to)
        std::memmove(y + begin * size, x + begin * size, (end - begin) * size);
      else
        vector_.cast(to, x, y, begin, end);
    });
  }

  void Run(const FillZeroArgs& args) {
    char* data = static_cast<char*>(args.x.raw());
    InRanges(args.x.num_bytes(), 4 * kFlatGrain,
             [&](int64_t begin, int64_t end) { std::memset(data + begin, 0, end - begin); });
  }

  template <typename Args>
  static cpu::PointwiseJob PointwiseJobOf(const Args& args, cpu::Pointwise function,
                                          const TensorView& y) {
    return {.element = ElementOf(args.x.dtype()),
            .function = function,
            .x = args.x.raw(),
            .y = y.raw(),
            .columns = NumColumns(args.x),
            .dropout = JobOf(args.dropout, args.row_ids)};
  }
  template <typename Body>
  void InRanges(int64_t count, int64_t grain, const Body& body) const {
    cpu::ParallelForRanges(count, grain, num_threads_, body);
  }
  template <typename Job>
  void RunRows(int64_t rows, const Job& job, void (*kernel)(const Job&, int64_t, int64_t)) {
    InRanges(rows, RowGrain(job.columns),
             [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
  }
  // Grows only, so that a step allocates nothing after its first run.
  float* Partials(int64_t elements) {
    if (static_cast<int64_t>(partials_.size()) < elements) partials_.resize(elements);
    return partials_.data();
  }

  const int num_threads_;
  const AllocationObserver allocated_;
  cpu::Gemm gemm_;
  const cpu::VectorKernels& vector_;
  std::vector<float> partials_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options) {
  constexpr int kMostThreads = 4096;
  if (options.num_threads < 1 || options.num_threads > kMostThreads) {
    return InvalidArgument("threads of the cpu backend: ", options.num_threads, ", must be in [1, ",
                           kMostThreads, "]");
  }
  return cpu::MakeCpuBackendWith(options, *cpu::RunnableVectorVariants().back());
}

namespace cpu {

std::vector<const VectorKernels*> RunnableVectorVariants() {
  std::vector<const VectorKernels*> variants = {&isa_baseline::kVectorKernels};
#ifdef ANYORDER_X86_VARIANTS
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
  if (avx2) variants.push_back(&isa_avx2::kVectorKernels);
  if (avx512) variants.push_back(&isa_avx512::kVectorKernels);
#endif
  return variants;
}

std::unique_ptr<Backend> MakeCpuBackendWith(const CpuBackendOptions& options,
                                            const VectorKernels& vector) {
  return std::make_unique<CpuBackend>(options, vector);
}

}  // namespace cpu
}  // namespace anyorder::kernels
