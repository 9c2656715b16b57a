// The reference's gradients are those of its own forward functions: finite differences in fp64.

#include "kernels/backend.h"
#include "tests/testing/finite_difference.h"

namespace anyorder::kernels {
namespace {

using test::ExpectGradient;
using test::HostTensor;
using test::RandomTensor;
using test::WeightedSum;

constexpr DType kGradientType = DType::kFloat64;
constexpr int64_t kRows = 4;
constexpr int64_t kColumns = 11;

class ReferenceGradientTest : public ::testing::Test {
 protected:
  HostTensor Matrix(uint64_t seed) { return RandomTensor(kGradientType, {kRows, kColumns}, seed); }
  HostTensor Vector(uint64_t seed) { return RandomTensor(kGradientType, {kColumns}, seed); }

  std::unique_ptr<Backend> backend_ = MakeReferenceBackend();
  const Dropout dropout_ = MakeDropout(11, 5, 3, 0.3);
  const std::vector<int32_t> row_ids_ = test::RowIds(kRows);
};

TEST_F(ReferenceGradientTest, Activation) {
  for (const Activation activation :
       {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu, Activation::kTanh}) {
    HostTensor x = Matrix(1);
    // No element may cross the corner of ReLU within a step.
    for (int64_t i = 0; i < x.size(); ++i) {
      if (std::fabs(x.At(i)) < 0.01) x.Set(i, 0.5);
    }
    const HostTensor dy = Matrix(2);
    HostTensor y(kGradientType, x.shape());
    HostTensor dx(kGradientType, x.shape());
    backend_->ActivationBackward(
        {activation, x.view(), dy.view(), dropout_, row_ids_.data(), dx.view()}, {});
    const auto loss = [&] {
      backend_->ActivationForward({activation, x.view(), dropout_, row_ids_.data(), y.view()}, {});
      return WeightedSum(y, dy);
    };
    ExpectGradient(&x, dx, loss, test::SumOfMagnitudes(dy) * 5, "activation");
  }
}

TEST_F(ReferenceGradientTest, DropoutIsItsOwnBackward) {
  HostTensor x = Matrix(1);
  const HostTensor dy = Matrix(2);
  HostTensor y(kGradientType, x.shape());
  HostTensor dx(kGradientType, x.shape());
  backend_->DropoutApply({dy.view(), dropout_, row_ids_.data(), dx.view()}, {});
  const auto loss = [&] {
    backend_->DropoutApply({x.view(), dropout_, row_ids_.data(), y.view()}, {});
    return WeightedSum(y, dy);
  };
  ExpectGradient(&x, dx, loss, test::SumOfMagnitudes(dy) * 5, "dropout");
}

TEST_F(ReferenceGradientTest, RotaryTurnedBack) {
  HostTensor x = RandomTensor(kGradientType, {kRows, 12}, 1);
  const HostTensor dy = RandomTensor(kGradientType, {kRows, 12}, 2);
  const HostTensor angles = RandomTensor(kGradientType, {kRows, 4}, 3);
  HostTensor y(kGradientType, x.shape());
  HostTensor dx(kGradientType, x.shape());
  backend_->RotaryApply({dy.view(), angles.view(), /*inverse=*/true, dx.view()}, {});
  const auto loss = [&] {
    backend_->RotaryApply({x.view(), angles.view(), /*inverse=*/false, y.view()}, {});
    return WeightedSum(y, dy);
  };
  ExpectGradient(&x, dx, loss, test::SumOfMagnitudes(dy) * 5, "rotary");
}

TEST_F(ReferenceGradientTest, LayerNorm) {
  for (const bool with_residual : {false, true}) {
    HostTensor x = Matrix(1);
    HostTensor residual = with_residual ? Matrix(2) : HostTensor();
    HostTensor gamma = Vector(3);
    HostTensor beta = Vector(4);
    const HostTensor dy = Matrix(5);
    HostTensor sum(kGradientType, x.shape()), y(kGradientType, x.shape()),
        mean(kGradientType, {kRows}), rstd(kGradientType, {kRows});
    const auto loss = [&] {
      backend_->LayerNormForward(
          {x.view(), residual.view(), gamma.view(), beta.view(), 1e-2f, dropout_, row_ids_.data(),
           sum.view(), mean.view(), rstd.view(), y.view()},
          {});
      return WeightedSum(y, dy);
    };
    loss();
    HostTensor dx(kGradientType, x.shape()), dgamma(kGradientType, {kColumns}),
        dbeta(kGradientType, {kColumns});
    HostTensor dresidual = with_residual ? HostTensor(kGradientType, x.shape()) : HostTensor();
    backend_->LayerNormBackward(
        {dy.view(), sum.view(), mean.view(), rstd.view(), gamma.view(), dropout_, row_ids_.data(),
         dx.view(), dresidual.view(), dgamma.view(), dbeta.view()},
        {});
    const double magnitude = 20 * test::SumOfMagnitudes(dy);
    ExpectGradient(&x, dx, loss, magnitude, "x");
    if (with_residual) ExpectGradient(&residual, dresidual, loss, magnitude, "residual");
    ExpectGradient(&gamma, dgamma, loss, magnitude, "gamma");
    ExpectGradient(&beta, dbeta, loss, magnitude, "beta");
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
  ExpectGradient(&table, dtable, loss, test::SumOfMagnitudes(dy) * 10, "table");
}

TEST_F(ReferenceGradientTest, LinearCrossEntropy) {
  constexpr int64_t kVocab = 7;
  HostTensor x = Matrix(1);
  HostTensor weight = RandomTensor(kGradientType, {kVocab, kColumns}, 2);
  HostTensor bias = RandomTensor(kGradientType, {kVocab}, 3);
  const auto labels = test::RandomIds(kRows, kVocab, 4);
  const std::vector<float> row_weights = {1.0f, 0.25f, 0.0f, 2.0f};
  HostTensor losses(kGradientType, {kRows});
  LinearCrossEntropyArgs args;
  args.x = x.view();
  args.weight = weight.view();
  args.bias = bias.view();
  args.labels = labels.data();
  args.row_weights = row_weights.data();
  args.loss = losses.view();
  const auto loss = [&] {
    backend_->LinearCrossEntropy(args, {});
    double sum = 0;
    for (int64_t r = 0; r < kRows; ++r) sum += row_weights[r] * losses.At(r);
    return sum;
  };
  HostTensor dx(kGradientType, x.shape()), dweight(kGradientType, weight.shape()),
      dbias(kGradientType, bias.shape());
  LinearCrossEntropyArgs with_gradients = args;
  with_gradients.dx = dx.view();
  with_gradients.dweight = dweight.view();
  with_gradients.dbias = dbias.view();
  backend_->LinearCrossEntropy(with_gradients, {});
  ExpectGradient(&x, dx, loss, 100, "x");
  ExpectGradient(&weight, dweight, loss, 100, "weight");
  ExpectGradient(&bias, dbias, loss, 100, "bias");
}

}  // namespace
}  // namespace anyorder::kernels
