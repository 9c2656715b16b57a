// Mistakes of each kind, planted in what the reference gets or returns, and which switch and
// pattern they are blamed on.

#include "tests/gpu/attention_bisection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>
#include <vector>

#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What a switch prints.
std::string Output(kernels::Backend& device, const std::string& name) {
  const std::vector<std::string> names = BisectionSwitches();
  const auto at = std::find(names.begin(), names.end(), name);
  EXPECT_NE(at, names.end()) << name;
  const auto number = static_cast<int>(at - names.begin());
  std::ostringstream out;
  const bool agrees = BisectAttention(device, number, number + 1, out);
  EXPECT_EQ(agrees, out.str().find("\"passed\": false") == std::string::npos) << out.str();
  return out.str();
}

// Changes what forward made, in bf16 alone.
class ChangedOut final : public ForwardingBackend {
 public:
  using Change = std::function<void(const kernels::AttentionForwardArgs&, BFloat16* out)>;
  explicit ChangedOut(Change change)
      : ForwardingBackend(kernels::MakeReferenceBackend()), change_(std::move(change)) {}
  void AttentionForward(const kernels::AttentionForwardArgs& args, StreamView stream) override {
    ForwardingBackend::AttentionForward(args, stream);
    if (args.out.dtype() == DType::kBFloat16) change_(args, args.out.data<BFloat16>());
  }

 private:
  const Change change_;
};

// Takes each position's row of the relative table for its neighbour's, in bf16 alone.
class ShiftedBand final : public ForwardingBackend {
 public:
  ShiftedBand() : ForwardingBackend(kernels::MakeReferenceBackend()) {}
  void AttentionForward(const kernels::AttentionForwardArgs& args, StreamView stream) override {
    const ConstTensorView& relative = args.in.relative;
    if (args.out.dtype() != DType::kBFloat16 || relative.is_null())
      return ForwardingBackend::AttentionForward(args, stream);
    const auto* const rows = relative.data<BFloat16>();
    std::vector<BFloat16> table(rows, rows + relative.num_elements());
    std::rotate(table.begin(), table.begin() + args.in.shape.model_dim(), table.end());
    kernels::AttentionForwardArgs shifted = args;
    shifted.in.relative = ConstTensorView(table.data(), relative.dtype(), relative.shape());
    ForwardingBackend::AttentionForward(shifted, stream);
  }
};

TEST(AttentionBisectionTest, TheReferenceAgreesFromTheSimplestCaseToTheWhole) {
  EXPECT_EQ(BisectionSwitches().front(), "general forward, one tile");
  EXPECT_EQ(BisectionSwitches().back(), "ring backward, +dropout");
  const auto reference = kernels::MakeReferenceBackend();
  EXPECT_THAT(Output(*reference, "general backward, +tiles and heads"),
              AllOf(HasSubstr("\"tensor\": \"dq\""),
                    HasSubstr("\nattention agrees with the reference in every switch\n")));
}

TEST(AttentionBisectionTest, SwappedColumnsAreNamed) {
  ChangedOut device([](const kernels::AttentionForwardArgs& args, BFloat16* out) {
    for (int64_t i = 0; i < args.out.num_elements(); i += 8) std::swap(out[i + 2], out[i + 3]);
  });
  EXPECT_THAT(Output(device, "ring forward, one tile"),
              AllOf(HasSubstr("\nfirst failing switch: ring forward, one tile: out: wrong: "),
                    HasSubstr("; column mod 8: 2, 3;")));
}

TEST(AttentionBisectionTest, ALittleTooMuchOfEverythingIsAQuestionOfPrecision) {
  ChangedOut device([](const kernels::AttentionForwardArgs& args, BFloat16* out) {
    for (int64_t i = 0; i < args.out.num_elements(); ++i)
      out[i] = BFloat16(static_cast<float>(out[i]) * 1.02f);
  });
  EXPECT_THAT(Output(device, "ring forward, one tile"), HasSubstr("out: precision: no element"));
}

TEST(AttentionBisectionTest, NumbersThatComeAndGoAreARaceAndNaNIsPrintedAsNull) {
  int call = 0;
  ChangedOut device([&call](const kernels::AttentionForwardArgs&, BFloat16* out) {
    out[77] = BFloat16(NAN);
    if (++call == 2) out[78] = BFloat16(0.0f);
  });
  EXPECT_THAT(
      Output(device, "ring forward, one tile"),
      AllOf(HasSubstr("out: race: differs between two runs (1 of "), HasSubstr("\"found\": null")));
}

// Positions come in only with their switch.
TEST(AttentionBisectionTest, AShiftedBandIsBlamedOnThePosition) {
  ShiftedBand device;
  EXPECT_THAT(Output(device, "ring forward, +mixed visibility"), HasSubstr("agrees with"));
  EXPECT_THAT(Output(device, "ring forward, +position"),
              HasSubstr("\nfirst failing switch: ring forward, +position: out: "));
}

}  // namespace
}  // namespace anyorder::testing
