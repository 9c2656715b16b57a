// Speed of the CPU backend's operations, one JSON line a case:
//   {"name":"gemm","shape":"1024x3072x768","dtype":"F32","threads":2,"best":105.2,"median":103.9,"unit":"GFLOP/s"}
// Usage: kernels_bench [threads [substring of a name]]. Bytes of GB/s count each tensor read or written once.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::kernels {
namespace {

using test::HostTensor;
using test::RandomTensor;

class Bench {
 public:
  Bench(int threads, std::string filter)
      : threads_(threads),
        filter_(std::move(filter)),
        backend_(MakeCpuBackend({.num_threads = threads}).value()) {}

  Backend& backend() { return *backend_; }
  bool Wanted(const std::string& name) const { return name.find(filter_) != std::string::npos; }

  // Repeats `operation`, which does `work` units (flops or bytes), for about a third of a second.
  void Report(const std::string& name,
              const std::string& shape,
              DType dtype,
              double work,
              const char* unit,
              const std::function<void()>& operation) {
    using Clock = std::chrono::steady_clock;
    operation();
    std::vector<double> rates;
    const auto start = Clock::now();
    while (rates.size() < 5 || Clock::now() - start < std::chrono::milliseconds(300)) {
      const auto before = Clock::now();
      operation();
      const std::chrono::duration<double> seconds = Clock::now() - before;
      rates.push_back(work / seconds.count() * 1e-9);
    }
    std::sort(rates.begin(), rates.end());
    std::printf(
        "{\"name\":\"%s\",\"shape\":\"%s\",\"dtype\":\"%s\",\"threads\":%d,\"best\":%.1f,"
        "\"median\":%.1f,\"unit\":\"%s\"}\n",
        name.c_str(),
        shape.c_str(),
        std::string(Name(dtype)).c_str(),
        threads_,
        rates.back(),
        rates[rates.size() / 2],
        unit);
    std::fflush(stdout);
  }

 private:
  int threads_;
  std::string filter_;
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
    const HostTensor a = RandomTensor(dtype, s.transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
    const HostTensor b = RandomTensor(dtype, s.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
    // Weight gradients are summed in fp32.
    HostTensor c(s.transpose_a ? DType::kFloat32 : dtype, {s.m, s.n});
    GemmArgs args;
    args.a = a.view();
    args.b = b.view();
    args.transpose_a = s.transpose_a;
    args.transpose_b = s.transpose_b;
    args.beta = s.transpose_a ? 1.0f : 0.0f;
    args.c = c.view();
    const std::string shape = std::to_string(s.m) + "x" + std::to_string(s.n) + "x" +
                              std::to_string(s.k) + (s.transpose_a ? " a^T" : "") +
                              (s.transpose_b ? " b^T" : "");
    const double flops = 2.0 * static_cast<double>(s.m * s.n * s.k);
    bench.Report("gemm", shape, dtype, flops, "GFLOP/s", [&] { bench.backend().Gemm(args, {}); });
  }
}

void BenchRows(Bench& bench, DType dtype) {
  constexpr int64_t kRows = 1194;
  constexpr int64_t kColumns = 768;
  const Shape shape{kRows, kColumns};
  const HostTensor x = RandomTensor(dtype, shape, 1);
  const HostTensor residual = RandomTensor(dtype, shape, 2);
  const HostTensor gamma = RandomTensor(dtype, {kColumns}, 3);
  HostTensor sum(dtype, shape), y(dtype, shape), dx(dtype, shape), dresidual(dtype, shape);
  HostTensor mean(DType::kFloat32, {kRows}), rstd(DType::kFloat32, {kRows});
  HostTensor dgamma(DType::kFloat32, {kColumns}), dbeta(DType::kFloat32, {kColumns});
  const auto row_ids = test::RowIds(kRows);
  const Dropout dropout = MakeDropout(1, 2, 3, 0.1);
  const double tensor_bytes = static_cast<double>(x.view().num_bytes());
  const LayerNormForwardArgs forward{x.view(),
                                     residual.view(),
                                     gamma.view(),
                                     gamma.view(),
                                     1e-12f,
                                     dropout,
                                     row_ids.data(),
                                     sum.view(),
                                     mean.view(),
                                     rstd.view(),
                                     y.view()};
  bench.Report("layernorm forward", "1194x768", dtype, 4 * tensor_bytes, "GB/s", [&] {
    bench.backend().LayerNormForward(forward, {});
  });
  const LayerNormBackwardArgs backward{x.view(),
                                       sum.view(),
                                       mean.view(),
                                       rstd.view(),
                                       gamma.view(),
                                       dropout,
                                       row_ids.data(),
                                       dx.view(),
                                       dresidual.view(),
                                       dgamma.view(),
                                       dbeta.view()};
  bench.Report("layernorm backward", "1194x768", dtype, 4 * tensor_bytes, "GB/s", [&] {
    bench.backend().LayerNormBackward(backward, {});
  });
  bench.Report("gelu forward", "1194x768", dtype, 2 * tensor_bytes, "GB/s", [&] {
    bench.backend().ActivationForward(
        {Activation::kGeluTanh, x.view(), dropout, row_ids.data(), y.view()}, {});
  });
  bench.Report("gelu backward", "1194x768", dtype, 3 * tensor_bytes, "GB/s", [&] {
    bench.backend().ActivationBackward(
        {Activation::kGeluTanh, x.view(), residual.view(), dropout, row_ids.data(), dx.view()}, {});
  });
  bench.Report("dropout", "1194x768", dtype, 2 * tensor_bytes, "GB/s", [&] {
    bench.backend().DropoutApply({x.view(), dropout, row_ids.data(), y.view()}, {});
  });
}

void BenchAdamW(Bench& bench, DType dtype) {
  constexpr int64_t kCount = 8 << 20;
  const HostTensor grad = RandomTensor(DType::kFloat32, {kCount}, 1);
  HostTensor master = grad, m = grad, v(DType::kFloat32, {kCount}), weights(dtype, {kCount});
  AdamWArgs args;
  args.grad = grad.view();
  args.master = master.view();
  args.m = m.view();
  args.v = v.view();
  args.weights = weights.view();
  args.learning_rate = 1e-4;
  const double bytes = static_cast<double>(kCount * (7 * 4 + SizeOf(dtype)));
  bench.Report("adamw", "8Mi", dtype, bytes, "GB/s", [&] { bench.backend().AdamW(args, {}); });
  HostTensor sums(DType::kFloat64, {kCount / kNormBlockElements});
  bench.Report("sum of squares", "8Mi", DType::kFloat32, 4.0 * kCount, "GB/s", [&] {
    bench.backend().SumOfSquares(grad.view(), sums.view(), {});
  });
}

void BenchCrossEntropy(Bench& bench, DType dtype) {
  constexpr int64_t kRows = 170;
  constexpr int64_t kColumns = 768;
  constexpr int64_t kVocab = 32000;
  const HostTensor x = RandomTensor(dtype, {kRows, kColumns}, 1);
  const HostTensor weight = RandomTensor(dtype, {kVocab, kColumns}, 2, 0.02);
  const HostTensor bias = RandomTensor(dtype, {kVocab}, 3, 0.02);
  const auto labels = test::RandomIds(kRows, kVocab, 4);
  const std::vector<float> row_weights(kRows, 1.0f);
  HostTensor loss(DType::kFloat32, {kRows}), dx(dtype, {kRows, kColumns});
  HostTensor dweight(DType::kFloat32, {kVocab, kColumns}), dbias(DType::kFloat32, {kVocab});
  HostTensor workspace(
      DType::kUint8,
      {bench.backend().LinearCrossEntropyWorkspaceBytes(kRows, kColumns, kVocab, dtype)});
  const LinearCrossEntropyArgs args{x.view(),
                                    weight.view(),
                                    bias.view(),
                                    labels.data(),
                                    row_weights.data(),
                                    loss.view(),
                                    dx.view(),
                                    dweight.view(),
                                    dbias.view(),
                                    workspace.view()};
  bench.Report(
      "cross entropy", "170x32000x768", dtype, 6.0 * kRows * kColumns * kVocab, "GFLOP/s", [&] {
        bench.backend().LinearCrossEntropy(args, {});
      });
}

void RunAll(Bench& bench) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    if (!bench.backend().Supports(dtype)) continue;
    if (bench.Wanted("gemm")) BenchGemm(bench, dtype);
    if (bench.Wanted("rows")) BenchRows(bench, dtype);
    if (bench.Wanted("adamw")) BenchAdamW(bench, dtype);
    if (bench.Wanted("cross entropy")) BenchCrossEntropy(bench, dtype);
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
  anyorder::kernels::Bench bench(threads, argc > 2 ? argv[2] : "");
  anyorder::kernels::RunAll(bench);
  return 0;
}
