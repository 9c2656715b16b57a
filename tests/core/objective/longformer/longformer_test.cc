#include "core/objective/longformer/longformer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/config/attention_windows.h"
#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

ModelConfig Windowed(const std::string& windows) {
  ModelConfig model = SmallLearnedModel(32);
  model.attention_windows = windows;
  return model;
}

SamplingConfig Sampling(int64_t seq_len) { return With(OneWaySampling(seq_len), "spans = single"); }

Batch Build(const ModelConfig& model, const SamplingConfig& sampling, int64_t lane, int64_t step) {
  const std::unique_ptr<Objective> objective = MakeObjectiveOrDie("longformer", model, sampling);
  return BuildBatch(*objective, {RandomSample(sampling, SampleKind::kContiguous, kSmallVocab, lane,
                                              step, false)});
}

// Rows of ones and dots, by the bands of layer 0, head `head`.
std::vector<std::string> Mask(const ModelConfig& model, const Batch& batch, int64_t head) {
  const std::vector<kernels::Band> bands = *AttentionWindows(model);
  std::vector<std::string> rows;
  for (int64_t i = 0; i < batch.shape.content_rows; ++i) {
    rows.emplace_back();
    for (int64_t j = 0; j < batch.shape.num_keys(); ++j) {
      const kernels::Band band = bands.empty() ? kernels::Band() : bands[head];
      rows.back() += kernels::IsVisible(batch.rows(), i, batch.keys(), j, band) ? '1' : '.';
    }
  }
  return rows;
}

// Figure 2 of the paper, drawn by hand for six slots of which the first is CLS: windows of one slot
// to each side; the same with gaps of one slot.
TEST(Longformer, ShowsTheMasksOfThePaper) {
  const ModelConfig model = Windowed("1:1 / 1:1:2");
  const Batch with_cls = Build(model, Sampling(5), 0, 0);
  EXPECT_EQ(Mask(model, with_cls, 0),
            (std::vector<std::string>{"111111", "111...", "1111..", "1.111.", "1..111", "1...11"}));
  SamplingConfig sampling = Sampling(6);
  sampling.global_classifiers = 0;
  EXPECT_EQ(Mask(model, Build(model, sampling, 0, 0), 1),
            (std::vector<std::string>{"1.1...", ".1.1..", "1.1.1.", ".1.1.1", "..1.1.", "...1.1"}));
  EXPECT_EQ(Mask(Windowed(""), with_cls, 0), std::vector<std::string>(6, "111111"));
}

// Pair by pair for other sizes: what is within w of a slot, what is global, and nothing else.
TEST(Longformer, SeesItsWindowAndTheGlobalSlots) {
  for (const int64_t stride : {0, 1, 5, 7}) {
    for (const int64_t classifiers : {0, 1, 3}) {
      SamplingConfig sampling = Sampling(19);
      sampling.global_classifiers = classifiers;
      sampling.global_stride = stride;
      const ModelConfig model = Windowed("3:3");
      const Batch batch = Build(model, sampling, 2, 1);
      std::set<int64_t> global;
      for (int64_t slot = 0; slot < classifiers; ++slot) global.insert(slot);
      for (int64_t place = 0; stride > 0 && place < 19; place += stride)
        global.insert(classifiers + place);
      EXPECT_EQ(std::vector<int32_t>(global.begin(), global.end()), batch.global_slots);
      const std::vector<std::string> mask = Mask(model, batch, 0);
      for (int64_t i = 0; i < 19 + classifiers; ++i) {
        for (int64_t j = 0; j < 19 + classifiers; ++j) {
          const bool expected = std::abs(i - j) <= 3 || global.count(i) > 0 || global.count(j) > 0;
          EXPECT_EQ(mask[i][j] == '1', expected) << i << ", " << j;
          EXPECT_EQ(batch.row_pos[i] - batch.row_pos[j], i - j);
        }
      }
      ExpectDistancesInTable(batch);
    }
  }
}

TEST(Longformer, AsksForTheTrueTokenWhereACorruptedOneStands) {
  const SamplingConfig sampling = Sampling(16);
  const ModelConfig model = Windowed("2:2");
  for (int64_t lane = 0; lane < 8; ++lane) {
    const TextSample sample =
        RandomSample(sampling, SampleKind::kContiguous, kSmallVocab, lane, 3, false);
    const Batch batch = Build(model, sampling, lane, 3);
    EXPECT_EQ(batch.tokens[0], sample.vocabulary.classifier);
    ASSERT_EQ(batch.shape.targets, 5);  // 0.3 of 16
    std::vector<int32_t> rows = batch.readout_rows;
    EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
    EXPECT_EQ(std::unique(rows.begin(), rows.end()), rows.end());
    for (int64_t slot = 1; slot <= 16; ++slot) {
      const auto entry = std::find(batch.readout_rows.begin(), batch.readout_rows.end(), slot);
      if (entry == batch.readout_rows.end()) {
        EXPECT_EQ(batch.tokens[slot], sample.tokens[slot - 1]) << "no target, yet changed";
        continue;
      }
      const auto at = entry - batch.readout_rows.begin();
      EXPECT_EQ(batch.labels[at], sample.tokens[slot - 1]);
      EXPECT_EQ(batch.weights[at], 1.0f);
    }
    EXPECT_EQ(Build(model, sampling, lane, 3).tokens, batch.tokens);
  }
  EXPECT_NE(Build(model, sampling, 0, 3).readout_rows, Build(model, sampling, 0, 4).readout_rows);
}

// Counts over many draws within five deviations of what they are to be.
TEST(Longformer, MasksEveryPlaceAlikeAndInTheSharesOfBert) {
  const SamplingConfig sampling = Sampling(16);
  const ModelConfig model = Windowed("2:2");
  constexpr int64_t kDraws = 4000;
  std::vector<int64_t> by_place(16, 0);
  int64_t masked = 0, kept = 0, targets = 0;
  for (int64_t step = 0; step < kDraws; ++step) {
    const Batch batch = Build(model, sampling, 1, step);
    for (int64_t i = 0; i < batch.shape.targets; ++i) {
      const int32_t row = batch.readout_rows[i];
      ++targets;
      ++by_place[row - 1];
      masked += batch.tokens[row] == 4 ? 1 : 0;
      kept += batch.tokens[row] == batch.labels[i] ? 1 : 0;
    }
  }
  // A random id is <mask>, or the token itself, once in 13.
  ExpectShare(masked, targets, 0.8 + 0.1 / kSmallVocab, "<mask>");
  ExpectShare(kept, targets, 0.1 + 0.1 / kSmallVocab, "kept");
  for (int64_t place = 0; place < 16; ++place)
    ExpectShare(by_place[place], kDraws, 5.0 / 16, "place");
}

// Of a target in the middle, in two layers of windows of two.
TEST(Longformer, ReachesBeyondItsWindowsThroughCls) {
  for (const int64_t classifiers : {0, 1}) {
    SamplingConfig sampling = Sampling(16);
    sampling.mask_fraction = 0.01;  // one target
    sampling.global_classifiers = classifiers;
    ModelConfig model = Windowed("2:2");
    model.global_projections = classifiers > 0;
    const Batch batch = Build(model, sampling, 1, 2);
    ASSERT_EQ(batch.shape.targets, 1);
    ExpectReads(model, batch, [&](int64_t slot, int64_t) {
      return classifiers > 0 || std::abs(slot - batch.readout_rows[0]) <= 2 * 2;
    });
  }
}

TEST(Longformer, RefusesWhatItCannotUse) {
  ExpectRefusals(
      "longformer", Windowed("2:2"), Sampling(16),
      {{"max_positions = 16", "sampling.global_classifiers is 17 but model.max_positions is 16"},
       {"spans = word", "must be \"single\""},
       {"num_predict = 0", "num_predict is 0"},
       {"mask_fraction = 1.5", "mask_fraction is 1.5"},
       {"random_token_prob = 0.3", "at most 1 together"},
       {"global_stride = -1", "global_stride is -1"},
       {"global_classifiers = 17", "global_classifiers=17"},
       {"global_projections = true, global_classifiers = 0", "no slot is global"}});
}

}  // namespace
}  // namespace anyorder::testing
