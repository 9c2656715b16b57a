// What a step on a large vocabulary takes of memory: logits of a few rows at a time.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/core/network/counting_backend.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::testing {
namespace {

// LLaDA's vocabulary and context.
constexpr int64_t kLargeVocabulary = 126464;
constexpr int64_t kRows = 4096;
constexpr int64_t kMaxLogitBytes = int64_t{256} << 20;

class LogitsMemoryTest : public ::testing::Test {
 protected:
  LogitsMemoryTest() {
    SetKeys(
        "num_layers = 1, model_dim = 16, head_dim = 8, mem_len = 0, positions = rope, segments = "
        "none, tie_embeddings = false, init_range = 0.02, dtype = fp32",
        model_);
    const SamplingConfig sampling = OneWaySampling(kRows);
    const std::unique_ptr<Objective> objective = MakeObjectiveOrDie("gpt", model_, sampling);
    batch_ = std::make_unique<Batch>(
        RandomBatch(*objective, sampling, kSmallVocab, {3}, {false}, /*step=*/1));
  }

  static std::unique_ptr<kernels::Backend> Cpu() {
    return kernels::MakeCpuBackend({.num_threads = 2}).value();
  }
  // Of activations and workspaces alone: a network that gets its weights from outside.
  int64_t NetworkBytes(int64_t vocab_size) const {
    CountingBackend backend(vocab_size, Cpu());
    EXPECT_TRUE(Transformer::Create(model_, vocab_size, batch_->shape, backend).ok());
    return backend.bytes();
  }

  ModelConfig model_ = SmallModel();
  std::unique_ptr<Batch> batch_;
};

TEST_F(LogitsMemoryTest, ALargeVocabularyAddsLessThanAFewRowsOfLogits) {
  ASSERT_EQ(batch_->shape.targets, kRows);
  EXPECT_LE(NetworkBytes(kLargeVocabulary) - NetworkBytes(kSmallVocab), kMaxLogitBytes);
  EXPECT_GT(kRows * kLargeVocabulary * 4, 7 * kMaxLogitBytes);
}

// Forward and backward allocate nothing, and every row gets its loss and its gradient: untrained, a
// loss is about the logarithm of the vocabulary, and the gradients of a column of the classifier
// sum to zero over its words.
TEST_F(LogitsMemoryTest, AStepOnALargeVocabularyAllocatesNothing) {
  CountingBackend backend(kLargeVocabulary, Cpu());
  ModelRunner runner(model_, kLargeVocabulary, batch_->shape, backend);
  const std::vector<double> weights = InitialWeights(model_, kLargeVocabulary, 3);
  const int64_t before = backend.bytes();
  const ModelRunner::Result result = runner.Run(*batch_, weights, {}, true);
  EXPECT_EQ(backend.bytes(), before);
  const double uniform = std::log(static_cast<double>(kLargeVocabulary));
  for (const float loss : result.losses) EXPECT_NEAR(loss, uniform, 0.5 * uniform);
  const ParameterInfo& classifier = runner.layout().Find("lm_loss.weight");
  for (int64_t column = 0; column < model_.model_dim; ++column) {
    double sum = 0, magnitude = 0;
    for (int64_t word = 0; word < kLargeVocabulary; ++word) {
      const double gradient =
          result.gradients[classifier.offset + word * model_.model_dim + column];
      sum += gradient;
      magnitude += std::abs(gradient);
    }
    EXPECT_LE(std::abs(sum), 1e-5 * magnitude) << column;
    EXPECT_GT(magnitude, 0) << column;
  }
}

}  // namespace
}  // namespace anyorder::testing
