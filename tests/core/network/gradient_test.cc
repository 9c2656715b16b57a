// Every parameter tensor of XLNet's, Transformer-XL's and the DAE's networks;
// *_gradient_cases.cc have the others.

#include <algorithm>

#include "core/base/philox.h"
#include "tests/core/network/gradient_fixture.h"
#include "tests/testing/fenced_backend.h"

namespace anyorder::testing {
namespace {

TEST_P(GradientTest, EveryTensorAgreesWithFiniteDifferences) {
  RandomStream random(5, RandomPurpose::kPairs, 0, 0);
  for (const ParameterInfo& info : runner_->layout().parameters()) {
    const int64_t size = info.shape.num_elements();
    ExpectDerivative(RandomVector(size, static_cast<uint64_t>(info.offset)), info.offset,
                     info.name);
    for (int i = 0; i < 2; ++i) {
      const int64_t element = random.Below(static_cast<uint32_t>(size));
      ExpectDerivative({1.0}, info.offset + element, info.name + " at " + std::to_string(element));
    }
  }
}

TEST_P(GradientTest, OnlyTensorsOutOfUseHaveNoGradient) {
  for (const ParameterInfo& info : runner_->layout().parameters()) {
    const std::vector<double> gradient = ElementsOf(info, result_.gradients);
    const ModelConfig& model = GetParam().model;
    // A key's bias adds the same to all scores of a row, unless it is turned by the key's position.
    const bool unused = (info.name == "transformer.mask_emb" && batch_->shape.query_rows == 0) ||
                        (info.name.ends_with("k_bias") && model.positions != Positions::kRope);
    if (unused || GetParam().unused(info.name)) {
      // What cancels only in exact arithmetic leaves roundings of a loss of some nats.
      EXPECT_LT(Norm(gradient), 1e-12) << info.name;
    } else {
      EXPECT_GT(Norm(gradient), 1e-4) << info.name << ": the test would not notice an error";
    }
  }
}

// On a device there is no host memory in any call, and nothing is read before it is there.
TEST_P(GradientTest, TheSameBitsInMemoryThatIsNotTheHosts) {
  const GradientCase& param = GetParam();
  FencedBackend fenced(kernels::MakeReferenceBackend());
  ModelRunner runner(param.model, kSmallVocab, batch_->shape, fenced);
  ExpectSameBits(runner.Run(*batch_, weights_, memory_, true), result_);
  ExpectSameBits(runner.Run(*batch_, weights_, memory_, false),
                 runner_->Run(*batch_, weights_, memory_, false));
}

TEST_P(GradientTest, WhatIsSaidToBeReadyIsFinal) {
  std::vector<int64_t> begins;
  std::vector<std::vector<double>> seen;
  runner_->set_watcher([&](int64_t begin, const std::vector<double>& gradients) {
    begins.push_back(begin);
    seen.push_back(gradients);
  });
  const ModelRunner::Result result = runner_->Run(*batch_, weights_, memory_, true);
  // Each layer, what comes after them, and the rest.
  ASSERT_EQ(static_cast<int64_t>(begins.size()), GetParam().model.num_layers + 2);
  EXPECT_LE(begins.front(), runner_->layout().num_elements());
  EXPECT_EQ(begins.back(), 0);
  for (size_t i = 0; i < begins.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(begins[i], begins[i - 1]);
    }
    const int64_t begin = begins[i];
    EXPECT_TRUE(std::equal(result.gradients.begin() + begin, result.gradients.end(),
                           seen[i].begin() + begin))
        << "from element " << begin << " on";
  }
}

}  // namespace

std::vector<GradientCase> ModelCases() {
  std::vector<GradientCase> cases;
  cases.push_back({"permutation"});
  cases.push_back({"permutation_with_dropout", "permutation_lm", WithDropout(SmallModel(), 0.25)});
  cases.push_back(
      {"permutation_shared_biases", "permutation_lm", With(SmallModel(), "untie_r = false")});
  cases.push_back(
      {"permutation_without_memory", "permutation_lm", With(SmallModel(), "mem_len = 0")});
  cases.push_back({"permutation_zeros_as_first_memory", "permutation_lm",
                   With(SmallModel(), "initial_memory = zeros")});
  cases.back().step = 0;
  cases.push_back({"permutation_relu_clamped_backward_only", "permutation_lm",
                   With(SmallModel(), "activation = relu, clamp_len = 5")});
  cases.back().backward = {true, true};
  cases.push_back({"permutation_without_segments", "permutation_lm",
                   With(SmallModel(), "segments = none, activation = gelu_erf")});
  cases.push_back({"permutation_with_grouped_queries_and_content_readout"});
  cases.back().change = WithGroupedQueries;
  cases.back().model.dropout = 0.125;
  cases.push_back({"permutation_with_next_sentence"});
  cases.back().model.next_sentence_head = true;
  cases.back().model.dropout = 0.125;
  cases.push_back({"dae_with_next_sentence", "dae"});
  cases.back().model.next_sentence_head = true;
  cases.push_back({"dae", "dae", WithDropout(SmallModel())});
  cases.push_back(
      {"dae_one_layer_without_memory", "dae", With(SmallModel(), "num_layers = 1, mem_len = 0")});
  cases.back().backward = {true, true};
  // No segment term where all segments are equal: it shifts every score alike and has no gradient.
  ModelConfig causal = SmallModel();
  causal.segments = Segments::kNone;
  cases.push_back({"causal", "causal_lm", causal});
  cases.push_back(
      {"causal_as_transformer_xl", "causal_lm",
       With(causal,
            "untie_r = false, scale_embedding = true, activation = relu, dropout = 0.125")});
  cases.push_back({"causal_one_layer_without_memory", "causal_lm",
                   With(causal, "num_layers = 1, mem_len = 0")});
  return cases;
}

namespace {

INSTANTIATE_TEST_SUITE_P(Models, GradientTest, ::testing::ValuesIn(ModelCases()), NameOf);

}  // namespace
}  // namespace anyorder::testing
