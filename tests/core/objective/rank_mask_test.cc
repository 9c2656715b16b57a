// Which masks ranks can give: every 3 x 3 mask against a search over all ranks, masks that the
// systems' papers draw, and those that objectives are refused for.

#include "core/objective/rank_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/visibility.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// One string a row: 1 is seen.
DenseMask Draw(const std::vector<std::string>& rows) {
  DenseMask mask = {.num_rows = static_cast<int64_t>(rows.size()),
                    .num_keys = static_cast<int64_t>(rows.front().size())};
  for (const std::string& row : rows) {
    for (const char c : row) mask.visible.push_back(c == '1' ? 1 : 0);
  }
  return mask;
}

void ExpectGives(const RankForm& form, const DenseMask& mask) {
  for (int64_t row = 0; row < mask.num_rows; ++row) {
    for (int64_t key = 0; key < mask.num_keys; ++key)
      EXPECT_EQ(form.key[static_cast<size_t>(key)] <= form.lim[static_cast<size_t>(row)],
                mask.At(row, key))
          << row << " " << key;
  }
}

std::string Refusal(const std::vector<std::string>& rows) {
  const absl::Status status = ToRanks(Draw(rows)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  return std::string(status.message());
}

// Three keys need no more than the ranks 0 to 3, 3 being seen by nobody whose lim is at most 2.
TEST(RankMaskTest, ThreeByThreeMasksAreToldApartAsByASearchOverAllRanks) {
  std::set<int> reachable;
  for (int ranks = 0; ranks < 4096; ++ranks) {
    int mask = 0;
    for (int row = 0; row < 3; ++row) {
      for (int key = 0; key < 3; ++key) {
        const int lim = (ranks >> (2 * row)) & 3;
        const int rank = (ranks >> (6 + 2 * key)) & 3;
        if (rank <= lim) mask |= 1 << (3 * row + key);
      }
    }
    reachable.insert(mask);
  }
  int refused = 0;
  for (int bits = 0; bits < 512; ++bits) {
    DenseMask mask{3, 3, {}};
    for (int bit = 0; bit < 9; ++bit) mask.visible.push_back((bits >> bit) & 1);
    const absl::StatusOr<RankForm> form = ToRanks(mask);
    EXPECT_EQ(form.ok(), reachable.contains(bits)) << bits;
    if (form.ok())
      ExpectGives(*form, mask);
    else
      ++refused;
  }
  EXPECT_EQ(refused, 512 - static_cast<int>(reachable.size()));
  EXPECT_GT(refused, 100);
}

TEST(RankMaskTest, MasksOfThePapersHaveRanks) {
  const std::vector<std::vector<std::string>> masks = {
      {"111000", "111100", "111110", "111111"},       // causal, memory of two
      {"1111", "0110", "0010", "0111"},               // XLNet, order 3 2 4 1, content
      {"0111", "0010", "0000", "0110"},               // the same, query rows over content
      {"11000", "11000", "11100", "11110", "11111"},  // UniLM, two of source, three of target
      {"1111", "1111"},                               // BERT
      {"0000", "0000"}};                              // nobody sees anything
  for (const std::vector<std::string>& rows : masks) {
    const DenseMask mask = Draw(rows);
    const RankForm form = ToRanks(mask).value();
    ExpectGives(form, mask);
  }
  EXPECT_EQ(ToRanks(Draw({"110", "100"}))->key, (std::vector<int32_t>{0, 1, kernels::kKeyNever}));
}

TEST(RankMaskTest, TheRowsThatBreakTheChainAreNamed) {
  // Row 0 reads from the left, row 1 from the right.
  EXPECT_THAT(Refusal({"1100", "0011"}),
              AllOf(HasSubstr("row 0 sees key 0 and not key 2"), HasSubstr("row 1 the reverse")));
  // A row that sees all is no part of it, nor one that sees nothing.
  EXPECT_THAT(Refusal({"1111", "0110", "0000", "0011"}),
              AllOf(HasSubstr("row 1 sees key 1 and not key 3"), HasSubstr("row 3 the reverse")));
}

// What WhyInexpressible claims of modes that are masks.
TEST(RankMaskTest, ModesThatAreRefusedByNameHaveNoRanks) {
  const std::vector<std::vector<std::string>> masks = {
      {"1000", "1100", "1110", "0111", "0011", "0001"},          // both directions in one call
      {"11000", "11100", "11010", "11001"},                      // three branches behind a prefix
      {"10100", "11001", "01100", "10010", "00101"},             // random blocks
      {"1001", "1101", "1110", "1111"},                          // random tokens ahead
      {"1110000", "1110000", "0001100", "0001100", "1111111"}};  // a global slot for each part
  for (const std::vector<std::string>& rows : masks) EXPECT_FALSE(ToRanks(Draw(rows)).ok());
}

TEST(RankMaskTest, ObjectivesThatUseRanksAloneGiveThemBack) {
  for (const char* const name : {"permutation_lm", "causal_lm", "dae"}) {
    SCOPED_TRACE(name);
    const auto objective = MakeObjectiveOrDie(name, SmallModel(), SmallSampling());
    const Batch batch = RandomBatch(*objective, SmallSampling(), kSmallVocab, {3}, {false}, 2);
    DenseMask mask{batch.shape.num_rows(), batch.shape.num_keys(), {}};
    for (int64_t row = 0; row < mask.num_rows; ++row)
      for (int64_t key = 0; key < mask.num_keys; ++key)
        mask.visible.push_back(Sees(batch, row, key) ? 1 : 0);
    const RankForm form = ToRanks(mask).value();
    ExpectGives(form, mask);
  }
}

TEST(InexpressibleTest, KnownModesAreRefusedWithTheReasonAndWhatToDoInstead) {
  const std::vector<std::pair<const char*, std::pair<const char*, const char*>>> expected = {
      {"elmo", {"each see what the others do not", "permutation_lm"}},
      {"shared_prefix", {"but not one another", "copy the prefix"}},
      {"bigbird", {"random or learned blocks", "model.attention_windows"}},
      {"per_head_order", {"share one order", "every head its own window"}},
      {"t5", {"encoder's last layer", "prefix LM"}},
      {"etc", {"of one class", "one class of global slots"}},
      {"random_annealing", {"drawn for it alone", "annealing = \"band\""}}};
  for (const auto& [name, parts] : expected) {
    const absl::Status status = MakeObjective(name, SmallModel(), SmallSampling()).status();
    for (const std::string part : {name, parts.first, parts.second}) ExpectInvalid(status, part);
  }
}

TEST(InexpressibleTest, WhatIsUnknownIsNotCalledInexpressible) {
  EXPECT_EQ(WhyInexpressible(""), "");
  EXPECT_EQ(WhyInexpressible("permutaton_lm"), "");
}

}  // namespace
}  // namespace anyorder::testing
