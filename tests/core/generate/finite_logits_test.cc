// Logits with one that is not finite, at every place.

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/base/philox.h"
#include "core/generate/slot_network.h"

namespace anyorder::testing {
namespace {

template <typename T>
void ExpectOnlyFiniteLogitsPass() {
  using Limits = std::numeric_limits<T>;
  constexpr int64_t kVocab = 37;
  RandomStream random(81, RandomPurpose::kInit, 0, 0);
  std::vector<T> logits(kVocab);
  for (T& logit : logits) logit = static_cast<T>(30 * random.Normal());
  logits[3] = Limits::max();
  logits[4] = Limits::lowest();
  logits[5] = Limits::denorm_min();
  const auto check = [&] { return CheckFinite(ConstTensorView(logits.data(), {kVocab})); };
  ASSERT_TRUE(check().ok());
  for (T& logit : logits) {
    for (const T bad :
         {Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
      const T before = logit;
      logit = bad;
      EXPECT_EQ(check().code(), absl::StatusCode::kFailedPrecondition) << bad;
      logit = before;
    }
  }
  EXPECT_TRUE(check().ok());
}

TEST(CheckFiniteTest, RefusesWhatIsNotANumber) {
  ExpectOnlyFiniteLogitsPass<float>();
  ExpectOnlyFiniteLogitsPass<double>();
}

}  // namespace
}  // namespace anyorder::testing
