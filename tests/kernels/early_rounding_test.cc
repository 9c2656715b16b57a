// The bound of products for libraries that round twice (Backend::RoundsProductFirst), held against
// two pretended ones that do what cuBLASLt was seen to do on an H100: the real one has no test
// without a GPU.

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/backend_fixture.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::kernels {
namespace {

enum class Last { kOld, kBias };

// Adds one term to what it has rounded.
class EarlyRounding final : public anyorder::testing::ForwardingBackend {
 public:
  EarlyRounding(Last last, bool is_admitted)
      : ForwardingBackend(MakeReferenceBackend()), last_(last), is_admitted_(is_admitted) {}

  bool RoundsProductFirst() const override { return is_admitted_; }

  void Gemm(const GemmArgs& args, StreamView stream) override {
    const bool has_last = last_ == Last::kOld ? args.beta != 0 : !args.bias.is_null();
    if (args.c.dtype() != DType::kBFloat16 || !has_last)
      return ForwardingBackend::Gemm(args, stream);
    auto* const c = args.c.data<BFloat16>();
    const std::vector<BFloat16> old(c, c + args.c.num_elements());
    GemmArgs first = args;
    if (last_ == Last::kOld)
      first.beta = 0;
    else
      first.bias = {};
    ForwardingBackend::Gemm(first, stream);
    const int64_t columns = NumColumns(args.c);
    for (size_t i = 0; i < old.size(); ++i) {
      const BFloat16 term = last_ == Last::kOld
                                ? old[i]
                                : args.bias.data<BFloat16>()[static_cast<int64_t>(i) % columns];
      c[i] = BFloat16(static_cast<float>(c[i]) + static_cast<float>(term));
    }
  }

 private:
  const Last last_;
  const bool is_admitted_;
};

void Check(Last last, bool is_admitted) {
  EarlyRounding library(last, is_admitted);
  const auto reference = MakeReferenceBackend();
  for (const GemmSizes size : {GemmSizes{64, 128, 96}, GemmSizes{40, 65, 33}, GemmSizes{3, 5, 7}})
    CheckProducts(library, *reference, size, DType::kBFloat16);
}

TEST(EarlyRoundingTest, IsWithinTheBoundOfThoseThatAdmitItAndOutsideOfOthers) {
  for (const Last last : {Last::kOld, Last::kBias}) {
    Check(last, /*is_admitted=*/true);
    ::testing::TestPartResultArray failures;
    {
      const ::testing::ScopedFakeTestPartResultReporter reporter(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      Check(last, /*is_admitted=*/false);
    }
    EXPECT_GT(failures.size(), 0);
  }
}

}  // namespace
}  // namespace anyorder::kernels
