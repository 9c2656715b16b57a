#include "core/network/weight_transfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/network/model_testing.h"

namespace anyorder::testing {
namespace {

constexpr char kPositions[] = "transformer.position_embedding.weight";

ModelConfig Long(int64_t positions) {
  return With(SmallLearnedModel(positions), "attention_biases = true");
}

ModelConfig Short() { return Long(16); }

std::vector<float> Initial(const ModelConfig& model, uint64_t seed) {
  return InitialParameters(model, kSmallVocab, seed);
}

struct Transferred {
  TransferPlan plan;
  std::vector<float> values;
};

absl::StatusOr<Transferred> Transfer(const ModelConfig& from, const std::vector<float>& values,
                                     const ModelConfig& to,
                                     NewPositions positions = NewPositions::kCopy) {
  const ParameterLayout before(from, kSmallVocab), after(to, kSmallVocab);
  absl::StatusOr<TransferPlan> plan = PlanTransfer(before.parameters(), after, positions);
  if (!plan.ok()) return plan.status();
  Transferred result{*std::move(plan), Initial(to, 77)};
  const auto read = [&](int64_t source, int64_t count, float* out) {
    std::copy_n(values.begin() + source, count, out);
    return absl::OkStatus();
  };
  // In two ranges, as two ranks have it.
  const int64_t cut = after.num_elements() / 3 + 1;
  EXPECT_TRUE(ApplyTransfer(result.plan, 0, cut, result.values.data(), read).ok());
  EXPECT_TRUE(
      ApplyTransfer(result.plan, cut, after.num_elements(), result.values.data() + cut, read).ok());
  return result;
}

// The values of a parameter.
std::vector<float> Of(const ModelConfig& model, const std::vector<float>& values,
                      const std::string& name) {
  return ElementsOf(ParameterLayout(model, kSmallVocab).Find(name), values);
}

SamplingConfig Sampling(int64_t seq_len) {
  return With(OneWaySampling(seq_len), "spans = single, global_classifiers = 0");
}

std::vector<float> Losses(const ModelConfig& model, const std::vector<float>& weights,
                          const Batch& batch) {
  return RunOnce(model, batch, std::vector<double>(weights.begin(), weights.end())).losses;
}

TEST(WeightTransfer, NewPositionsAreTheOldOnesAgainAndAgain) {
  const std::vector<float> old = Initial(Short(), 5);
  const ModelConfig model = Long(43);  // not a multiple
  const Transferred result = *Transfer(Short(), old, model);
  const std::vector<float> before = Of(Short(), old, kPositions);
  const std::vector<float> after = Of(model, result.values, kPositions);
  ASSERT_EQ(after.size(), 43u * 8);
  for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i], before[i / 8 % 16 * 8 + i % 8]);
  EXPECT_EQ(result.plan.positions_before, 16);
  EXPECT_EQ(result.plan.positions_after, 43);
  const ParameterLayout layout(Short(), kSmallVocab);
  for (const ParameterInfo& info : layout.parameters()) {
    if (info.name == kPositions) continue;
    EXPECT_EQ(Of(model, result.values, info.name), Of(Short(), old, info.name)) << info.name;
  }
}

TEST(WeightTransfer, RandomPositionsAreNewBeyondTheOldOnes) {
  const std::vector<float> old = Initial(Short(), 5);
  const ModelConfig model = Long(32);
  const Transferred result = *Transfer(Short(), old, model, NewPositions::kRandom);
  const std::vector<float> before = Of(Short(), old, kPositions);
  const std::vector<float> after = Of(model, result.values, kPositions);
  const std::vector<float> drawn = Of(model, Initial(model, 77), kPositions);
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_EQ(after[i], i < before.size() ? before[i] : drawn[i]);
}

// On text that the short model can read the long one is the same function; windows that cover all
// of it change nothing.
TEST(WeightTransfer, TheLongerModelGivesTheShorterOnesLosses) {
  const std::vector<float> old = Initial(Short(), 5);
  ModelConfig model = Long(48);
  model.attention_windows = "15:15";
  const Transferred result = *Transfer(Short(), old, model);
  const SamplingConfig sampling = Sampling(16);
  const std::unique_ptr<Objective> objective = MakeObjectiveOrDie("longformer", Short(), sampling);
  const Batch batch = RandomBatch(*objective, sampling, kSmallVocab, {3, 8}, {false, false}, 2);
  EXPECT_EQ(Losses(model, result.values, batch), Losses(Short(), old, batch));
  // What the equality could hide: with narrower windows, or another table, losses are others.
  model.attention_windows = "3:3";
  EXPECT_NE(Losses(model, result.values, batch), Losses(Short(), old, batch));
}

// Two texts side by side that do not see each other: the second stands at positions 16 to 31, which
// are copies of 0 to 15.
TEST(WeightTransfer, TheSecondStretchIsReadAsTheFirst) {
  const std::vector<float> old = Initial(Short(), 5);
  const ModelConfig model = Long(32);
  const std::unique_ptr<Objective> objective =
      MakeObjectiveOrDie("longformer", model, Sampling(32));
  Batch batch = RandomBatch(*objective, Sampling(32), kSmallVocab, {1}, {false}, 0);
  for (int64_t slot = 16; slot < 32; ++slot) {
    batch.row_doc[slot] = batch.key_doc[slot] = 1;
    batch.tokens[slot] = batch.tokens[slot - 16];
  }
  for (int64_t i = 0; i < batch.shape.targets; ++i) {
    batch.readout_rows[i] = static_cast<int32_t>(i % 2 == 0 ? i : i - 1 + 16);
    batch.labels[i] = batch.labels[i - i % 2];
  }
  const std::vector<float> copied = Losses(model, Transfer(Short(), old, model)->values, batch);
  const std::vector<float> random =
      Losses(model, Transfer(Short(), old, model, NewPositions::kRandom)->values, batch);
  ASSERT_GE(copied.size(), 4u);
  for (size_t i = 0; i + 1 < copied.size(); i += 2) {
    EXPECT_EQ(copied[i], copied[i + 1]);
    EXPECT_EQ(random[i], copied[i]);
    EXPECT_NE(random[i + 1], copied[i + 1]);
  }
}

// A global slot with copied projections is the slot that it would be with everybody's.
TEST(WeightTransfer, GlobalProjectionsBeginAsTheOthers) {
  const std::vector<float> old = Initial(Short(), 5);
  ModelConfig shared = Long(17), own = Long(17);
  shared.attention_windows = own.attention_windows = "2:2";
  own.global_projections = true;
  SamplingConfig sampling = Sampling(16);
  sampling.global_classifiers = 1;
  const std::unique_ptr<Objective> objective = MakeObjectiveOrDie("longformer", own, sampling);
  const Batch batch = RandomBatch(*objective, sampling, kSmallVocab, {3, 8}, {false, false}, 2);
  const Transferred with_own = *Transfer(Short(), old, own);
  EXPECT_EQ(with_own.plan.projections_copied, 2 * 6);
  for (const char* const part : {"q", "k", "v", "q_bias"}) {
    const std::string layer = "transformer.layer.1.rel_attn.";
    EXPECT_EQ(Of(own, with_own.values, layer + "global_" + part), Of(Short(), old, layer + part));
  }
  const std::vector<float> a = Losses(own, with_own.values, batch);
  const std::vector<float> b = Losses(shared, Transfer(Short(), old, shared)->values, batch);
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-12 + 1e-6 * b[i]);  // losses are reported in fp32
}

TEST(WeightTransfer, TheHeadIsDrawnAndMayBeLeftOut) {
  ModelConfig with_head = Short();
  with_head.next_sentence_head = true;
  const Transferred more = *Transfer(Short(), Initial(Short(), 5), with_head);
  EXPECT_EQ(more.plan.initialised.size(), 4u);
  EXPECT_EQ(Of(with_head, more.values, "logits_proj.weight"),
            Of(with_head, Initial(with_head, 77), "logits_proj.weight"));
  const Transferred less = *Transfer(with_head, Initial(with_head, 5), Short());
  EXPECT_EQ(less.plan.left_out.size(), 4u);
}

TEST(WeightTransfer, OtherModelsAreRefused) {
  const std::vector<float> old = Initial(Short(), 5);
  const auto expect_refused = [&](const ModelConfig& to, const std::string& part) {
    ExpectInvalid(Transfer(Short(), old, to).status(), part);
  };
  expect_refused(Long(15), "position_embedding.weight is [16, 8] in the old model and [15, 8]");
  ModelConfig other = Short();
  other.ffn_dim = 16;
  expect_refused(other, "ff.layer_1.weight is [12, 8] in the old model and [16, 8]");
  other = Short();
  other.num_layers = 3;
  expect_refused(other, "the new model has transformer.layer.2.rel_attn.q");
  other.num_layers = 1;
  expect_refused(other, "the old model has transformer.layer.1.rel_attn.q");
}

}  // namespace
}  // namespace anyorder::testing
