// The adaptive softmax against its definition (Grave et al. 2017, section 4), word by word in
// double, and its configuration.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/network/layers/adaptive.h"
#include "kernels/backend.h"
#include "tests/core/network/model_testing.h"
#include "tests/testing/forwarding_backend.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kVocab = 29;
constexpr int64_t kTargets = 40;

// How many logits a step computes at a time.
class LogitCountingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void LinearCrossEntropy(const kernels::LinearCrossEntropyArgs& args, StreamView stream) override {
    num_logits.push_back(args.x.dim(0) * args.weight.dim(0));
    ForwardingBackend::LinearCrossEntropy(args, stream);
  }
  std::vector<int64_t> num_logits;
};

struct Form {
  std::string name;
  int64_t div_val = 1;
  bool tie_projections = true;
  bool softmax_bias = true;
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class AdaptiveSoftmaxTest : public ::testing::TestWithParam<Form> {
 protected:
  AdaptiveSoftmaxTest()
      : shape_{Model(), BatchOf(), kVocab},
        layout_(shape_.model, kVocab),
        batch_(shape_.batch),
        flat_(InitialWeights(shape_.model, kVocab, 5)),
        x_(RandomVector(kTargets * shape_.model.model_dim, 6)) {
    for (size_t i = 0; i < batch_.labels.size(); ++i) {
      batch_.labels[i] = static_cast<int32_t>(i * 7 % kVocab);
      batch_.weights[i] = i % 5 == 0 ? 0.5f : 1.0f;
    }
    // Biases start at 0: give them something to do.
    for (const ParameterInfo& info : layout_.parameters()) {
      if (info.init != ParameterInit::kZeros) continue;
      const std::vector<double> values =
          RandomVector(info.shape.num_elements(), static_cast<uint64_t>(info.offset));
      std::copy(values.begin(), values.end(), flat_.begin() + info.offset);
    }
  }

  static ModelConfig Model() {
    ModelConfig model = SmallModel();
    model.softmax = Softmax::kAdaptive;
    model.cutoffs = "9, 14,20";
    model.div_val = GetParam().div_val;
    model.tie_projections = GetParam().tie_projections;
    model.softmax_bias = GetParam().softmax_bias;
    model.projection_init_range = 0.5;
    return model;
  }
  static BatchShape BatchOf() {
    return {.batch_size = 1,
            .content_rows = kTargets,
            .memory_rows = Model().mem_len,
            .targets = kTargets,
            .advance = 1,
            .num_distances = 1};
  }

  // Runs the head on x_ and returns its losses.
  std::vector<double> Losses(kernels::Backend& backend) {
    Activations activations;
    ANYORDER_CHECK_OK(activations.Allocate(shape_, backend));
    NetworkWeights weights;
    const NetworkGradients no_gradients;
    BindTensors(shape_, {ConstTensorView(flat_.data(), Shape{layout_.num_elements()})}, &weights);
    StepArgs args = {.batch = &batch_};
    DeviceInputs inputs;
    DeviceBatch device(shape_.batch, inputs);
    AdaptiveSoftmax softmax(shape_, inputs);
    ANYORDER_CHECK_OK(inputs.Allocate(backend));
    const StepContext context{shape_,  args,         activations, device,
                              weights, no_gradients, backend,     StreamView()};
    device.Set(batch_);
    softmax.SetInputs(batch_);
    inputs.Send(StreamView());
    softmax.Run(context, ConstTensorView(x_.data(), Shape{kTargets, shape_.model.model_dim}),
                TensorView());
    const double* const losses = activations.losses.data<double>();
    return {losses, losses + kTargets};
  }

  // Row `row` of a matrix among the parameters.
  std::vector<double> Row(const std::string& name, int64_t row) const {
    const ParameterInfo& info = layout_.Find(name);
    const double* const begin = flat_.data() + info.offset + row * info.shape[1];
    return {begin, begin + info.shape[1]};
  }
  double Bias(const std::string& name, int64_t index) const {
    return GetParam().softmax_bias ? flat_[layout_.Find(name).offset + index] : 0.0;
  }
  // x, or x . projection of the cluster.
  std::vector<double> Projected(const std::vector<double>& x, int cluster) const {
    if (GetParam().div_val == 1) return x;
    const bool own = cluster == 0 || !GetParam().tie_projections;
    const std::string name =
        absl::StrCat(own ? "crit.out_projs." : "transformer.word_emb.emb_projs.", cluster);
    std::vector<double> y(static_cast<size_t>(layout_.Find(name).shape[1]));
    for (size_t in = 0; in < x.size(); ++in) {
      const std::vector<double> row = Row(name, static_cast<int64_t>(in));
      for (size_t out = 0; out < y.size(); ++out) y[out] += x[in] * row[out];
    }
    return y;
  }
  static std::vector<double> LogSoftmax(std::vector<double> logits) {
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    for (double& logit : logits) logit -= std::log(sum);
    return logits;
  }
  static double Dot(const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  }
  // Of one cluster's own words.
  std::vector<double> Logits(const std::vector<double>& x, int cluster) const {
    const std::string layer = absl::StrCat("transformer.word_emb.emb_layers.", cluster, ".weight");
    std::vector<double> logits;
    for (int64_t word = 0; word < layout_.Find(layer).shape[0]; ++word)
      logits.push_back(Dot(Projected(x, cluster), Row(layer, word)) +
                       Bias(absl::StrCat("crit.out_layers.", cluster, ".bias"), word));
    return logits;
  }
  // log p of every word of the vocabulary after row `row` of x_.
  std::vector<double> LogProbabilities(int64_t row) const {
    const int64_t dim = shape_.model.model_dim;
    const std::vector<double> x(x_.begin() + row * dim, x_.begin() + (row + 1) * dim);
    std::vector<double> head = Logits(x, 0);
    const size_t num_head = head.size();
    for (int64_t tail = 0; tail < 3; ++tail)
      head.push_back(Dot(Projected(x, 0), Row("crit.cluster_weight", tail)) +
                     Bias("crit.cluster_bias", tail));
    head = LogSoftmax(head);
    std::vector<double> all(head.begin(), head.begin() + static_cast<int64_t>(num_head));
    for (int tail = 1; tail <= 3; ++tail) {
      for (const double word : LogSoftmax(Logits(x, tail)))
        all.push_back(head[num_head + static_cast<size_t>(tail) - 1] + word);
    }
    return all;
  }

  NetworkShape shape_;
  ParameterLayout layout_;
  Batch batch_;
  std::vector<double> flat_;
  std::vector<double> x_;
  std::unique_ptr<kernels::Backend> reference_ = kernels::MakeReferenceBackend();
};

// Losses stand in the readout's order, whatever clusters the labels are of.
TEST_P(AdaptiveSoftmaxTest, EachLossIsThatOfTheDefinition) {
  const std::vector<double> losses = Losses(*reference_);
  for (int64_t row = 0; row < kTargets; ++row) {
    const std::vector<double> log_p = LogProbabilities(row);
    ASSERT_EQ(static_cast<int64_t>(log_p.size()), kVocab);
    double total = 0;
    for (const double value : log_p) total += std::exp(value);
    EXPECT_NEAR(total, 1.0, 4 * kVocab * std::numeric_limits<double>::epsilon());
    // Sums of at most 8 products twice over, and of 12 exponentials, a few nats large.
    EXPECT_NEAR(losses[row], -log_p[batch_.labels[row]],
                64 * std::numeric_limits<double>::epsilon() * (1 + losses[row]))
        << "row " << row << ", label " << batch_.labels[row];
  }
}

TEST_P(AdaptiveSoftmaxTest, EntriesWithoutWeightHaveNoLossWhateverTheirLabel) {
  const std::vector<double> before = Losses(*reference_);
  for (const size_t row : {0, 17, 39}) {
    batch_.weights[row] = 0;
    batch_.labels[row] = row == 17 ? -7 : 1000;
  }
  const std::vector<double> after = Losses(*reference_);
  for (size_t row = 0; row < after.size(); ++row)
    EXPECT_EQ(after[row], batch_.weights[row] == 0 ? 0 : before[row]) << row;
}

TEST_P(AdaptiveSoftmaxTest, NoRowMeetsTheWholeVocabulary) {
  LogitCountingBackend backend(kernels::MakeReferenceBackend());
  Losses(backend);
  // The head's 9 words and 3 clusters for all; 5, 6 and 9 words for the rows whose label is there,
  // filled up to 64.
  EXPECT_THAT(backend.num_logits, ::testing::ElementsAre(kTargets * 12, 64 * 5, 64 * 6, 64 * 9));
  for (int32_t& label : batch_.labels) label = label % 9;
  backend.num_logits.clear();
  Losses(backend);
  EXPECT_THAT(backend.num_logits, ::testing::ElementsAre(kTargets * 12));
}

INSTANTIATE_TEST_SUITE_P(Forms, AdaptiveSoftmaxTest,
                         ::testing::Values(Form{"one_size"},
                                           Form{"one_size_without_bias", 1, true, false},
                                           Form{"projected", 2}, Form{"projected_untied", 2, false},
                                           Form{"projected_without_bias", 2, true, false}),
                         [](const auto& info) { return info.param.name; });

ModelConfig WithCutoffs(const std::string& cutoffs) {
  return {.softmax = Softmax::kAdaptive, .cutoffs = cutoffs};
}

TEST(AdaptiveClustersTest, CutTheVocabularyAndItsDimensions) {
  ModelConfig model = WithCutoffs("20000, 40000,200000");
  SetKeys("model_dim = 410, div_val = 4", model);
  const std::vector<AdaptiveCluster> clusters = AdaptiveClusters(model, 267735);
  ASSERT_EQ(clusters.size(), 4u);
  const int64_t expected[4][3] = {
      {0, 20000, 410}, {20000, 40000, 102}, {40000, 200000, 25}, {200000, 267735, 6}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(clusters[i].begin, expected[i][0]);
    EXPECT_EQ(clusters[i].end, expected[i][1]);
    EXPECT_EQ(clusters[i].dim, expected[i][2]);
  }
  EXPECT_TRUE(AdaptiveClusters(ModelConfig(), 100).empty());
}

TEST(AdaptiveClustersTest, FaultsAreNamed) {
  const auto fault = [](const ModelConfig& model) { return model.Validate().Joined(); };
  EXPECT_EQ(fault(WithCutoffs("10")), "");
  for (const auto& [cutoffs, part] : {std::pair{"", "say where clusters of rarer words begin"},
                                      {"10,x", "'x' is not a positive number"},
                                      {"10,", "'' is not a positive number"},
                                      {"0,10", "'0' is not a positive number"},
                                      {"10,99999999999", "'99999999999' is not a positive number"},
                                      {"10,10", "where 10 does not come after 10"},
                                      {"10,30,20", "where 20 does not come after 30"}})
    EXPECT_THAT(fault(WithCutoffs(cutoffs)), HasSubstr(part));
  ModelConfig model = WithCutoffs("10,20");
  model.softmax = Softmax::kFull;
  EXPECT_THAT(fault(model), HasSubstr("but model.softmax is full"));
  model.cutoffs = "";
  model.div_val = 4;
  EXPECT_THAT(fault(model), HasSubstr("model.div_val is 4 but model.softmax is full"));
  model = WithCutoffs("10,20,30,40");
  model.div_val = 6;
  EXPECT_THAT(fault(model), HasSubstr("leaves cluster 4 less than one dimension"));
  model.div_val = 0;
  EXPECT_THAT(fault(model), HasSubstr("model.div_val is 0"));
  SetKeys("div_val = 1, projection_init_range = 0", model);
  EXPECT_THAT(fault(model), HasSubstr("model.projection_init_range is 0"));
}

TEST(AdaptiveClustersTest, CutoffsMustLieInTheVocabulary) {
  EXPECT_TRUE(CheckAdaptiveClusters(WithCutoffs("10,20"), 21).ok());
  EXPECT_THAT(CheckAdaptiveClusters(WithCutoffs("10,20"), 20),
              Says("the vocabulary has only 20 entries"));
}

}  // namespace
}  // namespace anyorder::testing
