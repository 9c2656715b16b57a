#include "kernels/cuda/gemm/gemm.h"

#include <cstdint>

#include "core/base/check.h"
#include "kernels/cuda/platform/launch.h"
#include "tests/emulated_gpu/runtime.h"

namespace anyorder::kernels::cuda {
namespace {

// What a library does with the description that it gets, in double; product `index` of a batch.
template <typename T, typename D>
void MultiplyLoops(const ColumnMajorProduct& p, int64_t index) {
  const auto* a = static_cast<const T*>(p.a) + index * p.step_a();
  const auto* b = static_cast<const T*>(p.b) + index * p.step_b();
  const auto* bias =
      p.bias == nullptr ? nullptr : static_cast<const D*>(p.bias) + index * p.step_bias;
  auto* d = static_cast<D*>(p.d) + index * p.step_d();
  for (int64_t column = 0; column < p.columns(); ++column) {
    for (int64_t row = 0; row < p.rows(); ++row) {
      double sum = 0;
      for (int64_t i = 0; i < p.inner(); ++i) {
        const T x = p.transpose_a() ? a[row * p.stride_a() + i] : a[i * p.stride_a() + row];
        const T y = p.transpose_b() ? b[i * p.stride_b() + column] : b[column * p.stride_b() + i];
        sum += double{ToFloat(x)} * double{ToFloat(y)};
      }
      sum *= p.scale;
      if (bias != nullptr) sum += ToFloat(bias[row]);
      D& result = d[column * p.stride_d() + row];
      if (p.key.accumulates) sum += ToFloat(result);
      result = D(static_cast<float>(sum));
    }
  }
}

// The sums over the inner dimension that are asked for, [rows] of a or [columns] of b.
template <typename T>
void SumLoops(const ColumnMajorProduct& p) {
  const bool of_a = p.key.sum == GemmSum::kB;
  const auto* x = static_cast<const T*>(of_a ? p.a : p.b);
  const int64_t stride = of_a ? p.stride_a() : p.stride_b();
  auto* sums = static_cast<float*>(p.sum);
  for (int64_t at = 0; at < (of_a ? p.rows() : p.columns()); ++at) {
    double sum = 0;
    for (int64_t i = 0; i < p.inner(); ++i) sum += double{ToFloat(x[i * stride + at])};
    sums[at] = static_cast<float>(sum);
  }
}

// What cuBLASLt asks for, it says or NVIDIA's bindings for it do: a in place or b transposed, and
// sums of d's dtype.
void CheckSum(const ColumnMajorProduct& p) {
  ANYORDER_CHECK(reinterpret_cast<uintptr_t>(p.sum) % kBiasAlignment == 0)
      << "sums that the library would write unaligned";
  ANYORDER_CHECK(p.key.out == DType::kFloat32) << "sums of another dtype than the result's";
  ANYORDER_CHECK(p.key.sum == GemmSum::kB ? !p.transpose_a() : p.transpose_b())
      << "sums of an operand that libraries have none of";
}

class EmulatedGemm final : public GemmEngine {
 public:
  explicit EmulatedGemm(Runtime& runtime)
      : GemmEngine(runtime), fuses_sums_(emulation::FusesSums(runtime)) {}

 protected:
  Made Multiply(const ColumnMajorProduct& product, StreamView stream) override {
    const int64_t bias_step = product.step_bias * SizeOf(product.key.out);
    ANYORDER_CHECK((reinterpret_cast<uintptr_t>(product.bias) | bias_step) % kBiasAlignment == 0)
        << "a bias that the library would read unaligned";
    const bool sums = fuses_sums_ && product.sum != nullptr;
    if (sums) CheckSum(product);
    WithStorage(product.key.in, [&]<typename T>() {
      WithStorage(product.key.out, [&]<typename D>() {
        emulation::Enqueue(stream, [product, sums] {
          for (int64_t i = 0; i < product.key.batch; ++i) MultiplyLoops<T, D>(product, i);
          if (sums) SumLoops<T>(product);
        });
      });
    });
    return sums ? Made::kProductAndSum : Made::kProduct;
  }

 private:
  const bool fuses_sums_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GemmEngine>> MakeGemmEngine(Runtime& runtime, const GemmOptions&) {
  return std::make_unique<EmulatedGemm>(runtime);
}

}  // namespace anyorder::kernels::cuda
