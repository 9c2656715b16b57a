// The reference's gradients are those of its own forward functions: finite differences in fp64.

#include "kernels/backend.h"
#include "tests/testing/finite_difference.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::kernels {
namespace {

using test::HostTensor;
using test::RandomTensor;

constexpr DType kGradientType = DType::kFloat64;
constexpr int64_t kRows = 4;
constexpr int64_t kColumns = 11;

double WeightedSum(const HostTensor& values, const HostTensor& weights) {
  return test::WeightedSum(values.Values(), weights.Values());
}
double WeightedSum(const HostTensor& values, const std::vector<float>& weights) {
  return test::WeightedSum(values.Values(), {weights.begin(), weights.end()});
}

class ReferenceGradientTest : public ::testing::Test {
 protected:
  using Map = std::function<void(const HostTensor&, HostTensor&)>;

  HostTensor Matrix(uint64_t seed) { return RandomTensor(kGradientType, {kRows, kColumns}, seed); }
  HostTensor Vector(uint64_t seed) { return RandomTensor(kGradientType, {kColumns}, seed); }

  static void ExpectGradient(HostTensor& x, const HostTensor& dx,
                             const std::function<double()>& loss, double magnitude,
                             const char* what) {
    test::ExpectGradient(absl::MakeSpan(x.view().data<double>(), x.size()), dx.Values(), loss,
                         magnitude, what);
  }
  // `forward` makes y of x, `backward` dx of dy, all of one shape.
  static void CheckMap(HostTensor x, const Map& forward, const Map& backward, const char* what) {
    const HostTensor dy = RandomTensor(kGradientType, x.shape(), 2);
    HostTensor y(kGradientType, x.shape()), dx = y;
    backward(dy, dx);
    const auto loss = [&] {
      forward(x, y);
      return WeightedSum(y, dy);
    };
    ExpectGradient(x, dx, loss, test::SumOfMagnitudes(dy.Values()) * 5, what);
  }

  std::unique_ptr<Backend> backend_ = MakeReferenceBackend();
  const Dropout dropout_ = MakeDropout(11, 5, 3, 0.3);
  const std::vector<int32_t> row_ids_ = test::RowIds(kRows);
};

TEST_F(ReferenceGradientTest, Activation) {
  for (const Activation activation : {Activation::kGeluTanh, Activation::kGeluErf,
                                      Activation::kRelu, Activation::kSilu, Activation::kTanh}) {
    HostTensor x = Matrix(1);
    // No element may cross the corner of ReLU within a step.
    for (int64_t i = 0; i < x.size(); ++i) {
      if (std::fabs(x.At(i)) < 0.01) x.Set(i, 0.5);
    }
    const auto forward = [&](const HostTensor& of, HostTensor& y) {
      backend_->ActivationForward({activation, of.view(), dropout_, row_ids_.data(), y.view()}, {});
    };
    const auto backward = [&](const HostTensor& dy, HostTensor& dx) {
      backend_->ActivationBackward(
          {activation, x.view(), dy.view(), dropout_, row_ids_.data(), dx.view()}, {});
    };
    CheckMap(x, forward, backward, "activation");
  }
}

TEST_F(ReferenceGradientTest, GatedActivation) {
  HostTensor x = Matrix(1), factor = Matrix(2), y = x, dx = x, dfactor = x;
  const HostTensor dy = Matrix(3);
  const auto loss = [&] {
    backend_->ActivationForward(
        {Activation::kSilu, x.view(), dropout_, row_ids_.data(), y.view(), factor.view()}, {});
    return WeightedSum(y, dy);
  };
  backend_->ActivationBackward({Activation::kSilu, x.view(), dy.view(), dropout_, row_ids_.data(),
                                dx.view(), factor.view(), dfactor.view()},
                               {});
  const double magnitude = test::SumOfMagnitudes(dy.Values()) * 5;
  ExpectGradient(x, dx, loss, magnitude, "x");
  ExpectGradient(factor, dfactor, loss, magnitude, "factor");
}

TEST_F(ReferenceGradientTest, DropoutIsItsOwnBackward) {
  const auto apply = [&](const HostTensor& from, HostTensor& to) {
    backend_->DropoutApply({from.view(), dropout_, row_ids_.data(), to.view()}, {});
  };
  CheckMap(Matrix(1), apply, apply, "dropout");
}

TEST_F(ReferenceGradientTest, RotaryTurnedBack) {
  const HostTensor angles = RandomTensor(kGradientType, {kRows, 4}, 3);
  const auto turn = [&](bool inverse) {
    return [&, inverse](const HostTensor& from, HostTensor& to) {
      backend_->RotaryApply({from.view(), angles.view(), inverse, to.view()}, {});
    };
  };
  CheckMap(RandomTensor(kGradientType, {kRows, 12}, 1), turn(false), turn(true), "rotary");
}

TEST_F(ReferenceGradientTest, LayerNormAndRmsNorm) {
  for (int choice = 0; choice < 4; ++choice) {
    const bool with_residual = choice % 2 == 1;
    const bool is_rms = choice >= 2;
    HostTensor x = Matrix(1);
    HostTensor residual = with_residual ? Matrix(2) : HostTensor();
    HostTensor gamma = Vector(3);
    HostTensor beta = is_rms ? HostTensor() : Vector(4);
    const HostTensor dy = Matrix(5);
    HostTensor rstd(kGradientType, {kRows}), mean = is_rms ? HostTensor() : rstd, sum = x, y = x;
    const auto loss = [&] {
      backend_->LayerNormForward(
          {x.view(), residual.view(), gamma.view(), beta.view(), 1e-2f, dropout_, row_ids_.data(),
           sum.view(), mean.view(), rstd.view(), y.view()},
          {});
      return WeightedSum(y, dy);
    };
    loss();
    HostTensor dx = x, dresidual = residual, dgamma = gamma, dbeta = beta;  // overwritten
    backend_->LayerNormBackward(
        {dy.view(), sum.view(), mean.view(), rstd.view(), gamma.view(), dropout_, row_ids_.data(),
         dx.view(), dresidual.view(), dgamma.view(), dbeta.view()},
        {});
    const double magnitude = 20 * test::SumOfMagnitudes(dy.Values());
    ExpectGradient(x, dx, loss, magnitude, "x");
    if (with_residual) ExpectGradient(residual, dresidual, loss, magnitude, "residual");
    ExpectGradient(gamma, dgamma, loss, magnitude, "gamma");
    if (!is_rms) ExpectGradient(beta, dbeta, loss, magnitude, "beta");
  }
}

TEST_F(ReferenceGradientTest, EmbeddingAddsToTheTable) {
  constexpr int64_t kVocab = 3;
  HostTensor table = RandomTensor(kGradientType, {kVocab, kColumns}, 1);
  const auto ids = test::RandomIds(kRows, kVocab, 2);
  const HostTensor dy = Matrix(2);
  const HostTensor old = RandomTensor(kGradientType, {kVocab, kColumns}, 3);
  HostTensor dtable = old;
  backend_->EmbeddingBackward(
      {dy.view(), ids.data(), 1.5f, dropout_, row_ids_.data(), dtable.view()}, {});
  for (int64_t i = 0; i < dtable.size(); ++i) dtable.Set(i, dtable.At(i) - old.At(i));
  HostTensor y(kGradientType, {kRows, kColumns});
  const auto loss = [&] {
    backend_->EmbeddingForward(
        {table.view(), ids.data(), 1.5f, dropout_, row_ids_.data(), y.view()}, {});
    return WeightedSum(y, dy);
  };
  ExpectGradient(table, dtable, loss, test::SumOfMagnitudes(dy.Values()) * 10, "table");
}

TEST_F(ReferenceGradientTest, LinearCrossEntropy) {
  constexpr int64_t kVocab = 7;
  HostTensor x = Matrix(1);
  HostTensor weight = RandomTensor(kGradientType, {kVocab, kColumns}, 2);
  HostTensor bias = RandomTensor(kGradientType, {kVocab}, 3);
  const auto labels = test::RandomIds(kRows, kVocab, 4);
  const std::vector<float> row_weights = {1.0f, 0.25f, 0.0f, 2.0f};
  HostTensor losses(kGradientType, {kRows});
  LinearCrossEntropyArgs args{.x = x.view(), .weight = weight.view(), .bias = bias.view()};
  args.labels = labels.data();
  args.row_weights = row_weights.data();
  args.loss = losses.view();
  const auto loss = [&] {
    backend_->LinearCrossEntropy(args, {});
    return WeightedSum(losses, row_weights);
  };
  HostTensor dx(kGradientType, x.shape()), dweight(kGradientType, weight.shape()),
      dbias(kGradientType, bias.shape());
  args.dx = dx.view();
  args.dweight = dweight.view();
  args.dbias = dbias.view();
  backend_->LinearCrossEntropy(args, {});
  args.dx = args.dweight = args.dbias = {};
  ExpectGradient(x, dx, loss, 100, "x");
  ExpectGradient(weight, dweight, loss, 100, "weight");
  ExpectGradient(bias, dbias, loss, 100, "bias");
}

TEST_F(ReferenceGradientTest, HeadLoss) {
  // Every fifth column is not valid; a row has no weight.
  std::vector<uint8_t> valid(kRows * kColumns);
  for (size_t i = 0; i < valid.size(); ++i) valid[i] = i % 5 != 3;
  const std::vector<int32_t> labels = {0, 1, 1, 1};
  const std::vector<float> targets = {-1.5f, 0.25f, 3.0f, 1.0f};
  const std::vector<float> row_weights = {1.0f, 0.25f, 0.0f, 2.0f};
  const auto check = [&](HeadLossKind kind, double smoothing) {
    const bool is_softmax = kind == HeadLossKind::kSoftmax;
    HostTensor logits = RandomTensor(kGradientType, {kRows, is_softmax ? kColumns : 1}, 1);
    HostTensor losses(kGradientType, {kRows}), dlogits(kGradientType, logits.shape());
    HeadLossArgs args{.kind = kind, .logits = logits.view()};
    if (is_softmax) args.valid = valid.data();
    args.labels = labels.data();
    args.targets = targets.data();
    args.row_weights = row_weights.data();
    args.smoothing = smoothing;
    args.loss = losses.view();
    args.dlogits = dlogits.view();
    backend_->HeadLoss(args, {});
    args.dlogits = {};
    const auto loss = [&] {
      backend_->HeadLoss(args, {});
      return WeightedSum(losses, row_weights);
    };
    ExpectGradient(logits, dlogits, loss, 100, "logits");
  };
  for (const double smoothing : {0.0, 0.1}) check(HeadLossKind::kSoftmax, smoothing);
  check(HeadLossKind::kSigmoid, 0);
  check(HeadLossKind::kSquaredError, 0);
}

TEST_F(ReferenceGradientTest, HeadLossDiesOfALabelThatIsNoValidColumn) {
  HostTensor logits = RandomTensor(kGradientType, {1, 3}, 1), losses(kGradientType, {1});
  const std::vector<uint8_t> valid = {1, 0, 1};
  const std::vector<float> row_weights = {1.0f};
  for (const int32_t label : {-1, 1, 3}) {
    const HeadLossArgs args{.logits = logits.view(),
                            .valid = valid.data(),
                            .labels = &label,
                            .row_weights = row_weights.data(),
                            .loss = losses.view()};
    EXPECT_DEATH(backend_->HeadLoss(args, {}), "label -?[0-9] of row 0 is (outside|no valid)");
  }
}

}  // namespace
}  // namespace anyorder::kernels
