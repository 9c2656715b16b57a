// Low-rank adapters against the network that they are merged into, in fp64 on the reference
// backend: every case of GradientTest, with adapters on all projections and some tensors trained
// whole.

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

#include "tests/core/network/gradient_fixture.h"

namespace anyorder::testing {
namespace {

// An adapter, and the projection that it belongs to.
struct AdapterPair {
  ParameterInfo a, b, projection;
  bool input_first = false;  // the projection is stored [in, out]

  int64_t rank() const { return a.shape[0]; }
  int64_t in() const { return a.shape[1]; }
  int64_t out() const { return b.shape[0]; }
  // Of the projection's element that input `i` has in output `o`.
  int64_t At(int64_t o, int64_t i) const {
    return projection.offset + (input_first ? i * out() + o : o * in() + i);
  }
};

std::vector<AdapterPair> PairsOf(const ParameterLayout& adapted, const ParameterLayout& plain) {
  std::vector<AdapterPair> pairs;
  for (const ParameterInfo& info : adapted.parameters()) {
    std::string name = info.name;
    if (!absl::EndsWith(name, kAdapterA)) continue;
    name = std::string(absl::StripSuffix(name, kAdapterA));
    AdapterPair pair{info, adapted.Find(name + kAdapterB),
                     plain.Find(plain.Contains(name) ? name : name + ".weight")};
    // q, k, v and r multiply from the right; o and feed-forward layers transposed.
    pair.input_first = name.find("rel_attn") != std::string::npos && !absl::EndsWith(name, ".o");
    pairs.push_back(pair);
  }
  return pairs;
}

class AdapterTest : public GradientTest {
 protected:
  AdapterTest() : adapted_(GetParam().model) {
    adapted_.lora = SmallAdapters();
    // What these models do not have is no fault here: the configuration refuses it.
    const ParameterLayout layout(adapted_, kSmallVocab);
    trained_ = PartOfWhole(layout);
  }
  // The trained weights: those of the whole network that are trained, and random adapters.
  std::vector<double> PartOfWhole(const ParameterLayout& layout) const {
    std::vector<double> trained;
    for (const ParameterInfo& info : layout.parameters()) {
      const bool is_adapter = info.name.find(".lora_") != std::string::npos;
      const std::vector<double> values =
          is_adapter ? RandomVector(info.shape.num_elements(), 70 + info.offset)
                     : PartOf(weights_, GetParam().model, kSmallVocab, {info});
      for (const double value : values) trained.push_back(is_adapter ? 0.3 * value : value);
    }
    return trained;
  }
  std::vector<double> Merged(const std::vector<AdapterPair>& pairs) const {
    std::vector<double> merged = weights_;
    for (const AdapterPair& pair : pairs)
      for (int64_t o = 0; o < pair.out(); ++o)
        for (int64_t i = 0; i < pair.in(); ++i)
          for (int64_t r = 0; r < pair.rank(); ++r)
            merged[pair.At(o, i)] += adapted_.lora.scale() * B(pair, o, r) * A(pair, r, i);
    return merged;
  }
  double A(const AdapterPair& pair, int64_t r, int64_t i) const {
    return trained_[pair.a.offset + r * pair.in() + i];
  }
  double B(const AdapterPair& pair, int64_t o, int64_t r) const {
    return trained_[pair.b.offset + o * pair.rank() + r];
  }

  ModelConfig adapted_;
  std::vector<double> trained_;
};

// By the chain rule: with dW the gradient of the merged projection, that of B is s dW A^T and that
// of A is s B^T dW. What is trained whole has the merged network's gradient.
TEST_P(AdapterTest, LossAndGradientsAreThoseOfTheMergedNetwork) {
  ModelRunner runner(adapted_, kSmallVocab, batch_->shape);
  const std::vector<AdapterPair> pairs = PairsOf(runner.layout(), runner_->layout());
  ASSERT_FALSE(pairs.empty());
  runner.set_frozen(PartOf(weights_, GetParam().model, kSmallVocab, runner.layout().frozen()));
  const ModelRunner::Result result = runner.Run(*batch_, trained_, memory_, true);
  const ModelRunner::Result whole = runner_->Run(*batch_, Merged(pairs), memory_, true);
  // Sums of a few hundred terms, through a few layers.
  const double rounding = 1e5 * std::numeric_limits<double>::epsilon();
  EXPECT_NEAR(result.step.loss_sum, whole.step.loss_sum, rounding * whole.step.loss_sum);
  const double size = Norm(whole.gradients);
  std::vector<double> expected(result.gradients.size());
  const double scale = adapted_.lora.scale();
  for (const AdapterPair& pair : pairs) {
    for (int64_t o = 0; o < pair.out(); ++o) {
      for (int64_t i = 0; i < pair.in(); ++i) {
        const double dw = scale * whole.gradients[pair.At(o, i)];
        for (int64_t r = 0; r < pair.rank(); ++r) {
          expected[pair.b.offset + o * pair.rank() + r] += dw * A(pair, r, i);
          expected[pair.a.offset + r * pair.in() + i] += dw * B(pair, o, r);
        }
      }
    }
  }
  for (const ParameterInfo& info : runner.layout().parameters()) {
    if (info.name.find(".lora_") == std::string::npos) {
      const std::vector<double> part =
          PartOf(whole.gradients, GetParam().model, kSmallVocab, {info});
      std::copy(part.begin(), part.end(), expected.begin() + info.offset);
    }
    EXPECT_LE(Distance(ElementsOf(info, result.gradients), ElementsOf(info, expected)),
              rounding * size)
        << info.name;
  }
}

// The two spaces are the whole network, each parameter once.
TEST_P(AdapterTest, WhatIsNotTrainedIsFrozen) {
  const ParameterLayout adapted(adapted_, kSmallVocab), plain(GetParam().model, kSmallVocab);
  int64_t adapters = 0;
  for (const ParameterInfo& info : adapted.parameters()) {
    if (!plain.Contains(info.name)) adapters += info.shape.num_elements();
  }
  for (const ParameterInfo& info : adapted.frozen()) {
    EXPECT_TRUE(plain.Contains(info.name) && !adapted.Contains(info.name)) << info.name;
    EXPECT_FALSE(IsHeadParameter(info.name)) << info.name;
  }
  EXPECT_EQ(adapted.num_elements() + adapted.num_frozen_elements(),
            plain.num_elements() + adapters);
}

std::vector<GradientCase> AdapterCases() {
  std::vector<GradientCase> cases = AllCases();
  std::erase_if(cases, [](const GradientCase& one) { return one.model.adaptive(); });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, AdapterTest, ::testing::ValuesIn(AdapterCases()), NameOf);

}  // namespace
}  // namespace anyorder::testing
