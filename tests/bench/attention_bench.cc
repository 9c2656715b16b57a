// Speed of the fused CPU attention beside the multiply-add peak of the same core (of bf16 products
// for bf16, where there is an instruction for them), measured in the same run.
// Usage: attention_bench [threads [repeats [isa ("": best) [F32 | BF16]]]]
// One JSON line per shape, precision and direction. GFLOP/s count necessary work only: 2 * rows *
// keys * D for each of 3 products forward (content, position, value) and twice that backward,
// whatever is computed again. Of "encoder", which has no position term, compare the milliseconds:
// without and with T5's bias, and with keys out of order. Best wall time of the repeats, and the
// least processor time a thread (which other jobs disturb less).

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "absl/strings/str_format.h"

#include "kernels/cpu/attention/attention.h"
#include "tests/kernels/attention_scenarios.h"

namespace anyorder::kernels::testing {
namespace {

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Times {
  double wall = 1e30;
  double processor = 1e30;  // a thread
};

template <typename Work>
Times Best(int repeats, int num_threads, Work work) {
  Times best;
  for (int i = 0; i < repeats; ++i) {
    const double wall = Seconds(CLOCK_MONOTONIC);
    const double processor = Seconds(CLOCK_PROCESS_CPUTIME_ID);
    work();
    best.wall = std::min(best.wall, Seconds(CLOCK_MONOTONIC) - wall);
    best.processor =
        std::min(best.processor, (Seconds(CLOCK_PROCESS_CPUTIME_ID) - processor) / num_threads);
  }
  return best;
}

#if defined(__x86_64__)
// Twelve independent chains hide the latency; returns FLOPs done.
__attribute__((target("avx512f"))) double MultiplyAdd512(int64_t steps, float* sink) {
  __m512 sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(0.999f);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sums[i] = _mm512_fmadd_ps(sums[i], a, a);
  }
  for (int i = 0; i < 12; ++i) _mm512_storeu_ps(sink + 16 * i, sums[i]);
  return 2.0 * 16 * 12 * static_cast<double>(steps);
}
__attribute__((target("avx2,fma"))) double MultiplyAdd256(int64_t steps, float* sink) {
  __m256 sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999f);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sums[i] = _mm256_fmadd_ps(sums[i], a, a);
  }
  for (int i = 0; i < 12; ++i) _mm256_storeu_ps(sink + 16 * i, sums[i]);
  return 2.0 * 8 * 12 * static_cast<double>(steps);
}
__attribute__((target("avx512f,avx512bf16"))) double MultiplyAddBf16(int64_t steps, float* sink) {
  __m512 sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512bh a = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, a);
  }
  for (int i = 0; i < 12; ++i) _mm512_storeu_ps(sink + 16 * i, sums[i]);
  return 2.0 * 32 * 12 * static_cast<double>(steps);
}
#endif

// GFLOP/s of one core; 0 where this program has no loop for the machine.
double Peak(DType dtype) {
#if defined(__x86_64__)
  std::vector<float> sink(16 * 12);
  constexpr int64_t kSteps = 2000000;
  const bool bf16 = dtype == DType::kBFloat16 && __builtin_cpu_supports("avx512bf16");
  double flops = 0;
  const Times time = Best(5, 1, [&] {
    if (bf16)
      flops = MultiplyAddBf16(kSteps, sink.data());
    else if (__builtin_cpu_supports("avx512f"))
      flops = MultiplyAdd512(kSteps, sink.data());
    else
      flops = MultiplyAdd256(kSteps, sink.data());
  });
  return flops / time.processor * 1e-9;
#else
  (void)dtype;
  return 0;
#endif
}

struct BenchOptions {
  int num_threads = 1;
  int repeats = 5;
};

template <typename T>
void Run(const AttentionCase& c, const BenchOptions& options) {
  const double peak = Peak(DTypeOf<T>());
  AttentionData<T, float> data = MakeData<T, float>(c, 1);
  data.Poison(cpu::CpuAttentionBackwardWorkspaceBytes(data.shape));
  const AttentionForwardArgs forward = data.Forward();
  const AttentionBackwardArgs backward = data.Backward();
  const AttentionShape& s = data.shape;
  const double work = 6.0 * static_cast<double>(s.num_rows() * s.num_keys * s.model_dim());
  const auto report = [&](const char* direction, double flops, const Times& time) {
    const double gflops = flops / time.wall * 1e-9;
    const double per_core = flops / time.processor / options.num_threads * 1e-9;
    absl::PrintF(
        "{\"name\": \"attention_%s\", \"shape\": \"%s B%d H%d D%d C%d Q%d K%d R%d\", "
        "\"dtype\": \"%s\", \"dropout\": %.2f, \"threads\": %d, \"wall_ms\": %.2f, "
        "\"processor_ms\": %.2f, \"gflops\": %.1f, \"gflops_per_core\": %.1f, "
        "\"peak_per_core\": %.1f, \"percent_of_peak\": %.1f}\n",
        direction, c.name, s.batch_size, s.num_heads, s.head_dim, s.content_rows, s.query_rows,
        s.num_keys, s.num_distances, Name(DTypeOf<T>()), c.dropout_rate, options.num_threads,
        time.wall * 1e3, time.processor * 1e3, gflops, per_core, peak, 100 * per_core / peak);
  };
  cpu::CpuAttentionForward(forward, options.num_threads);
  report("forward", work, Best(options.repeats, options.num_threads, [&] {
           cpu::CpuAttentionForward(forward, options.num_threads);
         }));
  cpu::CpuAttentionBackward(backward, options.num_threads);
  report("backward", 2 * work, Best(options.repeats, options.num_threads, [&] {
           cpu::CpuAttentionBackward(backward, options.num_threads);
         }));
}

int Main(int argc, char** argv) {
  BenchOptions options;
  if (argc > 1) options.num_threads = std::max(1, std::atoi(argv[1]));
  if (argc > 2) options.repeats = std::max(1, std::atoi(argv[2]));
  if (argc > 3) cpu::ForceAttentionIsa(argv[3]);
  const std::string dtype = argc > 4 ? argv[4] : "";
  AttentionCase base = XlnetCase(384, 512, 12, 64);
  base.name = "xlnet-base";
  AttentionCase tiny = XlnetCase(96, 128, 4, 64);
  tiny.name = "xlnet-tiny";
  AttentionCase encoder = OneStreamCase("encoder", 0, 512, [](int32_t) { return 0; });
  encoder.biases = encoder.segments = false;
  encoder.Finish(12, 64, 0);
  AttentionCase biased = encoder;
  biased.name = "encoder, bias";
  biased.AddDistanceBias(-128, 257);
  AttentionCase scattered = biased;
  scattered.name = "encoder, bias, keys out of order";
  for (Slots& keys : scattered.keys) std::reverse(keys.pos.begin(), keys.pos.end());
  for (AttentionCase c : {base, tiny, encoder, biased, scattered}) {
    for (const double rate : {0.0, 0.1}) {
      c.dropout_rate = rate;
      if (dtype != "BF16") Run<float>(c, options);
      if (dtype != "F32") Run<BFloat16>(c, options);
    }
  }
  return 0;
}

}  // namespace
}  // namespace anyorder::kernels::testing

int main(int argc, char** argv) { return anyorder::kernels::testing::Main(argc, argv); }
