// The microbatch of the pseudo-masked language model: slots, mask, corruption, readout, refusals.

#include "core/objective/unilm/unilmv2.h"

#include <map>
#include <set>
#include <string>

#include "tests/core/objective/unilm/unilmv2_fixture.h"

namespace anyorder::testing {
namespace {

// The worked figure of the paper: six tokens, first 4 and 5, then 2; columns x1 x3 x6 M2 M4 M5, x4
// x5 x2, P4 P5 P2.
TEST_F(UnilmV2Test, TheRuleOfTheseTestsIsThePapersFigure) {
  const PmlmKind token = PmlmKind::kToken, m = PmlmKind::kM, p = PmlmKind::kP;
  const std::vector<PmlmSlot> slots = {{token, 1, 0}, {token, 3, 0}, {token, 6, 0}, {m, 2, 2},
                                       {m, 4, 1},     {m, 5, 1},     {token, 4, 1}, {token, 5, 1},
                                       {token, 2, 2}, {p, 4, 1},     {p, 5, 1},     {p, 2, 2}};
  const std::string given = "111111......";
  const std::vector<std::string> figure = {given,          given,          given,
                                           given,          given,          given,
                                           "11111111....", "11111111....", "111111111...",
                                           "111111...11.", "111111...11.", "11111111...1"};
  for (size_t row = 0; row < slots.size(); ++row) {
    for (size_t key = 0; key < slots.size(); ++key)
      EXPECT_EQ(PmlmSees(slots[row], slots[key]), figure[row][key] == '1') << row << " " << key;
  }
}

TEST_F(UnilmV2Test, EveryRowSeesWhatTheRuleSaysAndPaddingNothing) {
  int64_t padding = 0, later_steps = 0;
  for (int64_t lane = 0; lane < 40; ++lane) {
    const TextSample sample = Sample(lane);
    const Batch batch = Build(sample);
    const std::vector<PmlmSlot> slots = Slots(sample);
    std::map<int64_t, const PmlmSlot*> by_row, by_key;
    for (const PmlmSlot& slot : slots) {
      by_row[slot.row] = by_key[slot.key] = &slot;
      later_steps += slot.step > 1;
      EXPECT_EQ(batch.row_pos[slot.row], slot.pos);
      EXPECT_EQ(batch.key_pos[slot.key], slot.pos);
    }
    ASSERT_EQ(batch.shape.num_rows(), batch.shape.num_keys());
    padding += batch.shape.num_rows() - static_cast<int64_t>(by_row.size());
    SCOPED_TRACE(lane);
    ExpectSees(batch, [&](int64_t row, int64_t key) {
      const bool both = by_row.count(row) == 1 && by_key.count(key) == 1;
      return both && PmlmSees(*by_row[row], *by_key[key]);
    });
    ExpectDistancesInTable(batch);
  }
  EXPECT_GT(padding, 20) << "the test would not notice padding that is seen";
  EXPECT_GT(later_steps, 100);
}

TEST_F(UnilmV2Test, TheTextBeginsWithClsAndTheCopiesOfATokenShareItsSegment) {
  for (int64_t lane = 0; lane < 8; ++lane) {
    const TextSample sample = Sample(lane);
    const Batch batch = Build(sample);
    EXPECT_EQ(batch.tokens[0], sample.tokens.back());
    for (const PmlmSlot& slot : Slots(sample)) {
      if (slot.kind == PmlmKind::kP) {
        EXPECT_EQ(batch.tokens[slot.row], sample.vocabulary.mask);
      }
      if (slot.kind == PmlmKind::kToken) {
        EXPECT_EQ(batch.tokens[slot.row], Truth(sample, slot.pos))
            << "the true token, masked or not";
      }
      EXPECT_EQ(batch.row_seg[slot.row], batch.row_seg[slot.pos]);
      EXPECT_EQ(batch.key_seg[slot.key], batch.row_seg[slot.pos]);
      EXPECT_EQ(batch.row_seg[slot.row], slot.pos == 0 ? 0 : sample.segment[slot.pos - 1]);
    }
  }
}

TEST_F(UnilmV2Test, BothLossesAskForTheTrueTokenOfEachMaskedPlaceOnce) {
  for (int64_t lane = 0; lane < 20; ++lane) {
    const TextSample sample = Sample(lane);
    const Batch batch = Build(sample);
    std::map<int64_t, int64_t> asked[2];  // row -> label
    std::set<int32_t> rows;
    for (size_t i = 0; i < batch.weights.size(); ++i) {
      rows.insert(batch.readout_rows[i]);
      if (batch.weights[i] == 0) continue;
      EXPECT_EQ(batch.weights[i], 1.0f);
      asked[batch.loss_ids[i]][batch.readout_rows[i]] = batch.labels[i];
    }
    EXPECT_EQ(rows.size(), batch.readout_rows.size()) << "a scatter may not repeat rows";
    std::map<int64_t, int64_t> expected[2];
    for (const PmlmSlot& slot : Slots(sample)) {
      if (slot.kind == PmlmKind::kM) expected[0][slot.row] = Truth(sample, slot.pos);
      if (slot.kind == PmlmKind::kP) expected[1][slot.row] = Truth(sample, slot.pos);
    }
    for (const int loss : {0, 1}) EXPECT_EQ(asked[loss], expected[loss]);
    // L = L_AE + L_PAR, each a mean over the masked tokens.
    EXPECT_EQ(batch.Divisor(), static_cast<double>(expected[0].size()));
  }
  EXPECT_EQ(Make()->Shape(1).loss_names, (std::vector<std::string>{"ae", "par"}));
}

// Counts of what [M] hold, in place of true tokens, over many lanes. An id in 13 is drawn at random
// with 0.1: the mask itself, the true token, or another. True tokens are never the mask.
TEST_F(UnilmV2Test, OriginalsAreKeptMaskedOrWithoutASecondLoss) {
  constexpr double kRandomHit = 0.1 / kSmallVocab;
  struct Case {
    KeptOriginals kept;
    double masks, originals;  // shares of what is hidden
    bool loses_par;           // where the original is kept
  };
  for (const Case& c : {Case{KeptOriginals::kLeak, 0.8 + kRandomHit, 0.1 + kRandomHit, false},
                        Case{KeptOriginals::kMask, 0.9 + 2 * kRandomHit, 0, false},
                        Case{KeptOriginals::kDropPar, 0.8 + kRandomHit, 0.1 + kRandomHit, true}}) {
    SCOPED_TRACE(static_cast<int>(c.kept));
    sampling_.kept_originals = c.kept;
    int64_t all = 0, masks = 0, originals = 0;
    for (int64_t lane = 0; lane < 1500; ++lane) {
      const TextSample sample = Sample(lane);
      const Batch batch = Build(sample);
      const int64_t first_par = batch.shape.targets / 2 - kSlots;
      for (const PmlmSlot& slot : Slots(sample)) {
        if (slot.kind != PmlmKind::kM) continue;
        const int32_t input = batch.tokens[slot.row];
        const bool is_kept = input == Truth(sample, slot.pos);
        ++all;
        originals += is_kept;
        masks += input == sample.vocabulary.mask;
        EXPECT_EQ(batch.weights[first_par + slot.row] == 0, is_kept && c.loses_par);
      }
    }
    ExpectShare(masks, all, c.masks);
    ExpectShare(originals, all, c.originals);
  }
}

TEST_F(UnilmV2Test, OneSampleGivesOneBatchWhateverItsPlace) {
  ExpectSameInAnyPlace(*Make(), Sample(5), Sample(6));
}

TEST_F(UnilmV2Test, UnusableSettingsAreRefusedInOneLine) {
  ExpectRefusals("unilmv2", model_, sampling_,
                 {{"block_min_span = 0", "block_min_span is 0"},
                  {"block_max_span = 17", "block_max_span 17"},
                  {"block_span_prob = 1", "block_span_prob is 1"},
                  {"num_predict = 4", "num_predict is 4"},
                  {"mask_fraction = 0.9, num_predict = 40", "mask_fraction"},
                  {"max_positions = 15", "max_positions is 15"},
                  {"num_segments = 1", "num_segments is 1"},
                  {"random_token_prob = 0.5", "at most 1 together"},
                  {"short_sequence_prob = 0.1, spans = single", "short_sequence_prob"},
                  {[](auto& m, auto&) { m.next_sentence_head = true; }, "next_sentence"}});
}

}  // namespace
}  // namespace anyorder::testing
