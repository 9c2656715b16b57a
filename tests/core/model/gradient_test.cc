// The whole network's gradient against central finite differences, in fp64 on the reference backend.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "kernels/backend.h"
#include "tests/core/model/model_testing.h"

namespace anyorder::testing {
namespace {

constexpr double kStep = 1e-4;

struct Case {
  std::string name;
  std::string objective = "permutation_lm";
  ModelConfig model = SmallModel();
  std::vector<bool> backward = {false, true};
  int64_t step = 1;  // half of the memory of the permutation LM holds states
  bool grouped_queries = false;
};

void PrintTo(const Case& value, std::ostream* out) {
  *out << value.name;
}

// The same lanes with queries that are keys to the queries of their group (two groups a lane), and a readout
// that names content rows too: what pseudo-masked language models and block diffusion ask for.
Batch WithGroupedQueries(const Batch& plain) {
  BatchShape shape = plain.shape;
  shape.query_is_key = true;
  shape.content_readout = true;
  Batch batch(shape);
  const int64_t old_keys = plain.shape.num_keys();
  const int64_t queries = plain.shape.query_rows;
  const int64_t content = shape.batch_size * shape.content_rows;
  batch.step = plain.step;
  batch.lanes = plain.lanes;
  batch.direction = plain.direction;
  batch.tokens = plain.tokens;
  batch.row_ids = plain.row_ids;
  batch.row_pos = plain.row_pos;
  batch.row_lim = plain.row_lim;
  batch.row_seg = plain.row_seg;
  batch.readout_rows = plain.readout_rows;
  batch.labels = plain.labels;
  batch.weights = plain.weights;
  for (int64_t b = 0; b < shape.batch_size; ++b) {
    for (int64_t key = 0; key < shape.num_keys(); ++key) {
      const int64_t to = b * shape.num_keys() + key;
      if (key < old_keys) {
        const int64_t from = b * old_keys + key;
        batch.key_pos[to] = plain.key_pos[from];
        batch.key_key[to] = plain.key_key[from];
        batch.key_doc[to] = plain.key_doc[from];
        batch.key_seg[to] = plain.key_seg[from];
        continue;
      }
      const int64_t row = content + b * queries + key - old_keys;
      batch.key_pos[to] = plain.row_pos[row];
      batch.key_key[to] = kernels::kKeyNever;
      batch.key_seg[to] = plain.row_seg[row];
      batch.key_grp[to] = batch.row_grp[row] = static_cast<int32_t>(key % 2);
    }
    batch.readout_rows[b * shape.targets] = static_cast<int32_t>(b * shape.content_rows + 3);
  }
  return batch;
}

class GradientTest : public ::testing::TestWithParam<Case> {
 protected:
  GradientTest() {
    const Case& param = GetParam();
    const SamplingConfig sampling = SmallSampling();
    const std::unique_ptr<Objective> objective =
        MakeObjectiveOrDie(param.objective, param.model, sampling);
    batch_ = std::make_unique<Batch>(
        RandomBatch(*objective, sampling, kSmallVocab, {3, 8}, param.backward, param.step));
    if (param.grouped_queries) batch_ = std::make_unique<Batch>(WithGroupedQueries(*batch_));
    runner_ = std::make_unique<ModelRunner>(param.model, kSmallVocab, batch_->shape, *backend_);
    weights_ = InitialWeights(param.model, kSmallVocab, 21);
    memory_ = RandomVector(runner_->memory_size(), 22);
    result_ = runner_->Run(*batch_, weights_, memory_, true);
  }

  double LossAt(const std::vector<double>& direction, int64_t offset, double distance) {
    std::vector<double> moved = weights_;
    for (size_t i = 0; i < direction.size(); ++i)
      moved[offset + i] += distance * direction[i];
    // Training, so that dropout is that of the differentiated step.
    return Loss(runner_->Run(*batch_, moved, memory_, true).step);
  }
  // What the gradient is of. All lanes give their next-sentence entry the same weight.
  double Loss(const StepResult& step) const {
    const double weight = batch_->shape.next_sentence ? batch_->summary_weights[0] : 0;
    return step.loss_sum + weight * step.next_sentence_loss;
  }

  // Along `direction` from element `offset` on: the computed derivative must lie within the error that the
  // differences themselves admit to. Truncation falls fourfold when the step is halved, so that the
  // finer quotient errs by a third of their distance; rounding is that of `loss` over the step.
  void ExpectDerivative(const std::vector<double>& direction,
                        int64_t offset,
                        const std::string& what) {
    double computed = 0;
    for (size_t i = 0; i < direction.size(); ++i)
      computed += direction[i] * result_.gradients[offset + i];
    const auto quotient = [&](double h) {
      return (LossAt(direction, offset, h) - LossAt(direction, offset, -h)) / (2 * h);
    };
    const double coarse = quotient(kStep);
    const double fine = quotient(kStep / 2);
    // Sums in a loss are at most a few hundred terms long; each rounds by at most half an ulp of the result.
    const double rounding =
        256 * std::numeric_limits<double>::epsilon() * Loss(result_.step) / kStep;
    EXPECT_NEAR(computed, fine, std::abs(coarse - fine) + rounding) << what;
  }

  std::unique_ptr<kernels::Backend> backend_ = kernels::MakeReferenceBackend();
  std::unique_ptr<Batch> batch_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<double> weights_;
  std::vector<double> memory_;
  ModelRunner::Result result_;
};

TEST_P(GradientTest, EveryTensorAgreesWithFiniteDifferences) {
  RandomStream random(5, RandomPurpose::kPairs, 0, 0);
  for (const ParameterInfo& info : runner_->layout().parameters()) {
    const int64_t size = info.shape.num_elements();
    ExpectDerivative(
        RandomVector(size, static_cast<uint64_t>(info.offset)), info.offset, info.name);
    for (int i = 0; i < 2; ++i) {
      const int64_t element = random.Below(static_cast<uint32_t>(size));
      ExpectDerivative({1.0}, info.offset + element, info.name + " at " + std::to_string(element));
    }
  }
}

TEST_P(GradientTest, OnlyTensorsOutOfUseHaveNoGradient) {
  for (const ParameterInfo& info : runner_->layout().parameters()) {
    const std::vector<double> gradient(result_.gradients.begin() + info.offset,
                                       result_.gradients.begin() + info.end());
    const bool unused = info.name == "transformer.mask_emb" && batch_->shape.query_rows == 0;
    if (unused) {
      EXPECT_EQ(Norm(gradient), 0.0) << info.name;
    } else {
      EXPECT_GT(Norm(gradient), 1e-4) << info.name << ": the test would not notice an error";
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  cases.push_back({"permutation"});
  cases.push_back({"permutation_with_dropout"});
  cases.back().model.dropout = 0.25;
  cases.back().model.attention_dropout = 0.25;
  cases.push_back({"permutation_shared_biases"});
  cases.back().model.untie_r = false;
  cases.push_back({"permutation_without_memory"});
  cases.back().model.mem_len = 0;
  cases.push_back({"permutation_zeros_as_first_memory"});
  cases.back().model.initial_memory = InitialMemory::kZeros;
  cases.back().step = 0;
  cases.push_back({"permutation_relu_clamped_backward_only"});
  cases.back().model.activation = kernels::Activation::kRelu;
  cases.back().model.clamp_len = 5;
  cases.back().backward = {true, true};
  cases.push_back({"permutation_without_segments"});
  cases.back().model.segment_term = false;
  cases.back().model.activation = kernels::Activation::kGeluErf;
  cases.push_back({"permutation_with_grouped_queries_and_content_readout"});
  cases.back().grouped_queries = true;
  cases.back().model.dropout = 0.125;
  cases.push_back({"permutation_with_next_sentence"});
  cases.back().model.next_sentence_head = true;
  cases.back().model.dropout = 0.125;
  cases.push_back({"dae_with_next_sentence"});
  cases.back().objective = "dae";
  cases.back().model.next_sentence_head = true;
  cases.push_back({"dae"});
  cases.back().objective = "dae";
  cases.back().model.dropout = 0.125;
  cases.back().model.attention_dropout = 0.125;
  cases.push_back({"dae_one_layer_without_memory"});
  cases.back().objective = "dae";
  cases.back().model.num_layers = 1;
  cases.back().model.mem_len = 0;
  cases.back().backward = {true, true};
  // No segment term where all segments are equal: it shifts every score alike and has no gradient.
  cases.push_back({"causal"});
  cases.back().objective = "causal_lm";
  cases.back().model.segment_term = false;
  cases.push_back({"causal_as_transformer_xl"});
  cases.back().objective = "causal_lm";
  cases.back().model.untie_r = false;
  cases.back().model.segment_term = false;
  cases.back().model.scale_embedding = true;
  cases.back().model.activation = kernels::Activation::kRelu;
  cases.back().model.dropout = 0.125;
  cases.push_back({"causal_one_layer_without_memory"});
  cases.back().objective = "causal_lm";
  cases.back().model.num_layers = 1;
  cases.back().model.mem_len = 0;
  cases.back().model.segment_term = false;
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, GradientTest, ::testing::ValuesIn(Cases()), [](const auto& info) {
  return info.param.name;
});

}  // namespace
}  // namespace anyorder::testing
