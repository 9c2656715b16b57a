// sigma-GPT's sequences, against the published rule (Pannatier et al. 2024; text/order.py and
// text/train.py of their code): tokens x[order], read causally; slot t knows order[t] and
// order[t + 1] and predicts x[order[t + 1]].

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

using Order = std::vector<int32_t>;

constexpr int64_t kWindow = 16;

ModelConfig PairsModel() { return With(SmallLearnedModel(kWindow), "positions = learned_pairs"); }

std::unique_ptr<Objective> MakeSigma(const AnyOrderConfig& config = {}, int64_t seq_len = kWindow) {
  return MakeObjectiveOrDie("sigma_gpt", PairsModel(), OneWaySampling(seq_len, config));
}

TextSample WindowOf(int64_t lane, int64_t step, int64_t seq_len = kWindow) {
  return RandomSample(OneWaySampling(seq_len), SampleKind::kContiguous, kSmallVocab, lane, step,
                      false);
}

// The positions of all slots of a batch of one lane.
Order OrderOf(const Objective& objective, const TextSample& sample) {
  return BuildBatch(objective, {sample}).row_pos;
}

Order TextOrder(int64_t length) {
  Order order(static_cast<size_t>(length));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TEST(SigmaGptTest, SlotsReadCausallyAndPredictTheNextOfTheOrder) {
  const auto objective = MakeSigma();
  for (int64_t lane = 0; lane < 20; ++lane) {
    const TextSample sample = WindowOf(lane, 3);
    const Batch batch = BuildBatch(*objective, {sample});
    ExpectDistancesInTable(batch);
    const Order& order = batch.row_pos;
    EXPECT_TRUE(std::is_permutation(order.begin(), order.end(), TextOrder(kWindow).begin()));
    ASSERT_EQ(batch.shape.targets, kWindow - 1);
    for (int64_t t = 0; t + 1 < kWindow; ++t) {
      EXPECT_EQ(batch.tokens[t], sample.tokens[order[t]]);
      EXPECT_EQ(batch.row_next[t], order[t + 1]);
      EXPECT_EQ(batch.readout_rows[t], t);
      EXPECT_EQ(batch.labels[t], sample.tokens[order[t + 1]]);
      EXPECT_EQ(batch.weights[t], 1.0f);
    }
    // The last one predicts nothing, and nobody sees it.
    ExpectSees(batch, [](int64_t row, int64_t key) { return key <= row && row < kWindow - 1; });
  }
}

// Of three tokens each order comes as often as any other, whatever the lane, the step and the seed.
TEST(SigmaGptTest, OrdersAreUniform) {
  const auto objective = MakeSigma({}, 3);
  std::map<Order, int64_t> counts;
  constexpr int64_t kTries = 6000;
  for (int64_t i = 0; i < kTries; ++i) {
    TextSample sample = WindowOf(i % 10, i / 60, 3);
    sample.seed += static_cast<uint64_t>(i / 10 % 6);
    ++counts[OrderOf(*objective, sample)];
  }
  EXPECT_EQ(counts.size(), 6u);
  for (const auto& [order, count] : counts) ExpectShare(count, kTries, 1.0 / 6);
}

TEST(SigmaGptTest, OrderDoesNotDependOnTheText) {
  const auto objective = MakeSigma();
  TextSample sample = WindowOf(2, 5);
  const Order order = OrderOf(*objective, sample);
  std::reverse(sample.tokens.begin(), sample.tokens.end());
  EXPECT_EQ(OrderOf(*objective, sample), order);
  EXPECT_NE(OrderOf(*objective, WindowOf(3, 5)), order);
  EXPECT_NE(OrderOf(*objective, WindowOf(2, 6)), order);
}

TEST(SigmaGptTest, TextOrderIsLeftToRight) {
  const auto objective = MakeSigma({.token_order = TokenOrder::kText});
  for (int64_t lane = 0; lane < 50; ++lane)
    EXPECT_EQ(OrderOf(*objective, WindowOf(lane, 1)), TextOrder(kWindow));
}

// Published as "randcur:P" (P = 100 p): at step s of n shuffled with probability p + (1 - p) s / n.
TEST(SigmaGptTest, ACurriculumShufflesMoreAndMore) {
  constexpr int64_t kTries = 2000, kSteps = 40;
  for (const double start : {0.0, 0.3}) {
    const auto objective = MakeSigma({.anneal_steps = kSteps,
                                      .token_order = TokenOrder::kCurriculum,
                                      .curriculum_start = start});
    for (const int64_t step : {0, 10, 30, 40, 90}) {
      int64_t shuffled = 0;
      for (int64_t lane = 0; lane < kTries; ++lane)
        shuffled += OrderOf(*objective, WindowOf(lane, step)) != TextOrder(kWindow) ? 1 : 0;
      const double done = std::min(1.0, static_cast<double>(step) / kSteps);
      ExpectShare(shuffled, kTries, start + (1 - start) * done, "shuffled");
    }
  }
}

TEST(SigmaGptTest, ALaneDoesNotDependOnItsPlaceInTheMicrobatch) {
  const auto objective = MakeSigma();
  ExpectSameInAnyPlace(*objective, WindowOf(9, 3), WindowOf(6, 3));
  Batch two = BuildBatch(*objective, {WindowOf(6, 3), WindowOf(6, 3)});
  objective->BuildLane(WindowOf(9, 3), 1, two);
  EXPECT_EQ(Order(two.row_next.begin() + kWindow, two.row_next.end()),
            BuildBatch(*objective, {WindowOf(9, 3)}).row_next);
}

TEST(SigmaGptTest, SaysWhatItsLossIs) {
  EXPECT_THAT(MakeSigma()->quantity(),
              ::testing::HasSubstr("its mean over orders is an upper bound"));
  EXPECT_EQ(MakeSigma({.token_order = TokenOrder::kText})->quantity(),
            "NLL of each token but the first given those before it");
}

// Generation reads slots as training in text order has them.
TEST(SigmaGptTest, GenerationGoesFromLeftToRight) {
  const auto objective = MakeSigma({.token_order = TokenOrder::kText});
  const TextSample sample = WindowOf(4, 2);
  const Batch batch = BuildBatch(*objective, {sample});
  const auto form = *objective->Generation({});
  EXPECT_EQ(form->traits().context_slots, kWindow - 1);
  const Order prompt(sample.tokens.begin(), sample.tokens.begin() + 5);
  std::vector<Slot> slots = form->PromptSlots(prompt);
  for (int64_t target = 0; target < kWindow - 5; ++target)
    slots.push_back(form->StepSlots(prompt, target, sample.tokens[4 + target]).back());
  ASSERT_EQ(slots.size(), static_cast<size_t>(kWindow - 1));
  for (size_t row = 0; row < slots.size(); ++row) {
    ExpectSlot(slots[row], batch, static_cast<int64_t>(row), sample.tokens[row]);
    EXPECT_EQ(slots[row].next, batch.row_next[row]);
  }
}

TEST(SigmaGptTest, SettingsThatCannotBeUsedAreRefused) {
  ExpectRefusals("sigma_gpt", PairsModel(), OneWaySampling(kWindow),
                 {{"positions = learned",
                   "model.positions is \"learned\" but must be \"learned_pairs\" for sigma_gpt"},
                  {"max_positions = 15", "seq_len is 16 but model.max_positions is 15"},
                  {"seq_len = 1", "sampling.seq_len is 1 but must be at least 2"},
                  {"curriculum_start = 0.5",
                   "curriculum_start is 0.5 and anneal_steps 10000 but token_order is \"random\""},
                  {"token_order = text, anneal_steps = 7",
                   "anneal_steps 7 but token_order is \"text\"; leave both out"},
                  {"curriculum_start = 1.5", "curriculum_start is 1.5"}});
  for (const char* const name : {"gpt", "masked_diffusion", "a3", "as_arm"}) {
    ExpectRefusals(name, SmallLearnedModel(kWindow), OneWaySampling(kWindow),
                   {{"positions = learned_pairs",
                     "do not say the position that they predict; use \"learned\", or sigma_gpt"}});
  }
}

}  // namespace
}  // namespace anyorder::testing
