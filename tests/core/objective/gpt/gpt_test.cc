#include "core/objective/gpt/gpt.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/core/network/model_testing.h"

namespace anyorder::testing {
namespace {

ModelConfig Gpt() {
  ModelConfig model = SmallLearnedModel();
  model.attention_biases = true;
  return model;
}

class GptTest : public ::testing::Test {
 protected:
  GptTest() {
    sampling_.bidirectional = false;
    objective_ = MakeObjectiveOrDie("gpt", Gpt(), sampling_);
  }
  Batch Build(const TextSample& sample) const { return BuildBatch(*objective_, {sample}); }

  SamplingConfig sampling_ = SmallSampling();
  std::unique_ptr<Objective> objective_;
};

TEST_F(GptTest, EverySlotSeesItselfAndThePastOfItsWindowAndPredictsTheNextToken) {
  const TextSample sample =
      RandomSample(sampling_, SampleKind::kContiguous, kSmallVocab, 1, 4, false);
  const Batch batch = Build(sample);
  ASSERT_EQ(batch.shape.num_keys(), sampling_.seq_len);
  for (int64_t i = 0; i < sampling_.seq_len; ++i) {
    for (int64_t key = 0; key < sampling_.seq_len; ++key) {
      EXPECT_EQ(Sees(batch, i, key), key <= i);
    }
    EXPECT_EQ(batch.row_pos[i], i);
    EXPECT_EQ(batch.readout_rows[i], i);
    EXPECT_EQ(batch.labels[i], sample.next_tokens[i]);
  }
}

TEST_F(GptTest, NoTokenIsPredictedFromALaterOne) {
  const TextSample sample =
      RandomSample(sampling_, SampleKind::kContiguous, kSmallVocab, 1, 4, false);
  ExpectReads(Gpt(), Build(sample), [](int64_t slot, int64_t entry) { return entry >= slot; });
}

}  // namespace
}  // namespace anyorder::testing
