#include "core/objective/causal_lm.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/core/network/model_testing.h"

namespace anyorder::testing {
namespace {

TEST(CausalLmTest, EverySlotSeesItselfThePastAndMemoryAndPredictsTheNextToken) {
  const SamplingConfig sampling = SmallSampling();
  const ModelConfig model = SmallModel();
  const std::unique_ptr<Objective> objective = MakeObjectiveOrDie("causal_lm", model, sampling);
  EXPECT_EQ(objective->sample_kind(), SampleKind::kContiguous);
  const TextSample sample =
      RandomSample(sampling, SampleKind::kContiguous, kSmallVocab, 1, 4, false);
  Batch batch = BuildBatch(*objective, {sample});
  EXPECT_EQ(batch.shape.query_rows, 0);
  EXPECT_EQ(batch.shape.advance, sampling.seq_len);
  for (int64_t i = 0; i < sampling.seq_len; ++i) {
    for (int64_t key = 0; key < batch.shape.num_keys(); ++key) {
      EXPECT_EQ(Sees(batch, i, key), key <= model.mem_len + i) << i << " " << key;
    }
    EXPECT_EQ(batch.readout_rows[i], i);
    EXPECT_EQ(batch.labels[i], sample.next_tokens[i]);
    EXPECT_EQ(batch.weights[i], 1.0f);
  }
}

}  // namespace
}  // namespace anyorder::testing
