#include <cstdint>

#include "core/base/check.h"
#include "kernels/cuda/emulation/stream.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/storage.h"

namespace anyorder::kernels::cuda {
namespace {

// What a library does with the description that it gets, in double.
template <typename T, typename D>
void MultiplyLoops(const ColumnMajorProduct& p) {
  const auto* a = static_cast<const T*>(p.a);
  const auto* b = static_cast<const T*>(p.b);
  const auto* bias = static_cast<const D*>(p.bias);
  auto* d = static_cast<D*>(p.d);
  for (int64_t column = 0; column < p.columns; ++column) {
    for (int64_t row = 0; row < p.rows; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < p.inner; ++i) {
        const T x = p.transpose_a ? a[row * p.stride_a + i] : a[i * p.stride_a + row];
        const T y = p.transpose_b ? b[i * p.stride_b + column] : b[column * p.stride_b + i];
        sum += double{ToFloat(x)} * double{ToFloat(y)};
      }
      if (bias != nullptr) sum += ToFloat(bias[row]);
      D& result = d[column * p.stride_d + row];
      if (p.key.accumulates) sum += ToFloat(result);
      result = D(static_cast<float>(sum));
    }
  }
}

class EmulatedGemm final : public GemmEngine {
 public:
  explicit EmulatedGemm(Runtime& runtime) : GemmEngine(runtime) {}

 protected:
  bool Multiply(const ColumnMajorProduct& product, StreamView stream) override {
    ANYORDER_CHECK(reinterpret_cast<uintptr_t>(product.bias) % kBiasAlignment == 0)
        << "a bias that the library would read unaligned";
    WithStorage(product.key.in, [&]<typename T>() {
      WithStorage(product.key.out, [&]<typename D>() {
        emulation::Enqueue(stream, [product] { MultiplyLoops<T, D>(product); });
      });
    });
    return true;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<GemmEngine>> MakeGemmEngine(Runtime& runtime, const GemmOptions&) {
  return std::make_unique<EmulatedGemm>(runtime);
}

}  // namespace anyorder::kernels::cuda
