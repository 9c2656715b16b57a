#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/objective/xlnet/xlnet.h"
#include "tests/core/network/plain_xlnet.h"
#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

class PermutationLmTest : public LanesTest {
 protected:
  PermutationLmTest() : LanesTest("permutation_lm", SmallModel(), SmallSampling()) {}
};

// The row of the query stream for slot `slot`, or -1.
int64_t QueryOf(const Batch& batch, int64_t b, int64_t slot) {
  for (int64_t i = b * batch.shape.targets; i < (b + 1) * batch.shape.targets; ++i) {
    if (batch.weights[i] > 0 && batch.row_pos[batch.readout_rows[i]] == slot)
      return batch.readout_rows[i];
  }
  return -1;
}

// One half of eight slots worked through by hand: 10 11 12 13 14 15 SEP CLS, masked at 1, 3 and 4,
// block permutation (2, 0, 3, 1).
struct GoldenHalf {
  std::vector<int32_t> tokens = {10, 11, 12, 13, 14, 15, 4, 3};
  std::vector<uint8_t> is_masked = {0, 1, 0, 1, 1, 0, 0, 0};
  std::vector<uint8_t> is_functional = {0, 0, 0, 0, 0, 0, 1, 1};
  std::vector<int32_t> order = {2, 0, 3, 1, 6, 4, 7, 5};
  std::vector<std::string> blocked = {"01011011", "01011011", "01011011", "00011011",
                                      "00001010", "01011011", "00000000", "00001010"};
};

TEST_F(PermutationLmTest, GoldenExampleInBothHalves) {
  const GoldenHalf golden;
  TextSample sample;
  for (int half = 0; half < 2; ++half) {
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(sample.tokens, golden.tokens);
    append(sample.is_masked, golden.is_masked);
    append(sample.is_functional, golden.is_functional);
    append(sample.order, golden.order);
  }
  sample.segment.assign(16, 0);
  sampling_.num_predict = 6;
  const Batch batch = Build(sample);
  const int64_t memory = batch.shape.memory_rows;
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 16; ++j) {
      const bool blocked = i / 8 == j / 8 ? golden.blocked[i % 8][j % 8] == '1' : i < j;
      EXPECT_EQ(Sees(batch, i, memory + j), i == j || !blocked) << "content " << i << " " << j;
      const int64_t query = QueryOf(batch, 0, i);
      if (query < 0) continue;
      EXPECT_EQ(Sees(batch, query, memory + j), !blocked) << "query " << i << " " << j;
    }
  }
  EXPECT_EQ(batch.labels, (std::vector<int32_t>{11, 13, 14, 11, 13, 14}));
  EXPECT_EQ(batch.TargetWeight(), 6.0);
}

TEST_F(PermutationLmTest, RandomTextSeesWhatTheDensePermMaskAllows) {
  const std::unique_ptr<Objective> objective = Make();
  Batch batch(objective->Shape(2));
  for (int64_t lane = 0; lane < 40; ++lane) {
    const int64_t b = lane % 2;
    const TextSample sample = Sample(lane, 3, lane % 3 == 0);
    objective->BuildLane(sample, b, batch);
    const LocalPermutation order = PermuteSequence(sample, sampling_.reuse_len);
    const int64_t first_row = b * sampling_.seq_len;
    const int64_t first_key = b * batch.shape.num_keys() + batch.shape.memory_rows;
    int64_t targets = 0;
    for (int64_t i = 0; i < sampling_.seq_len; ++i) {
      const int64_t query = QueryOf(batch, b, i);
      EXPECT_EQ(query >= 0, order.is_target[i] == 1);
      targets += order.is_target[i];
      for (int64_t j = 0; j < sampling_.seq_len; ++j) {
        const bool allowed = order.perm_mask(i, j) == 0.0;
        ASSERT_EQ(Sees(batch, first_row + i, first_key + j), i == j || allowed);
        if (query >= 0) {
          ASSERT_EQ(Sees(batch, query, first_key + j), allowed);
        }
      }
      for (int64_t m = 1; m <= batch.shape.memory_rows; ++m)
        ASSERT_TRUE(Sees(batch, first_row + i, first_key - m));
    }
    for (int64_t i = targets; i < sampling_.num_predict; ++i) {
      const int64_t row = batch.readout_rows[b * sampling_.num_predict + i];
      for (int64_t key = 0; key < batch.shape.num_keys(); ++key)
        ASSERT_FALSE(Sees(batch, row, b * batch.shape.num_keys() + key)) << "an unused slot";
    }
  }
}

// Changes nothing but who sees CLS, and whom CLS sees.
TEST_F(PermutationLmTest, WithNextSentenceClsSeesAllAndNobodySeesIt) {
  const std::unique_ptr<Objective> plain = Make();
  model_.next_sentence_head = true;
  const std::unique_ptr<Objective> objective = Make();
  Batch without(plain->Shape(2));
  Batch batch(objective->Shape(2));
  int64_t differing = 0;
  for (int64_t lane = 0; lane < 40; ++lane) {
    const int64_t b = lane % 2;
    const TextSample sample = Sample(lane, 3, lane % 3 == 0);
    plain->BuildLane(sample, b, without);
    objective->BuildLane(sample, b, batch);
    const int64_t cls_row = (b + 1) * sampling_.seq_len - 1;
    EXPECT_EQ(batch.summary_rows[b], cls_row);
    EXPECT_EQ(batch.summary_labels[b], sample.b_follows_a ? 1 : 0);
    EXPECT_EQ(batch.summary_weights[b], 5.0f);
    for (int64_t row = 0; row < batch.shape.num_rows(); ++row) {
      const int64_t content = 2 * sampling_.seq_len;
      const int64_t of_lane =
          row < content ? row / sampling_.seq_len : (row - content) / sampling_.num_predict;
      if (of_lane != b) continue;
      for (int64_t slot = -model_.mem_len; slot < sampling_.seq_len; ++slot) {
        const int64_t key = b * batch.shape.num_keys() + model_.mem_len + slot;
        const bool is_cls = slot == sampling_.seq_len - 1;
        const bool expected = row == cls_row || (!is_cls && Sees(without, row, key));
        ASSERT_EQ(Sees(batch, row, key), expected) << row << " " << slot;
        differing += expected != Sees(without, row, key) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(differing, 0) << "CLS was last in every order drawn";
  EXPECT_EQ(batch.labels, without.labels);
  EXPECT_EQ(batch.readout_rows, without.readout_rows);
}

TEST_F(PermutationLmTest, MemoryBecomesVisibleAsItFills) {
  // 12 slots of memory, 8 new states a step
  for (const auto& [step, hidden] : {std::pair{0, 12}, {1, 4}, {2, 0}}) {
    const Batch batch = Build(Sample(0, step));
    for (int64_t slot = 0; slot < model_.mem_len; ++slot) {
      EXPECT_EQ(Sees(batch, 0, slot), slot >= hidden) << "step " << step << " slot " << slot;
      EXPECT_EQ(batch.key_pos[slot], slot - model_.mem_len);
    }
  }
  model_.initial_memory = InitialMemory::kZeros;
  EXPECT_TRUE(Sees(Build(Sample(0, 0)), 0, 0)) << "zeros are attended to";
}

TEST_F(PermutationLmTest, EveryVisiblePairHasADistanceInTheTable) {
  for (const char* const name : {"permutation_lm", "causal_lm", "dae"}) {
    SCOPED_TRACE(name);
    ExpectDistancesInTable(RandomBatch(*MakeObjectiveOrDie(name, model_, sampling_), sampling_,
                                       kSmallVocab, {0}, {false}, 9));
  }
}

TEST_F(PermutationLmTest, LogicalRowIdsBelongToLanesNotToPlaces) {
  const Batch first = BuildBatch(*Make(), {Sample(5, 2), Sample(6, 2, true)});
  const Batch second = Build(Sample(6, 2, true));
  const int64_t size = sampling_.seq_len, queries = sampling_.num_predict;
  for (int64_t slot = 0; slot < size; ++slot)
    EXPECT_EQ(first.row_ids[size + slot], second.row_ids[slot]);
  for (int64_t query = 0; query < queries; ++query)
    EXPECT_EQ(first.row_ids[2 * size + queries + query], second.row_ids[size + query]);
}

TEST(ObjectiveRegistryTest, UnknownNamesGetAHintAndUnusableSettingsAreRefused) {
  ExpectRefusals("permutaton_lm", SmallModel(), SmallSampling(),
                 {{[](auto&, auto&) {}, "did you mean 'permutation_lm'"}});
  ExpectRefusals("permutation_lm", SmallModel(), SmallSampling(),
                 {{"reuse_len = 5", "reuse_len=5"}});
}

}  // namespace
}  // namespace anyorder::testing
