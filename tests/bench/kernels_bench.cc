// Speed of the CPU backend's operations, one JSON line a case:
//   {"name":"gemm","shape":"1024x3072x768","dtype":"F32","threads":2,"best":105.2,
//    "median":103.9,"unit":"GFLOP/s"}
// Usage: kernels_bench [threads]. Bytes of GB/s count each tensor read or written once.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "kernels/backend.h"
#include "tests/bench/operands.h"
#include "tests/bench/options.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::kernels {
namespace {

using bench::DeviceMemory;

class Bench {
 public:
  explicit Bench(int threads)
      : threads_(threads), backend_(MakeCpuBackend({.num_threads = threads}).value()) {}

  Backend& backend() { return *backend_; }

  // Repeats `operation`, which does `work` units (flops or bytes), for about a third of a second.
  void Report(const std::string& name, const std::string& shape, DType dtype, double work,
              const char* unit, const std::function<void()>& operation) {
    operation();
    std::vector<double> rates;
    for (double total = 0; rates.size() < 5 || total < 0.3;) {
      const double seconds = bench::SecondsOf(operation);
      total += seconds;
      rates.push_back(work / seconds * 1e-9);
    }
    absl::PrintF(
        "{\"name\":\"%s\",\"shape\":\"%s\",\"dtype\":\"%s\",\"threads\":%d,\"best\":%.1f,"
        "\"median\":%.1f,\"unit\":\"%s\"}\n",
        name, shape, Name(dtype), threads_, std::ranges::max(rates), bench::Median(rates), unit);
    std::fflush(stdout);
  }

 private:
  int threads_;
  std::unique_ptr<Backend> backend_;
};

struct GemmShape {
  int64_t m, k, n;
  bool transpose_a = false;
  bool transpose_b = false;
};

// Forward shapes of xlnet-tiny and xlnet-base, the softmax layer, and the backward forms.
const GemmShape kGemmShapes[] = {{1024, 256, 256},
                                 {1024, 256, 1024},
                                 {168, 256, 8000, false, true},
                                 {1024, 768, 768},
                                 {1024, 768, 3072},
                                 {1024, 3072, 768},
                                 {170, 768, 32000, false, true},
                                 {1024, 3072, 768, false, true},
                                 {768, 1024, 3072, true, false},
                                 {3072, 1024, 768, true, false},
                                 {32000, 170, 768, true, false}};

void BenchGemm(Bench& bench, DType dtype) {
  for (const GemmShape& s : kGemmShapes) {
    DeviceMemory memory(bench.backend());
    GemmArgs args = {
        .a = memory.Random(dtype, s.transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1),
        .b = memory.Random(dtype, s.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2),
        .transpose_a = s.transpose_a,
        .transpose_b = s.transpose_b};
    // Weight gradients are added up in fp32.
    args.beta = s.transpose_a ? 1.0f : 0.0f;
    args.c = memory.Tensor(s.transpose_a ? DType::kFloat32 : dtype, {s.m, s.n});
    const std::string shape = absl::StrCat(s.m, "x", s.n, "x", s.k, s.transpose_a ? " a^T" : "",
                                           s.transpose_b ? " b^T" : "");
    const double flops = 2.0 * static_cast<double>(s.m * s.n * s.k);
    bench.Report("gemm", shape, dtype, flops, "GFLOP/s", [&] { bench.backend().Gemm(args, {}); });
  }
}

// 2 x 512 content rows and 2 x 85 query rows of xlnet-base.
constexpr int64_t kRows = 1194;
constexpr int64_t kColumns = 768;

void BenchLayerNorm(Bench& bench, DType dtype) {
  DeviceMemory memory(bench.backend());
  const bench::LayerNormOperands operands =
      bench::MakeLayerNorm(memory, dtype, kRows, kColumns, MakeDropout(1, 2, 3, 0.1), 0);
  const double bytes = 4.0 * static_cast<double>(operands.forward.x.num_bytes());
  bench.Report("layernorm forward", "1194x768", dtype, bytes, "GB/s",
               [&] { bench.backend().LayerNormForward(operands.forward, {}); });
  bench.Report("layernorm backward", "1194x768", dtype, bytes, "GB/s",
               [&] { bench.backend().LayerNormBackward(operands.backward, {}); });
}

void BenchPointwise(Bench& bench, DType dtype) {
  DeviceMemory memory(bench.backend());
  const int32_t* const row_ids = memory.Array(test::RowIds(kRows));
  const Dropout dropout = MakeDropout(1, 2, 3, 0.1);
  const TensorView x = memory.Random(dtype, {kRows, kColumns}, 1);
  const TensorView dy = memory.Random(dtype, {kRows, kColumns}, 2);
  const TensorView y = memory.Tensor(dtype, {kRows, kColumns});
  const double bytes = static_cast<double>(x.num_bytes());
  bench.Report("gelu forward", "1194x768", dtype, 2 * bytes, "GB/s", [&] {
    bench.backend().ActivationForward({Activation::kGeluTanh, x, dropout, row_ids, y}, {});
  });
  bench.Report("gelu backward", "1194x768", dtype, 3 * bytes, "GB/s", [&] {
    bench.backend().ActivationBackward({Activation::kGeluTanh, x, dy, dropout, row_ids, y}, {});
  });
  bench.Report("dropout", "1194x768", dtype, 2 * bytes, "GB/s", [&] {
    bench.backend().DropoutApply({x, dropout, row_ids, y}, {});
  });
}

void BenchAdamW(Bench& bench, DType dtype) {
  constexpr int64_t kCount = 8 << 20;
  DeviceMemory memory(bench.backend());
  const AdamWArgs args = bench::MakeAdamW(memory, dtype, kCount);
  const double bytes = static_cast<double>(kCount * (7 * 4 + SizeOf(dtype)));
  bench.Report("adamw", "8Mi", dtype, bytes, "GB/s", [&] { bench.backend().AdamW(args, {}); });
  const TensorView sums = memory.Tensor(DType::kFloat64, {kCount / kNormBlockElements});
  bench.Report("sum of squares", "8Mi", DType::kFloat32, 4.0 * kCount, "GB/s",
               [&] { bench.backend().SumOfSquares(args.grad, sums, {}); });
}

void BenchCrossEntropy(Bench& bench, DType dtype) {
  constexpr int64_t kTargets = 170;
  constexpr int64_t kVocab = 32000;
  DeviceMemory memory(bench.backend());
  const LinearCrossEntropyArgs args =
      bench::MakeClassifier(memory, dtype, kTargets, kColumns, kVocab);
  const double flops = 6.0 * kTargets * kColumns * kVocab;
  bench.Report("cross entropy", "170x32000x768", dtype, flops, "GFLOP/s",
               [&] { bench.backend().LinearCrossEntropy(args, {}); });
}

void RunAll(Bench& bench) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    BenchGemm(bench, dtype);
    BenchLayerNorm(bench, dtype);
    BenchPointwise(bench, dtype);
    BenchAdamW(bench, dtype);
    BenchCrossEntropy(bench, dtype);
  }
}

}  // namespace
}  // namespace anyorder::kernels

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  if (threads < 1) {
    std::fprintf(stderr, "kernels_bench: threads '%s' is not a positive number\n", argv[1]);
    return 64;
  }
  anyorder::kernels::Bench bench(threads);
  anyorder::kernels::RunAll(bench);
  return 0;
}
