// The loops behind vector_kernels.h; compiled once per instruction set, see vector/vector_math.h.
//
// Rows are walked in blocks of kBlock columns, so that the dropout factors of a block stay in the
// first cache and every loop over a block is one that the compiler turns into vectors.

#include "kernels/cpu/vector/vector_math.h"
#include "kernels/cpu/vector_kernels.h"

namespace anyorder::kernels::cpu::ANYORDER_ISA {

namespace {

constexpr int64_t kBlock = 512;

ANYORDER_INLINE int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

// factors[i] = 0 or `scale` for columns [begin, begin + count) of a row; begin is a multiple of 8,
// count at most kBlock, and factors has room for kBlock.
ANYORDER_INLINE void DropoutFactors(const DropoutJob& job, int64_t row, int64_t begin,
                                    int64_t count, float* factors) {
  constexpr int kDrawsPerWide = 4;
  alignas(64) uint64_t wide[kBlock / kDrawsPerWide];
  const auto row_id = static_cast<uint32_t>(job.row_ids[row]);
  const auto first = static_cast<uint32_t>(begin >> 3);
  const int64_t groups = (count + 7) >> 3;
  for (int64_t i = 0; i < groups; i += kWideLanes) {
    const PhiloxWords block = Philox7(
        {first + static_cast<uint32_t>(i), row_id, 0xffffffffu, job.site, job.key0, job.key1});
    const Wide words01 = (block.c[0] & 0xffffffffu) | (block.c[1] << 32);
    const Wide words23 = (block.c[2] & 0xffffffffu) | (block.c[3] << 32);
#pragma GCC unroll 8
    for (int lane = 0; lane < kWideLanes; ++lane) {
      wide[2 * (i + lane) + 0] = words01[lane];
      wide[2 * (i + lane) + 1] = words23[lane];
    }
  }
  // The draws in order: 16-bit pieces of the words, low half first.
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  typedef uint16_t __attribute__((may_alias)) Draw;  // NOLINT(modernize-use-using)
  const Draw* draws = reinterpret_cast<const Draw*>(wide);
  // Copies, because for all the compiler knows a store to factors could change the job.
  const uint32_t threshold = job.threshold;
  const float scale = job.scale;
  for (int64_t i = 0; i < 8 * groups; ++i)
    factors[i] = uint32_t{draws[i]} >= threshold ? scale : 0.0f;
}

// Calls body(row, column_begin, count, factors) for every block; factors is null without dropout.
template <typename Body>
ANYORDER_INLINE void ForBlocks(const DropoutJob& dropout, int64_t row, int64_t columns,
                               const Body& body) {
  alignas(64) float factors[kBlock];
  for (int64_t begin = 0; begin < columns; begin += kBlock) {
    const int64_t count = Min(kBlock, columns - begin);
    if (dropout.threshold != 0) {
      DropoutFactors(dropout, row, begin, count, factors);
    } else {
      for (int64_t i = 0; i < count; ++i) factors[i] = 1.0f;
    }
    body(begin, count, static_cast<const float*>(factors));
  }
}

// sqrt(2 / pi) (x + 0.044715 x^3), doubled: gelu_tanh(x) = x sigmoid(u), since (1 + tanh v) / 2 =
// sigmoid(2v).
ANYORDER_INLINE float GeluArgument(float x) {
  return 1.5957691216f * x * MulAdd(0.044715f * x, x, 1.0f);
}

ANYORDER_INLINE float Value(Pointwise function, float x) {
  switch (function) {
    case Pointwise::kGeluTanh: return x * Sigmoid(GeluArgument(x));
    case Pointwise::kGeluErf: return 0.5f * x * Erfc(-0.70710678f * x);
    case Pointwise::kRelu: return x > 0.0f ? x : 0.0f;
    case Pointwise::kSilu: return x * Sigmoid(x);
    case Pointwise::kTanh:
      // The sigmoid alone would turn what is not a number into one.
      return x != x ? x : MulAdd(2.0f, Sigmoid(2.0f * x), -1.0f);
    case Pointwise::kIdentity: return x;
  }
  return x;
}

ANYORDER_INLINE float Derivative(Pointwise function, float x) {
  switch (function) {
    case Pointwise::kGeluTanh: {
      // Exactly 0 or 1 beyond; clamped so that the slope cannot overflow.
      const float c = x < -20.0f ? -20.0f : (x > 20.0f ? 20.0f : x);
      const float s = Sigmoid(GeluArgument(c));
      const float slope = 1.5957691216f * MulAdd(3 * 0.044715f * c, c, 1.0f);
      // 1 - s cancels where s is near 1, but there the term is far below s itself.
      return MulAdd(c * s * (1.0f - s), slope, s);
    }
    case Pointwise::kGeluErf:
      return MulAdd(0.39894228f * x, Exp(-0.5f * x * x), 0.5f * Erfc(-0.70710678f * x));
    case Pointwise::kRelu: return x > 0.0f ? 1.0f : 0.0f;
    case Pointwise::kSilu: {
      const float s = Sigmoid(x);
      // Beyond -87 the first factor is 0, and an infinite x would make it no number.
      const float c = x < -88.0f ? -88.0f : x;
      return MulAdd(c * s, Sigmoid(-c), s);
    }
    case Pointwise::kTanh: {
      const float s = Sigmoid(2.0f * x);
      return x != x ? x : 4.0f * s * (1.0f - s);
    }
    case Pointwise::kIdentity: return 1.0f;
  }
  return 1.0f;
}

// kFactor: of a gated unit.
template <typename T, Pointwise kFunction, bool kBackward, bool kFactor>
void PointwiseRows(const PointwiseJob& job, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    ForBlocks(job.dropout, row, job.columns,
              [&](int64_t begin, int64_t count, const float* factors) {
                const int64_t offset = row * job.columns + begin;
                const T* x = static_cast<const T*>(job.x) + offset;
                const T* dy = kBackward ? static_cast<const T*>(job.dy) + offset : nullptr;
                const T* factor = kFactor ? static_cast<const T*>(job.factor) + offset : nullptr;
                T* y = static_cast<T*>(job.y) + offset;
                T* dfactor = kFactor && kBackward ? static_cast<T*>(job.dfactor) + offset : nullptr;
      // y may be x or dy, and dfactor factor, element for element, which does not hinder vectors.
#pragma GCC ivdep
                for (int64_t i = 0; i < count; ++i) {
                  const float xi = Load(x, i);
                  const float by = kFactor ? Load(factor, i) : 1.0f;
                  if constexpr (kBackward) {
                    const float dropped = factors[i] * Load(dy, i);
                    Store(y, i, dropped * by * Derivative(kFunction, xi));
                    if constexpr (kFactor) Store(dfactor, i, dropped * Value(kFunction, xi));
                  } else {
                    Store(y, i, factors[i] * by * Value(kFunction, xi));
                  }
                }
              });
  }
}

template <typename T, Pointwise kFunction>
void PointwiseDirection(const PointwiseJob& job, int64_t row_begin, int64_t row_end) {
  const bool has_factor = job.factor != nullptr;
  if (job.dy != nullptr) {
    (has_factor ? PointwiseRows<T, kFunction, true, true>
                : PointwiseRows<T, kFunction, true, false>)(job, row_begin, row_end);
  } else {
    (has_factor ? PointwiseRows<T, kFunction, false, true>
                : PointwiseRows<T, kFunction, false, false>)(job, row_begin, row_end);
  }
}

template <typename T>
void PointwiseOf(const PointwiseJob& job, int64_t row_begin, int64_t row_end) {
  switch (job.function) {
    case Pointwise::kIdentity:
      return PointwiseRows<T, Pointwise::kIdentity, false, false>(job, row_begin, row_end);
    case Pointwise::kGeluTanh:
      return PointwiseDirection<T, Pointwise::kGeluTanh>(job, row_begin, row_end);
    case Pointwise::kGeluErf:
      return PointwiseDirection<T, Pointwise::kGeluErf>(job, row_begin, row_end);
    case Pointwise::kRelu: return PointwiseDirection<T, Pointwise::kRelu>(job, row_begin, row_end);
    case Pointwise::kSilu: return PointwiseDirection<T, Pointwise::kSilu>(job, row_begin, row_end);
    case Pointwise::kTanh: return PointwiseDirection<T, Pointwise::kTanh>(job, row_begin, row_end);
  }
}

// One row's statistics from its stored sum. A second pass over the deviations removes what rounding
// the first mean to fp32 put into the variance.
struct Moments {
  float mean;
  float variance;
};
template <typename T>
ANYORDER_INLINE Moments RowMoments(const T* sum, int64_t columns, float total) {
  const float n = static_cast<float>(columns);
  const float rough = total / n;
  float deviation = 0.0f;
  float squares = 0.0f;
#pragma omp simd reduction(+ : deviation, squares)
  for (int64_t i = 0; i < columns; ++i) {
    const float d = Load(sum, i) - rough;
    deviation += d;
    squares += d * d;
  }
  const float shift = deviation / n;
  const float variance = squares / n - shift * shift;
  return {rough + shift, variance > 0.0f ? variance : 0.0f};
}

// The mean square of a row of an RMSNorm.
template <typename T>
ANYORDER_INLINE float MeanSquare(const T* sum, int64_t columns) {
  float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < columns; ++i) squares += Load(sum, i) * Load(sum, i);
  return squares / static_cast<float>(columns);
}

template <typename T, bool kRms>
void NormForwardRows(const LayerNormForwardJob& job, int64_t row_begin, int64_t row_end) {
  const T* gamma = static_cast<const T*>(job.gamma);
  const T* beta = static_cast<const T*>(job.beta);
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int64_t offset = row * job.columns;
    T* sum = static_cast<T*>(job.sum) + offset;
    T* y = static_cast<T*>(job.y) + offset;
    float total = 0.0f;
    ForBlocks(job.dropout, row, job.columns,
              [&](int64_t begin, int64_t count, const float* factors) {
                const T* x = static_cast<const T*>(job.x) + offset + begin;
                T* block_sum = sum + begin;
                if (job.residual != nullptr) {
                  const T* residual = static_cast<const T*>(job.residual) + offset + begin;
#pragma GCC ivdep
                  for (int64_t i = 0; i < count; ++i)
                    Store(block_sum, i, MulAdd(factors[i], Load(x, i), Load(residual, i)));
                } else {
#pragma GCC ivdep
                  for (int64_t i = 0; i < count; ++i) Store(block_sum, i, factors[i] * Load(x, i));
                }
                float block_total = 0.0f;
#pragma omp simd reduction(+ : block_total)
                for (int64_t i = 0; i < count; ++i) block_total += Load(block_sum, i);
                total += block_total;
              });
    if constexpr (kRms) {
      const float rstd = 1.0f / __builtin_sqrtf(MeanSquare(sum, job.columns) + job.epsilon);
      job.rstd[row] = rstd;
#pragma GCC ivdep
      for (int64_t i = 0; i < job.columns; ++i) {
        Store(y, i, Load(sum, i) * rstd);
        Store(y, i, Load(y, i) * Load(gamma, i));
      }
    } else {
      const Moments moments = RowMoments(sum, job.columns, total);
      const float rstd = 1.0f / __builtin_sqrtf(moments.variance + job.epsilon);
      job.mean[row] = moments.mean;
      job.rstd[row] = rstd;
#pragma GCC ivdep
      for (int64_t i = 0; i < job.columns; ++i) {
        const float xhat = (Load(sum, i) - moments.mean) * rstd;
        Store(y, i, MulAdd(xhat, Load(gamma, i), Load(beta, i)));
      }
    }
  }
}

template <typename T>
void LayerNormForwardRows(const LayerNormForwardJob& job, int64_t row_begin, int64_t row_end) {
  (job.mean == nullptr ? NormForwardRows<T, true> : NormForwardRows<T, false>)(job, row_begin,
                                                                               row_end);
}

template <typename T, bool kRms>
void NormBackwardRow(const LayerNormBackwardJob& job, int64_t row, float* dgamma, float* dbeta) {
  const int64_t offset = row * job.columns;
  const T* dy = static_cast<const T*>(job.dy) + offset;
  const T* sum = static_cast<const T*>(job.sum) + offset;
  const T* gamma = static_cast<const T*>(job.gamma);
  const float mean = kRms ? 0.0f : job.mean[row];
  const float rstd = job.rstd[row];
  float total_g = 0.0f;
  float total_g_xhat = 0.0f;
#pragma omp simd reduction(+ : total_g, total_g_xhat)
  for (int64_t i = 0; i < job.columns; ++i) {
    const float dyi = Load(dy, i);
    const float xhat = (Load(sum, i) - mean) * rstd;
    const float g = Load(gamma, i) * dyi;
    if constexpr (!kRms) {
      total_g += g;
      dbeta[i] += dyi;
    }
    total_g_xhat += g * xhat;
    dgamma[i] += dyi * xhat;
  }
  const float mean_g = total_g / static_cast<float>(job.columns);
  const float mean_g_xhat = total_g_xhat / static_cast<float>(job.columns);
  T* dx = static_cast<T*>(job.dx) + offset;
  T* dresidual = job.dresidual == nullptr ? nullptr : static_cast<T*>(job.dresidual) + offset;
  ForBlocks(job.dropout, row, job.columns, [&](int64_t begin, int64_t count, const float* factors) {
    alignas(64) float dsum[kBlock];
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      const float xhat = (Load(sum, begin + i) - mean) * rstd;
      const float g = Load(gamma, begin + i) * Load(dy, begin + i);
      dsum[i] = rstd * (g - mean_g - xhat * mean_g_xhat);
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) Store(dx, begin + i, factors[i] * dsum[i]);
    if (dresidual == nullptr) return;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) Store(dresidual, begin + i, dsum[i]);
  });
}

template <typename T, bool kRms>
void NormBackwardRows(const LayerNormBackwardJob& job, int64_t row_begin, int64_t row_end,
                      float* dgamma, float* dbeta) {
  for (int64_t i = 0; i < job.columns; ++i) {
    dgamma[i] = 0.0f;
    if constexpr (!kRms) dbeta[i] = 0.0f;
  }
  for (int64_t row = row_begin; row < row_end; ++row)
    NormBackwardRow<T, kRms>(job, row, dgamma, dbeta);
}

template <typename T>
void LayerNormBackwardRows(const LayerNormBackwardJob& job, int64_t row_begin, int64_t row_end,
                           float* dgamma, float* dbeta) {
  (job.mean == nullptr ? NormBackwardRows<T, true>
                       : NormBackwardRows<T, false>)(job, row_begin, row_end, dgamma, dbeta);
}

template <typename T>
void EmbeddingForwardRows(const EmbeddingJob& job, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const T* entry = static_cast<const T*>(job.source) + job.ids[row] * job.columns;
    T* y = static_cast<T*>(job.target) + row * job.columns;
    ForBlocks(job.dropout, row, job.columns,
              [&](int64_t begin, int64_t count, const float* factors) {
#pragma GCC ivdep
                for (int64_t i = 0; i < count; ++i)
                  Store(y, begin + i, factors[i] * (job.scale * Load(entry, begin + i)));
              });
  }
}

template <typename T>
void EmbeddingBackwardColumns(const EmbeddingJob& job, int64_t column_begin, int64_t column_end) {
  alignas(64) float factors[kBlock];
  for (int64_t row = 0; row < job.rows; ++row) {
    const T* dy = static_cast<const T*>(job.source) + row * job.columns;
    float* entry = static_cast<float*>(job.target) + job.ids[row] * job.columns;
    for (int64_t begin = column_begin; begin < column_end; begin += kBlock) {
      const int64_t count = Min(kBlock, column_end - begin);
      if (job.dropout.threshold == 0) {
#pragma GCC ivdep
        for (int64_t i = begin; i < begin + count; ++i) entry[i] += job.scale * Load(dy, i);
        continue;
      }
      DropoutFactors(job.dropout, row, begin, count, factors);
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i)
        entry[begin + i] += factors[i] * (job.scale * Load(dy, begin + i));
    }
  }
}

template <typename T>
void RotaryRows(const RotaryJob& job, int64_t row_begin, int64_t row_end) {
  const int64_t half = job.head_dim / 2;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* cosines = job.angles + row * job.head_dim;
    const float* sines = cosines + half;
    const float sign = job.sign;
    for (int64_t head = 0; head < job.columns; head += job.head_dim) {
      const T* x = static_cast<const T*>(job.x) + row * job.columns + head;
      T* y = static_cast<T*>(job.y) + row * job.columns + head;
      // y may be x: a pair is read before it is written.
#pragma GCC ivdep
      for (int64_t f = 0; f < half; ++f) {
        const float sine = sign * sines[f];
        const float low = Load(x, f);
        const float high = Load(x, f + half);
        Store(y, f, MulAdd(low, cosines[f], -(high * sine)));
        Store(y, f + half, MulAdd(high, cosines[f], low * sine));
      }
    }
  }
}

void SoftmaxRow(const SoftmaxJob& job, int64_t row) {
  float* logits = job.logits + row * job.vocab;
  const float weight = job.row_weights[row];
  uint16_t* rounded = job.rounded == nullptr ? nullptr : job.rounded + row * job.vocab;
  if (weight == 0.0f) {
    job.loss[row] = 0.0f;
    if (!job.gradients) return;
    for (int64_t i = 0; i < job.vocab; ++i) logits[i] = 0.0f;
    for (int64_t i = 0; rounded != nullptr && i < job.vocab; ++i) rounded[i] = 0;
    return;
  }
  float max = logits[0];
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < job.vocab; ++i) max = Max(max, logits[i]);
  const float label_logit = logits[job.labels[row]];
  // A vocabulary is long: partial sums of fp32 lanes are added up in double, block by block.
  double sum = 0.0;
  for (int64_t begin = 0; begin < job.vocab; begin += kBlock) {
    float block_sum = 0.0f;
    const int64_t end = Min(begin + kBlock, job.vocab);
#pragma omp simd reduction(+ : block_sum)
    for (int64_t i = begin; i < end; ++i) {
      const float e = Exp(logits[i] - max);
      logits[i] = e;
      block_sum += e;
    }
    sum += static_cast<double>(block_sum);
  }
  job.loss[row] = static_cast<float>(__builtin_log(sum) +
                                     (static_cast<double>(max) - static_cast<double>(label_logit)));
  if (!job.gradients) return;
  const float factor = static_cast<float>(static_cast<double>(weight) / sum);
  for (int64_t i = 0; i < job.vocab; ++i) logits[i] *= factor;
  logits[job.labels[row]] -= weight;
  if (rounded == nullptr) return;
  for (int64_t i = 0; i < job.vocab; ++i) Store(rounded, i, logits[i]);
}

void SoftmaxKernel(const SoftmaxJob& job, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) SoftmaxRow(job, row);
}

template <typename Weights>
void AdamWRange(const AdamWJob& job, Weights* weights, int64_t begin, int64_t end) {
  const AdamWJob j = job;
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    const float g = j.grad_scale * j.grad[i];
    const float m = MulAdd(j.beta1, j.m[i], j.one_minus_beta1 * g);
    const float v = MulAdd(j.beta2, j.v[i], j.one_minus_beta2 * g * g);
    const float ratio = j.correction * m / (__builtin_sqrtf(v) + j.epsilon);
    const float master =
        MulAdd(-j.learning_rate, MulAdd(j.weight_decay, j.master[i], ratio), j.master[i]);
    j.m[i] = m;
    j.v[i] = v;
    j.master[i] = master;
    if (weights != nullptr) Store(weights, i, master);
  }
}

void AdamWKernel(const AdamWJob& job, int64_t begin, int64_t end) {
  if (job.weights_element == Element::kBFloat16 && job.weights != nullptr) {
    return AdamWRange(job, static_cast<Bf16*>(job.weights), begin, end);
  }
  AdamWRange(job, static_cast<float*>(job.weights), begin, end);
}

double SumOfSquaresKernel(const float* x, int64_t count) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

template <typename T>
void ColumnSumRows(const void* x, int64_t columns, int64_t row_begin, int64_t row_end,
                   float* sums) {
  for (int64_t c = 0; c < columns; ++c) sums[c] = 0.0f;
  for (int64_t r = row_begin; r < row_end; ++r) {
    const T* row = static_cast<const T*>(x) + r * columns;
#pragma GCC ivdep
    for (int64_t c = 0; c < columns; ++c) sums[c] += Load(row, c);
  }
}

template <typename T>
void AddRange(const void* a, const void* b, void* y, int64_t begin, int64_t end) {
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i)
    Store(static_cast<T*>(y), i,
          Load(static_cast<const T*>(a), i) + Load(static_cast<const T*>(b), i));
}

template <typename From, typename To>
void CastRange(const void* x, void* y, int64_t begin, int64_t end) {
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i)
    Store(static_cast<To*>(y), i, Load(static_cast<const From*>(x), i));
}

void ExpKernel(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = Exp(x[i]);
}

void ErfcKernel(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = Erfc(x[i]);
}

void DropoutFactorsKernel(const DropoutJob& job, int64_t row, int64_t columns, float* result) {
  ForBlocks(job, row, columns, [&](int64_t begin, int64_t count, const float* factors) {
    for (int64_t i = 0; i < count; ++i) result[begin + i] = factors[i];
  });
}

// The kernel by the type of its elements, which its first argument has or is.
template <auto kOfFloats, auto kOfBf16, typename Job, typename... Arguments>
void ByElement(const Job& job, Arguments... arguments) {
  if (job.element == Element::kFloat32) return kOfFloats(job, arguments...);
  kOfBf16(job, arguments...);
}
template <auto kOfFloats, auto kOfBf16, typename... Arguments>
void ByElement(Element element, Arguments... arguments) {
  if (element == Element::kFloat32) return kOfFloats(arguments...);
  kOfBf16(arguments...);
}

}  // namespace

extern const VectorKernels kVectorKernels;
const VectorKernels kVectorKernels = {
    // Without the "isa_" of the namespace.
    &ANYORDER_STRING(ANYORDER_ISA)[4],
    ByElement<PointwiseOf<float>, PointwiseOf<Bf16>>,
    ByElement<LayerNormForwardRows<float>, LayerNormForwardRows<Bf16>>,
    ByElement<LayerNormBackwardRows<float>, LayerNormBackwardRows<Bf16>>,
    ByElement<EmbeddingForwardRows<float>, EmbeddingForwardRows<Bf16>>,
    ByElement<EmbeddingBackwardColumns<float>, EmbeddingBackwardColumns<Bf16>>,
    ByElement<RotaryRows<float>, RotaryRows<Bf16>>,
    SoftmaxKernel,
    AdamWKernel,
    SumOfSquaresKernel,
    ByElement<ColumnSumRows<float>, ColumnSumRows<Bf16>>,
    ByElement<AddRange<float>, AddRange<Bf16>>,
    ByElement<CastRange<Bf16, float>, CastRange<float, Bf16>>,
    ExpKernel,
    ErfcKernel,
    DropoutFactorsKernel,
};

}  // namespace anyorder::kernels::cpu::ANYORDER_ISA
