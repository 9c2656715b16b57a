// Random lanes of an objective, and expectations on microbatches that the objectives share.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/objective/generation_form.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::testing {

// One objective, whose settings a test may change before it builds lanes.
class LanesTest : public ::testing::Test {
 protected:
  LanesTest(std::string name, ModelConfig model, const SamplingConfig& sampling)
      : model_(std::move(model)), sampling_(sampling), name_(std::move(name)) {}

  std::unique_ptr<Objective> Make() const { return MakeObjectiveOrDie(name_, model_, sampling_); }
  TextSample Sample(int64_t lane, int64_t step = 3, bool backward = false) const {
    return RandomSample(sampling_, Make()->sample_kind(), kSmallVocab, lane, step, backward);
  }
  Batch Build(const TextSample& sample) const { return BuildBatch(*Make(), {sample}); }

  ModelConfig model_;
  SamplingConfig sampling_;

 private:
  const std::string name_;
};

// Expects an event of probability p in its share of `tries` independent draws, within five
// deviations.
inline void ExpectShare(int64_t count, int64_t tries, double p, const char* what = "") {
  const auto n = static_cast<double>(tries);
  EXPECT_NEAR(static_cast<double>(count) / n, p, 5 * std::sqrt(p * (1 - p) / n)) << what;
}

// Expects each row of a microbatch of one lane to see each key exactly where rule(row, key).
template <typename Rule>
void ExpectSees(const Batch& batch, const Rule& rule) {
  for (int64_t row = 0; row < batch.shape.num_rows(); ++row) {
    for (int64_t key = 0; key < batch.shape.num_keys(); ++key)
      ASSERT_EQ(Sees(batch, row, key), rule(row, key)) << "row " << row << ", key " << key;
  }
}

// Ends a document at each of these places, and nowhere else, with the token 7.
inline void EndDocumentsAt(const std::vector<int64_t>& ends, TextSample& sample) {
  sample.vocabulary.end_of_document = 7;
  for (int32_t& token : sample.tokens) token = token == 7 ? 8 : token;
  for (const int64_t end : ends) sample.tokens[end] = 7;
}

// Expects each token of one lane that is `mask` to weigh 0.5 * 0.3 * 0.7^(distance - 1) for each
// other token that counts(token, other), and all others nothing. Entry i asks for token i + first.
template <typename Counts>
void ExpectCartWeights(const Batch& batch, int32_t mask, int64_t first, const Counts& counts) {
  for (int64_t i = first; i < batch.shape.content_rows; ++i) {
    double expected = 0;
    for (int64_t j = 0; j < batch.shape.content_rows; ++j) {
      if (batch.tokens[j] != mask && counts(i, j))
        expected += 0.15 * std::pow(0.7, std::abs(i - j) - 1);
    }
    EXPECT_NEAR(batch.weights[i - first], batch.tokens[i] == mask ? expected : 0, 1e-6 * expected);
  }
}

// Expects every pair that sees one another to have a distance of the batch's table.
inline void ExpectDistancesInTable(const Batch& batch) {
  for (int64_t row = 0; row < batch.shape.num_rows(); ++row) {
    for (int64_t key = 0; key < batch.shape.num_keys(); ++key) {
      if (!Sees(batch, row, key)) continue;
      const int64_t entry = batch.row_pos[row] - batch.key_pos[key] - batch.shape.min_distance;
      ASSERT_TRUE(entry >= 0 && entry < batch.shape.num_distances) << row << " " << key;
    }
  }
}

// Expects lane b to be asked, in order, for the true tokens of the sample's masked places, which
// stand `shift` slots further on, and a readout without repeated rows.
inline void ExpectAsksForMasked(const Batch& batch, int64_t b, const TextSample& sample,
                                int64_t shift) {
  std::vector<int64_t> asked, masked;
  for (int64_t i = b * batch.shape.targets; i < (b + 1) * batch.shape.targets; ++i) {
    if (batch.weights[i] == 0) continue;
    EXPECT_EQ(batch.weights[i], 1.0f);
    asked.push_back(batch.readout_rows[i] - ContentRow(batch.shape, b) - shift);
    EXPECT_EQ(batch.labels[i], sample.tokens[asked.back()]);
  }
  for (size_t place = 0; place < sample.is_masked.size(); ++place) {
    if (sample.is_masked[place] != 0) masked.push_back(static_cast<int64_t>(place));
  }
  EXPECT_EQ(asked, masked);
  std::vector<int32_t> rows = batch.readout_rows;
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(std::unique(rows.begin(), rows.end()), rows.end()) << "a scatter may not repeat rows";
}

// On the network itself: expects another true token at a masked place, under the same input, to
// change that target's loss and no other, and no memory. Places stand `shift` slots further on.
inline void ExpectPredictedFromTheInputAlone(const Objective& objective, const ModelConfig& model,
                                             const TextSample& sample, int64_t shift) {
  const Batch batch = BuildBatch(objective, {sample});
  ModelRunner runner(model, kSmallVocab, batch.shape);
  const std::vector<double> weights = InitialWeights(model, kSmallVocab, 41);
  const ModelRunner::Result result = runner.Run(batch, weights, {}, false);
  for (size_t entry = 0; entry < batch.readout_rows.size(); ++entry) {
    TextSample renamed = sample;
    int32_t& token = renamed.tokens[batch.readout_rows[entry] - shift];
    token = (token + 1) % kSmallVocab;
    const ModelRunner::Result other =
        runner.Run(BuildBatch(objective, {renamed}), weights, {}, false);
    for (size_t i = 0; i < other.losses.size(); ++i)
      EXPECT_EQ(other.losses[i] != result.losses[i], i == entry) << i << " of " << entry;
    EXPECT_EQ(other.memory, result.memory);
  }
}

// Expects a lane to be the same alone and in the second place of a microbatch, over what another
// sample left there.
inline void ExpectSameInAnyPlace(const Objective& objective, const TextSample& sample,
                                 const TextSample& other) {
  Batch two = BuildBatch(objective, {other, other});
  objective.BuildLane(sample, 1, two);
  const Batch alone = BuildBatch(objective, {sample});
  const auto expect_tail = [&](const auto& array) {
    const auto& part = alone.*array;
    EXPECT_EQ(
        std::vector((two.*array).end() - static_cast<int64_t>(part.size()), (two.*array).end()),
        part);
  };
  for (const auto& array : {&Batch::tokens, &Batch::key_pos, &Batch::key_key, &Batch::key_grp,
                            &Batch::key_doc, &Batch::labels})
    expect_tail(array);
  expect_tail(&Batch::weights);
  expect_tail(&Batch::divisors);
  EXPECT_NE(two.tokens, std::vector<int32_t>(two.tokens.size(), two.tokens[0]));
}

// Expects a slot of generation to be what training has in row `row`, with this token.
inline void ExpectSlot(const Slot& slot, const Batch& batch, int64_t row, int32_t token) {
  EXPECT_EQ(slot.token, token);
  EXPECT_EQ(slot.pos, batch.row_pos[row]);
  EXPECT_EQ(slot.lim, batch.row_lim[row]);
  EXPECT_EQ(slot.key, batch.key_key[row]);
  EXPECT_EQ(slot.grp >= 0, batch.row_grp[row] >= 0);
  EXPECT_EQ(slot.seg, batch.row_seg[row]);
  EXPECT_EQ(slot.doc, 0);
}

}  // namespace anyorder::testing
