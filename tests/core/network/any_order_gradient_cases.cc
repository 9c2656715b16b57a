// Gradients of today's any-order models: weights and divisors of their own, several slots at one
// position, groups.

#include "tests/core/network/gradient_fixture.h"

namespace anyorder::testing {
namespace {

GradientCase Case(const std::string& objective) {
  GradientCase value{objective};
  value.objective = objective;
  value.model.mem_len = 0;
  value.model.positions = Positions::kRope;
  value.model.rope_base = 50.0;
  value.model.segments = Segments::kNone;
  value.sampling.bidirectional = false;
  value.backward = {false, false};
  return value;
}

std::vector<GradientCase> Cases() {
  std::vector<GradientCase> cases = {Case("masked_diffusion"), Case("block_diffusion"),
                                     Case("eso_lm"), Case("a3"), Case("as_arm")};
  cases.front().sampling.any_order.random_length_prob = 1;
  cases[1].model.dropout = 0.125;
  cases[1].model.attention_dropout = 0.125;
  cases[2].sampling.any_order.eso_form = EsoForm::kA;
  cases[2].model.layer_norm = LayerNormPlace::kPre;
  return cases;
}

INSTANTIATE_TEST_SUITE_P(AnyOrder, GradientTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace anyorder::testing
