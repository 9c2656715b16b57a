#include "core/objective/causal_lm.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

// causal_lm, or gpt, which has no memory.
class CausalTest : public ::testing::TestWithParam<std::string> {
 protected:
  CausalTest() {
    if (GetParam() == "causal_lm") return;
    model_ = SmallLearnedModel();
    model_.attention_biases = true;
    sampling_ = OneWaySampling();
  }

  ModelConfig model_ = SmallModel();
  SamplingConfig sampling_ = SmallSampling();
};

TEST_P(CausalTest, EverySlotSeesItselfThePastAndMemoryAndPredictsTheNextToken) {
  const std::unique_ptr<Objective> objective = MakeObjectiveOrDie(GetParam(), model_, sampling_);
  EXPECT_EQ(objective->sample_kind(), SampleKind::kContiguous);
  const TextSample sample =
      RandomSample(sampling_, SampleKind::kContiguous, kSmallVocab, 1, 4, false);
  const Batch batch = BuildBatch(*objective, {sample});
  EXPECT_EQ(batch.shape.query_rows, 0);
  EXPECT_EQ(batch.shape.advance, sampling_.seq_len);
  ASSERT_EQ(batch.shape.num_keys(), model_.mem_len + sampling_.seq_len);
  ExpectSees(batch, [&](int64_t row, int64_t key) { return key <= model_.mem_len + row; });
  for (int64_t i = 0; i < sampling_.seq_len; ++i) {
    EXPECT_EQ(batch.row_pos[i], i);
    EXPECT_EQ(batch.readout_rows[i], i);
    EXPECT_EQ(batch.labels[i], sample.next_tokens[i]);
    EXPECT_EQ(batch.weights[i], 1.0f);
  }
  if (model_.mem_len > 0) return;
  ExpectReads(model_, batch, [](int64_t slot, int64_t entry) { return entry >= slot; });
}

// <eod> predicts the next document's first token, and is all that this sees of what is before it.
TEST_P(CausalTest, HiddenDocumentsAreSeenByNobodyElse) {
  model_.mem_len = 0;
  sampling_.hide_documents = true;
  const std::unique_ptr<Objective> objective = MakeObjectiveOrDie(GetParam(), model_, sampling_);
  EXPECT_EQ(objective->evaluation_note(), "no token sees other documents of its window; ");
  for (const bool backward : {false, true}) {
    if (backward && !sampling_.bidirectional) continue;
    TextSample sample =
        RandomSample(sampling_, SampleKind::kContiguous, kSmallVocab, 1, 4, backward);
    EndDocumentsAt({3, 4, 10}, sample);
    const Batch batch = BuildBatch(*objective, {sample});
    ExpectSees(batch, [&](int64_t row, int64_t key) {
      for (int64_t i = key + 1; i <= row; ++i)
        if (sample.tokens[i] == 7) return false;
      return key <= row;
    });
    ExpectDistancesInTable(batch);
    EXPECT_EQ(batch.TargetWeight(), 16);
  }
}

TEST(CausalLmTest, MemoryCannotHideDocuments) {
  ExpectRefusals("causal_lm", SmallModel(), SmallSampling(),
                 {{"hide_documents = true", "hide_documents is true but model.mem_len is 12"}});
}

INSTANTIATE_TEST_SUITE_P(Objectives, CausalTest, ::testing::Values("causal_lm", "gpt"));

}  // namespace
}  // namespace anyorder::testing
