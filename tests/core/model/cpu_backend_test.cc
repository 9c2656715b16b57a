// A whole step on the CPU backend against the same step in fp64 on the reference backend.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/core/model/model_testing.h"

namespace anyorder::testing {
namespace {

constexpr int64_t kVocab = 61;

struct Case {
  std::string name;
  std::string objective;
  ComputeType dtype;
  // Gradients of scores add up to zero in every row, so that little is left of the segment term's. What the backend rounds in
  // between then counts for more than what the reference stores, by a factor of 0.4 to 2.4 from batch to batch:
  // tests/kernels measures it at its own scale.
  bool drops_segments = false;
  bool next_sentence = false;
};

void PrintTo(const Case& value, std::ostream* out) {
  *out << value.name;
}

class CpuBackendTest : public ::testing::TestWithParam<Case> {
 protected:
  CpuBackendTest() {
    model_ = SmallModel();
    model_.model_dim = 32;
    model_.head_dim = 16;
    model_.ffn_dim = 80;
    model_.mem_len = 37;
    model_.init_range = 0.1;
    model_.dropout = 0.125;
    model_.attention_dropout = 0.125;
    // Causal text is one segment: the term would have no gradient, and its error nothing to be compared with.
    model_.segment_term = GetParam().objective != "causal_lm" && !GetParam().drops_segments;
    model_.next_sentence_head = GetParam().next_sentence;
    sampling_.seq_len = 64;
    sampling_.reuse_len = 32;
    sampling_.num_predict = 11;
    sampling_.perm_size = 32;
    objective_ = MakeObjectiveOrDie(GetParam().objective, model_, sampling_);
    batch_ = std::make_unique<Batch>(
        RandomBatch(*objective_, sampling_, kVocab, {3, 8, 9}, {false, false, true}, 1));
    absl::StatusOr<std::unique_ptr<kernels::Backend>> cpu =
        kernels::MakeCpuBackend({.num_threads = 2});
    ANYORDER_CHECK_OK(cpu.status());
    cpu_ = *std::move(cpu);
    weights_ = InitialWeights(model_, kVocab, 91);
    memory_ = RandomVector(3 * model_.num_layers * model_.mem_len * model_.model_dim, 92);
  }

  ModelRunner::Result Run(ComputeType dtype, kernels::Backend& backend) {
    ModelConfig model = model_;
    model.dtype = dtype;
    return ModelRunner(model, kVocab, batch_->shape, backend).Run(*batch_, weights_, memory_, true);
  }

  // What sums in fp32 may add to the error of the reference, which sums in double: each of the matrix
  // products that an element passes through, forth and back, rounds every addition of its inner dimension.
  double SummationBound() const {
    const double products = 2.0 * 6 * static_cast<double>(model_.num_layers) + 2;
    const auto longest = static_cast<double>(
        std::max({batch_->shape.num_rows(), batch_->shape.num_keys(), model_.ffn_dim}));
    return products * longest * std::numeric_limits<float>::epsilon() / 2;
  }

  ModelConfig model_;
  SamplingConfig sampling_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<Batch> batch_;
  std::unique_ptr<kernels::Backend> reference_ = kernels::MakeReferenceBackend();
  std::unique_ptr<kernels::Backend> cpu_;
  std::vector<double> weights_;
  std::vector<double> memory_;
};

std::vector<double> Part(const std::vector<double>& flat, const ParameterInfo& info) {
  return {flat.begin() + info.offset, flat.begin() + info.end()};
}

// A tensor may be off by twice what the reference, rounding to the same storage type, is off.
TEST_P(CpuBackendTest, LossesGradientsAndMemoryAgreeWithTheReference) {
  const ComputeType dtype = GetParam().dtype;
  if (!cpu_->Supports(ToDType(dtype)))
    GTEST_SKIP() << cpu_->name() << " has no " << GetParam().name;
  const ModelRunner::Result exact = Run(ComputeType::kFloat64, *reference_);
  const ModelRunner::Result stored = Run(dtype, *reference_);
  const ModelRunner::Result cpu = Run(dtype, *cpu_);

  const auto as_double = [](const std::vector<float>& x) {
    return std::vector<double>(x.begin(), x.end());
  };
  const std::vector<double> losses = as_double(exact.losses);
  EXPECT_LT(Distance(as_double(cpu.losses), losses),
            2 * Distance(as_double(stored.losses), losses) + SummationBound() * Norm(losses));
  EXPECT_LT(Distance(cpu.memory, exact.memory),
            2 * Distance(stored.memory, exact.memory) + SummationBound() * Norm(exact.memory));
  EXPECT_LE(std::abs(cpu.step.next_sentence_loss - exact.step.next_sentence_loss),
            2 * std::abs(stored.step.next_sentence_loss - exact.step.next_sentence_loss) +
                SummationBound() * exact.step.next_sentence_loss);
  const ParameterLayout layout(model_, kVocab);
  for (const ParameterInfo& info : layout.parameters()) {
    const std::vector<double> gradient = Part(exact.gradients, info);
    EXPECT_LE(
        Distance(Part(cpu.gradients, info), gradient),
        2 * Distance(Part(stored.gradients, info), gradient) + SummationBound() * Norm(gradient))
        << info.name << " of norm " << Norm(gradient);
  }
}

TEST_P(CpuBackendTest, ThreadsDoNotChangeBits) {
  const ComputeType dtype = GetParam().dtype;
  if (!cpu_->Supports(ToDType(dtype)))
    GTEST_SKIP() << cpu_->name() << " has no " << GetParam().name;
  absl::StatusOr<std::unique_ptr<kernels::Backend>> alone =
      kernels::MakeCpuBackend({.num_threads = 1});
  ANYORDER_CHECK_OK(alone.status());
  const ModelRunner::Result one = Run(dtype, **alone);
  const ModelRunner::Result two = Run(dtype, *cpu_);
  EXPECT_EQ(one.losses, two.losses);
  EXPECT_EQ(one.gradients, two.gradients);
  EXPECT_EQ(one.memory, two.memory);
  EXPECT_EQ(one.step.next_sentence_loss, two.step.next_sentence_loss);
}

INSTANTIATE_TEST_SUITE_P(
    Models,
    CpuBackendTest,
    ::testing::Values(Case{"permutation_fp32", "permutation_lm", ComputeType::kFloat32},
                      Case{"permutation_bf16", "permutation_lm", ComputeType::kBFloat16},
                      Case{"dae_fp32", "dae", ComputeType::kFloat32},
                      Case{"dae_bf16", "dae", ComputeType::kBFloat16, true},
                      Case{"next_sentence_fp32", "dae", ComputeType::kFloat32, false, true},
                      Case{"next_sentence_bf16", "dae", ComputeType::kBFloat16, true, true},
                      Case{"causal_fp32", "causal_lm", ComputeType::kFloat32},
                      Case{"causal_bf16", "causal_lm", ComputeType::kBFloat16}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace anyorder::testing
