// Networks with a weight that is not a number: every way to write or to score a text ends with an
// error that says so, whichever logit shows it.

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "core/generate/slot_network.h"
#include "core/network/tensors/parameters.h"
#include "tests/core/generate/any_order/canvas_cases.h"
#include "tests/core/generate/any_order/likelihood_cases.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::testing {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

void ExpectSaysSo(const absl::Status& status) {
  EXPECT_THAT(status, Fails(absl::IsFailedPrecondition, "logits are not finite",
                            "choose an earlier checkpoint (--step)"));
}

// A weight in the middle, which all rows pass.
void Damage(CanvasModel& model, double value) { model.weights[model.weights.size() / 2] = value; }

TEST(DamagedWeightsTest, EveryMethodEndsWithAnError) {
  RandomStream random(82, RandomPurpose::kPairs, 0, 0);
  for (CanvasModel model : AllCanvasModels()) {
    SCOPED_TRACE(model.name);
    const std::vector<Canvas> canvases = RandomCanvases(model, random, /*is_rounded=*/true);
    Damage(model, random.Below(2) == 0 ? kNotANumber : kInfinite);
    const StoredModel stored(model);
    for (const WriteMethod method : MethodsOf(model.form)) {
      const WriteOptions options = RandomOptions(model, method, random);
      SCOPED_TRACE(Described(options));
      ExpectSaysSo(WriteBlanks(*stored, canvases, options, NobodyListens).status());
    }
  }
}

TEST(DamagedWeightsTest, EveryLikelihoodEndsWithAnError) {
  using likelihood_test::BlocksOf;
  for (const likelihood_test::Case& one :
       {likelihood_test::Case{"as_arm", "as_arm", BackboneXlnet},
        likelihood_test::Case{"sigma_gpt", "sigma_gpt", BackbonePairs},
        likelihood_test::Case{"causal", "causal_lm", BackboneRope},
        likelihood_test::Case{"masked", "masked_diffusion", BackboneRope},
        likelihood_test::Case{"blocks", "block_diffusion", BackboneRope, BlocksOf(4)},
        likelihood_test::Case{"eso", "eso_lm", BackboneRope,
                              likelihood_test::Eso(EsoForm::kB, 0.5)}}) {
    SCOPED_TRACE(one.name);
    CanvasModel model = one.Make();
    const std::vector<ScoredText> texts = likelihood_test::RandomTexts(model.form, 3, 83);
    Damage(model, kNotANumber);
    ExpectSaysSo(likelihood_test::TryScore(model, texts).status());
  }
}

// The text whose token has no embedding, and no other.
TEST(DamagedWeightsTest, OnlyTheRowsThatItReachesAreRefused) {
  CanvasModel model = MakeCanvasModel("token", MakeLlama, MaskedForm());
  constexpr int32_t kDamaged = 7;
  const ParameterLayout layout(model.model, model.vocab_size);
  model.weights[layout.Find("transformer.word_embedding.weight").offset +
                kDamaged * model.model.model_dim] = kNotANumber;
  const test::HostTensor weights = test::TensorOf(DType::kFloat64, model.weights);
  const std::unique_ptr<SlotNetwork> network =
      SlotNetwork::Create(model.model, model.vocab_size, weights.view(),
                          {.lanes = 3, .key_slots = 8, .span = 16, .cached = false},
                          SharedReference())
          .value();
  const auto pass = [](int32_t second) {
    return LanePass{.passing = {RankedSlot(5, 9, 0), RankedSlot(second, 11, 1)}, .reads = {0, 1}};
  };
  ASSERT_TRUE(network->Run({pass(6), pass(kDamaged), pass(8)}).ok());
  std::vector<double> logits;
  for (const int64_t lane : {0, 1, 2}) {
    EXPECT_TRUE(network->ReadRow(lane, 0, &logits).ok());
    EXPECT_EQ(network->ReadRow(lane, 1, &logits).ok(), lane != 1);
  }
}

// One that is not finite, at every place.
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
