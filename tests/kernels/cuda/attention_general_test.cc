// The GPU's general attention, emulated, against the reference in double: every objective's visibility in both precisions.

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/block.h"
#include "kernels/cuda/operations.h"
#include "tests/kernels/attention_agreement.h"
#include "tests/kernels/attention_scenarios.h"

namespace anyorder::kernels::testing {
namespace {

template <typename T>
void RunEmulated(AttentionData<T, float>* data, uint64_t schedule) {
  std::vector<float> scratch(static_cast<size_t>(cuda::AttentionScratchElements(data->shape)),
                             std::numeric_limits<float>::quiet_NaN());
  data->Poison(0);
  cuda::emulation::SetSchedule({schedule});
  cuda::AttentionForward(
      data->Forward(), {scratch.data(), static_cast<int64_t>(scratch.size())}, {});
}

template <typename T>
void ExpectAgrees(const AttentionCase& c, uint64_t seed) {
  SCOPED_TRACE(c.name + ", " + std::string(Name(DTypeOf<T>::kValue)));
  AttentionData<T, float> data = MakeData<T, float>(c, seed);
  const AttentionData<double, double> exact = RunReference(InDouble(data));
  const AttentionErrorAnalysis analysis(exact, kUnitOf<T>);
  RunEmulated(&data, seed);
  ExpectForwardWithin(data, exact, analysis.bounds());
}

void ExpectAgreesEverywhere(AttentionCase c) {
  c.dropout_rate = 0.0;
  ExpectAgrees<float>(c, 21);
  c.dropout_rate = 0.1;
  ExpectAgrees<BFloat16>(c, 22);
}

TEST(GeneralAttentionTest, XlnetWithMemoryAndBothDirections) {
  ExpectAgreesEverywhere(XlnetCase(40, 70, 2, 24));
}
TEST(GeneralAttentionTest, RandomArrays) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const AttentionCase c = RandomCase(seed);
    ExpectAgrees<float>(c, seed);
    ExpectAgrees<BFloat16>(c, seed);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace anyorder::kernels::testing
