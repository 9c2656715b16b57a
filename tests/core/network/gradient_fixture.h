// The whole network's gradient against central finite differences, in fp64 on the reference
// backend: what the tests in gradient_test.cc run for every case of Models and Backbones.

#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/core/network/model_testing.h"

namespace anyorder::testing {

struct GradientCase {
  std::string name;
  std::string objective = "permutation_lm";
  ModelConfig model = SmallModel();
  SamplingConfig sampling = SmallSampling();
  std::vector<bool> backward = {false, true};
  int64_t step = 1;  // half of the memory of the permutation LM holds states
  // What is done to the objective's microbatch, if anything.
  std::function<Batch(const Batch&)> change = nullptr;
  // True for a tensor that has no effect on the loss. OnlyTensorsOutOfUse knows others, too.
  std::function<bool(const std::string& name)> unused = [](const std::string&) { return false; };
};

inline ModelConfig WithDropout(ModelConfig model, double rate = 0.125) {
  model.dropout = model.attention_dropout = rate;
  return model;
}

// Of an objective without memory that reads in one direction.
inline GradientCase OneWayCase(const std::string& name, const std::string& objective,
                               const ModelConfig& model) {
  GradientCase result{name, objective, model};
  result.model.mem_len = 0;
  result.sampling.bidirectional = false;
  result.backward = {false, false};
  return result;
}

// Of XLNet, Transformer-XL and the DAE (gradient_test.cc), of other systems' layers
// (backbone_gradient_cases.cc), of any-order models and of heads (objective_gradient_cases.cc).
std::vector<GradientCase> ModelCases();
std::vector<GradientCase> BackboneCases();
std::vector<GradientCase> AnyOrderCases();
std::vector<GradientCase> HeadCases();
inline std::vector<GradientCase> AllCases() {
  std::vector<GradientCase> cases = BackboneCases();
  for (const std::vector<GradientCase>& more : {ModelCases(), AnyOrderCases(), HeadCases()})
    cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

inline void PrintTo(const GradientCase& value, std::ostream* out) { *out << value.name; }
inline std::string NameOf(const ::testing::TestParamInfo<GradientCase>& info) {
  return info.param.name;
}

class GradientTest : public ::testing::TestWithParam<GradientCase> {
 protected:
  static constexpr double kStep = 1e-4;

  GradientTest() {
    const GradientCase& param = GetParam();
    const SamplingConfig& sampling = param.sampling;
    const std::unique_ptr<Objective> objective =
        MakeObjectiveOrDie(param.objective, param.model, sampling);
    batch_ = std::make_unique<Batch>(
        RandomBatch(*objective, sampling, kSmallVocab, {3, 8}, param.backward, param.step));
    if (param.change) batch_ = std::make_unique<Batch>(param.change(*batch_));
    runner_ = std::make_unique<ModelRunner>(param.model, kSmallVocab, batch_->shape);
    weights_ = InitialWeights(param.model, kSmallVocab, 21);
    memory_ = RandomVector(runner_->memory_size(), 22);
    result_ = runner_->Run(*batch_, weights_, memory_, true);
  }

  double LossAt(const std::vector<double>& direction, int64_t offset, double distance) {
    std::vector<double> moved = weights_;
    for (size_t i = 0; i < direction.size(); ++i) moved[offset + i] += distance * direction[i];
    // Training, so that dropout is that of the differentiated step.
    return Loss(runner_->Run(*batch_, moved, memory_, true).step);
  }
  // What the gradient is of. The first lane gives its next-sentence entry the weight of all entries
  // that have any.
  double Loss(const StepResult& step) const {
    const double weight = batch_->shape.next_sentence ? batch_->summary_weights[0] : 0;
    return step.loss_sum + weight * SumNamed("nsp_loss", step.sums).sum;
  }

  // Along `direction` from element `offset` on: the computed derivative must lie within the error
  // that the differences themselves admit to. Truncation falls fourfold when the step is halved, so
  // that the finer quotient errs by a third of their distance; rounding is that of `loss` over the
  // step.
  void ExpectDerivative(const std::vector<double>& direction, int64_t offset,
                        const std::string& what) {
    double computed = 0;
    for (size_t i = 0; i < direction.size(); ++i)
      computed += direction[i] * result_.gradients[offset + i];
    const auto quotient = [&](double h) {
      return (LossAt(direction, offset, h) - LossAt(direction, offset, -h)) / (2 * h);
    };
    const double coarse = quotient(kStep);
    const double fine = quotient(kStep / 2);
    // Sums in a loss are at most a few hundred terms long; each rounds by at most half an ulp of
    // the result.
    const double rounding =
        256 * std::numeric_limits<double>::epsilon() * Loss(result_.step) / kStep;
    EXPECT_NEAR(computed, fine, std::abs(coarse - fine) + rounding) << what;
  }

  std::unique_ptr<Batch> batch_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<double> weights_;
  std::vector<double> memory_;
  ModelRunner::Result result_;
};

}  // namespace anyorder::testing
