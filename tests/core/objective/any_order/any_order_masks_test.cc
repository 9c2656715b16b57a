// Who sees whom in today's any-order models, against rules written from their papers and released
// code.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

constexpr int64_t kLength = 16;
constexpr const char* kNames[] = {"masked_diffusion", "block_diffusion", "eso_lm", "a3", "as_arm"};
constexpr const char* kDiffusion[] = {"masked_diffusion", "block_diffusion"};
constexpr int32_t kMask = 4;  // of RandomSample

ModelConfig WithoutMemory() { return With(SmallModel(), "mem_len = 0"); }

TextSample Sample(int64_t lane, int64_t step = 3) {
  return RandomSample(OneWaySampling(), SampleKind::kContiguous, kSmallVocab, lane, step, false);
}

Batch Build(const std::string& name, const AnyOrderConfig& config, const TextSample& sample) {
  const SamplingConfig sampling = OneWaySampling(kLength, config);
  return BuildBatch(*MakeObjectiveOrDie(name, WithoutMemory(), sampling), {sample});
}

// What must hold of any batch: no pair is further apart than the shape says, no readout row is
// named twice.
void ExpectSound(const Batch& batch) {
  ExpectDistancesInTable(batch);
  const std::set<int32_t> rows(batch.readout_rows.begin(), batch.readout_rows.end());
  EXPECT_EQ(rows.size(), batch.readout_rows.size());
  for (size_t i = 0; i < batch.weights.size(); ++i) {
    if (batch.weights[i] == 0) continue;
    EXPECT_NE(batch.row_doc[batch.readout_rows[i]], kernels::kDocPad);
  }
}

// Weighted entries name a <mask> and ask for the true token of its position; all other slots of
// `first..first+kLength` are true.
void ExpectReadsMasks(const Batch& batch, const TextSample& sample, int64_t entry, int64_t first) {
  for (int64_t i = 0; i < kLength; ++i) {
    const int64_t row = first + i;
    EXPECT_EQ(batch.readout_rows[entry + i], row);
    EXPECT_EQ(batch.row_pos[row], i);
    EXPECT_EQ(batch.labels[entry + i], sample.tokens[i]);
    const bool is_target = batch.weights[entry + i] > 0;
    if (batch.row_doc[row] == kernels::kDocPad) continue;
    EXPECT_EQ(batch.tokens[row], is_target ? kMask : sample.tokens[i]);
  }
}

TEST(MaskedDiffusionTest, EverybodySeesEverybodyAndMasksArePredicted) {
  for (int64_t lane = 0; lane < 8; ++lane) {
    const TextSample sample = Sample(lane);
    const Batch batch = Build("masked_diffusion", {}, sample);
    ExpectSound(batch);
    ExpectReadsMasks(batch, sample, 0, 0);
    EXPECT_EQ(batch.divisors, std::vector<double>{kLength});
    ExpectSees(batch, [](int64_t, int64_t) { return true; });
  }
}

// At step s each token sees what is left of it and floor(T' min(1, (s + 1) / steps)) tokens on its
// right, T' = T - 1: none at first, all at last. The draws are those of any run.
TEST(MaskedDiffusionTest, AttentionOpensOverTheSteps) {
  for (const int64_t steps : {1, 7, 40}) {
    const AnyOrderConfig config = {.annealing = Annealing::kBand, .anneal_steps = steps};
    for (int64_t step = 0; step < steps + 2; ++step) {
      const TextSample sample = Sample(2, step);
      const Batch batch = Build("masked_diffusion", config, sample);
      ExpectSound(batch);
      ExpectReadsMasks(batch, sample, 0, 0);
      const double share =
          std::min(1.0, static_cast<double>(step + 1) / static_cast<double>(steps));
      const auto ahead = static_cast<int64_t>(std::floor((kLength - 1) * share + 1e-9));
      ExpectSees(batch, [&](int64_t row, int64_t key) { return key <= row + ahead; });
      const Batch plain = Build("masked_diffusion", {}, sample);
      EXPECT_EQ(batch.tokens, plain.tokens);
      EXPECT_EQ(batch.weights, plain.weights);
      if (step + 1 < steps) continue;
      EXPECT_EQ(batch.row_lim, plain.row_lim);
      EXPECT_EQ(batch.key_key, plain.key_key);
    }
  }
}

// LLaDA: in some steps all sequences have one random length, and the loss is divided by that.
TEST(MaskedDiffusionTest, ShortStepsHaveOneLengthAndNothingBeyond) {
  const AnyOrderConfig config = {.random_length_prob = 0.5};
  std::set<double> lengths;
  int short_steps = 0;
  for (int64_t step = 0; step < 400; ++step) {
    const Batch batch = Build("masked_diffusion", config, Sample(0, step));
    const auto length = static_cast<int64_t>(batch.divisors[0]);
    EXPECT_EQ(Build("masked_diffusion", config, Sample(5, step)).divisors, batch.divisors);
    lengths.insert(batch.divisors[0]);
    if (length < kLength) ++short_steps;
    if (step > 20) continue;
    ExpectSound(batch);
    ExpectSees(batch, [&](int64_t row, int64_t key) { return row < length && key < length; });
    for (int64_t row = length; row < kLength; ++row) EXPECT_EQ(batch.weights[row], 0);
  }
  EXPECT_EQ(lengths.size(), static_cast<size_t>(kLength));
  // Half of the steps, 15 of 16 of which are shorter: 187.5 with a standard deviation of 10.
  EXPECT_NEAR(short_steps, 187.5, 50);
}

// DiffuLLaMA divides by the masked tokens of the step. Lanes add theirs up, so that the quotient is
// over all lanes whatever microbatch each is in: never a mean of the lanes' own quotients.
TEST(MaskedDiffusionTest, MaskedTokensOfTheWholeStepCanBeTheDivisor) {
  for (const char* const name : kDiffusion) {
    const SamplingConfig sampling = OneWaySampling(kLength, {.loss_divisor = LossDivisor::kMasked});
    const auto objective = MakeObjectiveOrDie(name, WithoutMemory(), sampling);
    double of_microbatches = 0, masked = 0;
    for (int64_t lane = 0; lane < 8; lane += 2) {
      const Batch batch = BuildBatch(*objective, {Sample(lane), Sample(lane + 1)});
      of_microbatches += batch.Divisor();
      masked += static_cast<double>(std::count(batch.tokens.begin(), batch.tokens.end(), kMask));
    }
    EXPECT_EQ(of_microbatches, masked);
    std::vector<TextSample> all;
    for (int64_t lane = 0; lane < 8; ++lane) all.push_back(Sample(lane));
    EXPECT_EQ(BuildBatch(*objective, all).Divisor(), masked);
  }
}

TEST(AnyOrderTest, TheFirstTokenCanBeGiven) {
  const AnyOrderConfig config = {.mask_rate_min = 0.9, .keep_first_token = true};
  for (int64_t lane = 0; lane < 8; ++lane) {
    for (const char* const name : kDiffusion) {
      const TextSample sample = Sample(lane);
      const Batch batch = Build(name, config, sample);
      const int64_t first = batch.shape.content_rows - kLength;
      ExpectReadsMasks(batch, sample, 0, first);
      EXPECT_EQ(batch.tokens[first], sample.tokens[0]);
      EXPECT_EQ(batch.weights[0], 0);
      EXPECT_EQ(batch.divisors, std::vector<double>{kLength - 1});
    }
  }
}

// Dream and DiffuLLaMA read token i where the slots hold token i - 1. Blocks: where all of the text
// that the block may see is seen, and nothing of the block that it must not.
TEST(AnyOrderTest, AShiftedReadoutAsksTheSlotBefore) {
  AnyOrderConfig config = {.keep_first_token = true, .shifted_readout = true, .block_len = 4};
  for (const char* const name : kDiffusion) {
    const TextSample sample = Sample(3);
    const Batch batch = Build(name, config, sample);
    ExpectSound(batch);
    config.shifted_readout = false;
    const Batch same_position = Build(name, config, sample);
    config.shifted_readout = true;
    EXPECT_EQ(batch.weights, same_position.weights);
    EXPECT_EQ(batch.labels, same_position.labels);
    EXPECT_EQ(batch.tokens, same_position.tokens);
    const bool has_blocks = batch.shape.content_rows > kLength;
    for (int64_t i = 1; i < kLength; ++i) {
      const int32_t row = batch.readout_rows[i];
      EXPECT_EQ(batch.row_pos[row], i - 1);
      for (int64_t key = 0; key < batch.shape.num_keys(); ++key) {
        const bool is_clean = has_blocks && key < kLength;
        const int64_t block = has_blocks ? i / 4 : 0;
        const int64_t key_block = has_blocks ? key % kLength / 4 : 0;
        // A block's first token is asked for before its slots are read.
        const bool expected =
            is_clean ? key_block < block : key_block == block && (!has_blocks || i % 4 != 0);
        EXPECT_EQ(Sees(batch, row, key), expected) << name << " " << i << " " << key;
      }
    }
  }
}

// <eod> is predicted at its own slot, or by the slot before it: it belongs to the document that it
// ends, or, where its slot predicts the next token, to the one that begins there.
TEST(AnyOrderTest, HiddenDocumentsAreSeenByNobodyElse) {
  for (const bool shifted : {false, true}) {
    for (const char* const name : kDiffusion) {
      SamplingConfig sampling = OneWaySampling();
      sampling.hide_documents = true;
      sampling.any_order.keep_first_token = sampling.any_order.shifted_readout = shifted;
      TextSample sample = Sample(5);
      EndDocumentsAt({2, 9, 10}, sample);
      const auto document = [&](int64_t i) {
        return std::count(sample.tokens.begin(), sample.tokens.begin() + i + (shifted ? 1 : 0), 7);
      };
      const auto hiding = MakeObjectiveOrDie(name, WithoutMemory(), sampling);
      EXPECT_EQ(hiding->evaluation_note(), "no token sees other documents of its window; ");
      EXPECT_NE(hiding->quantity().find("token"), std::string::npos);
      EXPECT_TRUE(hiding->quantity().ends_with(", given where documents end"));
      const Batch batch = BuildBatch(*hiding, {sample});
      ExpectSound(batch);
      sampling.hide_documents = false;
      const auto showing = MakeObjectiveOrDie(name, WithoutMemory(), sampling);
      EXPECT_EQ(showing->evaluation_note(), "");
      const Batch open = BuildBatch(*showing, {sample});
      EXPECT_EQ(batch.weights, open.weights);
      EXPECT_EQ(batch.tokens, open.tokens);
      ExpectSees(batch, [&](int64_t row, int64_t key) {
        return Sees(open, row, key) && document(row % kLength) == document(key % kLength);
      });
    }
  }
}

TEST(BlockDiffusionTest, SingleTokensAreOnlyWithTheirWeightsAnNll) {
  const auto quantity = [](const AnyOrderConfig& config) {
    const SamplingConfig sampling = OneWaySampling(kLength, config);
    return MakeObjectiveOrDie("block_diffusion", WithoutMemory(), sampling)->quantity();
  };
  EXPECT_EQ(quantity({.block_len = 1}), "NLL of each token given those before it");
  EXPECT_EQ(quantity({.keep_first_token = true, .block_len = 1}),
            "NLL of each token but the first given those before it");
  for (const AnyOrderConfig& config : {AnyOrderConfig{.loss_weight = LossWeight::kTime},
                                       AnyOrderConfig{.loss_weight = LossWeight::kOne},
                                       AnyOrderConfig{.loss_divisor = LossDivisor::kMasked}}) {
    AnyOrderConfig single = config;
    single.block_len = 1;
    EXPECT_EQ(quantity(single), quantity(config));
  }
}

// Masked tokens weigh by the unmasked ones of what they may see.
TEST(MaskedDiffusionTest, CartWeighsMaskedTokensByTheUnmaskedOfTheirDocument) {
  SamplingConfig sampling = OneWaySampling();
  sampling.any_order.loss_weight = LossWeight::kCart;
  for (const bool hides : {false, true}) {
    sampling.hide_documents = hides;
    const auto objective = MakeObjectiveOrDie("masked_diffusion", WithoutMemory(), sampling);
    for (int64_t lane = 0; lane < 4; ++lane) {
      TextSample sample = Sample(lane);
      EndDocumentsAt({6}, sample);
      const Batch batch = BuildBatch(*objective, {sample});
      EXPECT_EQ(batch.divisors, std::vector<double>{kLength});
      ExpectCartWeights(batch, kMask, 0,
                        [&](int64_t i, int64_t j) { return !hides || (i <= 6) == (j <= 6); });
    }
  }
}

// A step that masks nothing is a loss of 0, which changes no other step's divisor.
TEST(MaskedDiffusionTest, NoMaskedTokenIsNoDivisionByZero) {
  const AnyOrderConfig config = {.mask_rate_min = 1e-9,
                                 .mask_rate_max = 1e-9,
                                 .loss_weight = LossWeight::kOne,
                                 .loss_divisor = LossDivisor::kMasked};
  const Batch batch = Build("masked_diffusion", config, Sample(1));
  EXPECT_EQ(batch.TargetWeight(), 0);
  EXPECT_GT(batch.Divisor(), 0);
  EXPECT_EQ(3 + batch.Divisor(), 3);
  EXPECT_LT(1 / batch.Divisor(), std::numeric_limits<float>::max());
}

// The three parts of the released mask (bd3lm): block diagonal, offset block causal, block causal.
TEST(BlockDiffusionTest, NoisedBlocksSeeThemselvesAndCleanBlocksBeforeThem) {
  for (const int64_t block_len : {1, 2, 4, 16}) {
    for (int64_t lane = 0; lane < 4; ++lane) {
      const TextSample sample = Sample(lane);
      const Batch batch = Build("block_diffusion", {.block_len = block_len}, sample);
      ExpectSound(batch);
      ExpectReadsMasks(batch, sample, 0, kLength);
      EXPECT_EQ(batch.divisors, std::vector<double>{kLength});
      ASSERT_EQ(batch.shape.num_rows(), 2 * kLength);
      for (int64_t row = 0; row < 2 * kLength; ++row) {
        EXPECT_TRUE(row >= kLength || batch.tokens[row] == sample.tokens[row]);
        EXPECT_EQ(batch.row_pos[row], row % kLength);
      }
      ExpectSees(batch, [&](int64_t row, int64_t key) {
        const bool row_is_clean = row < kLength;
        const bool key_is_clean = key < kLength;
        const int64_t row_block = row % kLength / block_len;
        const int64_t key_block = key % kLength / block_len;
        const bool diagonal = row_block == key_block && row_is_clean == key_is_clean;
        const bool offset = row_block > key_block && key_is_clean && !row_is_clean;
        const bool causal = row_block >= key_block && key_is_clean && row_is_clean;
        return diagonal || offset || causal;
      });
    }
  }
}

// Slots [first, first + kLength) sorted as Eso-LM's code sorts its input: clean ones first; within
// each kind by how much they see.
std::vector<int64_t> Sorted(const Batch& batch, int64_t first, const std::vector<bool>& is_masked) {
  std::vector<int64_t> slots(kLength);
  std::vector<int64_t> seen(kLength, 0);
  for (int64_t i = 0; i < kLength; ++i) {
    slots[i] = i;
    for (int64_t key = 0; key < batch.shape.num_keys(); ++key)
      seen[i] += Sees(batch, first + i, key) ? 1 : 0;
  }
  std::stable_sort(slots.begin(), slots.end(), [&](int64_t a, int64_t b) {
    return is_masked[a] != is_masked[b] ? is_masked[b] : seen[a] < seen[b];
  });
  return slots;
}

struct EsoCase {
  EsoForm form;
  // The released masks over sorted tokens with `c` clean ones (dit.py: _causal_mask, _mixed_mask,
  // _mixed2_mask).
  std::function<bool(int64_t q, int64_t k, int64_t c)> rule;
};
const EsoCase kEsoCases[] = {
    {EsoForm::kA, [](int64_t q, int64_t k, int64_t c) { return q >= k || (q < c && k < c); }},
    {EsoForm::kB, [](int64_t q, int64_t k, int64_t) { return q >= k; }},
    {EsoForm::kMixed, [](int64_t q, int64_t k, int64_t c) { return q >= k || q >= c; }},
};

TEST(EsoLmTest, TheDiffusionPhaseHasTheReleasedMaskOverSortedTokens) {
  for (const EsoCase& form : kEsoCases) {
    int orders_beside_text = 0;
    for (int64_t lane = 0; lane < 8; ++lane) {
      const TextSample sample = Sample(lane);
      const Batch batch = Build("eso_lm", {.eso_form = form.form}, sample);
      ExpectSound(batch);
      ExpectReadsMasks(batch, sample, 0, 0);
      EXPECT_EQ(batch.divisors, std::vector<double>{kLength});
      std::vector<bool> is_masked;
      for (int64_t i = 0; i < kLength; ++i) is_masked.push_back(batch.tokens[i] == kMask);
      const auto clean = std::count(is_masked.begin(), is_masked.end(), false);
      const std::vector<int64_t> slots = Sorted(batch, 0, is_masked);
      if (!std::is_sorted(slots.begin(), slots.begin() + clean)) ++orders_beside_text;
      if (!std::is_sorted(slots.begin() + clean, slots.end())) ++orders_beside_text;
      for (int64_t q = 0; q < kLength; ++q)
        for (int64_t k = 0; k < kLength; ++k)
          EXPECT_EQ(Sees(batch, slots[q], slots[k]), form.rule(q, k, clean)) << q << " " << k;
    }
    EXPECT_GT(orders_beside_text, 2) << "what has an order has a random one";
  }
}

// _block_diff_mask with blocks of one over sorted tokens, and with the clean tokens of z_0 as a
// prefix in form A.
TEST(EsoLmTest, TheSequentialPhaseIsBlockDiffusionOfSingleTokensInOrder) {
  for (const EsoCase& form : kEsoCases) {
    for (int64_t lane = 0; lane < 8; ++lane) {
      const TextSample sample = Sample(lane);
      const Batch batch = Build("eso_lm", {.eso_form = form.form}, sample);
      const int64_t x = kLength;
      const int64_t z = 2 * kLength;
      ExpectReadsMasks(batch, sample, kLength, z);
      std::vector<bool> is_masked;
      for (int64_t i = 0; i < kLength; ++i) {
        is_masked.push_back(batch.weights[kLength + i] == 1);
        EXPECT_EQ(batch.tokens[x + i], sample.tokens[i]);
        EXPECT_EQ(batch.row_doc[z + i] == kernels::kDocPad, !is_masked[i]);
      }
      const auto clean = std::count(is_masked.begin(), is_masked.end(), false);
      const std::vector<int64_t> slots = Sorted(batch, x, is_masked);
      EXPECT_TRUE(std::is_sorted(slots.begin() + clean, slots.end())) << "from left to right";
      for (int64_t q = 0; q < kLength; ++q) {
        for (int64_t k = 0; k < kLength; ++k) {
          const bool prefix = form.form == EsoForm::kA && q < clean && k < clean;
          EXPECT_EQ(Sees(batch, x + slots[q], x + slots[k]), q >= k || prefix);
          EXPECT_FALSE(Sees(batch, x + slots[q], z + slots[k]));
          const bool is_query = q >= clean;
          EXPECT_EQ(Sees(batch, z + slots[q], x + slots[k]), is_query && q > k);
          EXPECT_EQ(Sees(batch, z + slots[q], z + slots[k]), is_query && q == k);
          // The phases are two documents.
          EXPECT_FALSE(Sees(batch, q, x + k) || Sees(batch, q, z + k) || Sees(batch, x + k, q) ||
                       Sees(batch, z + k, q));
        }
      }
    }
  }
}

TEST(EsoLmTest, SharesOfZeroAndOneLeaveOnePhase) {
  const Batch diffusion = Build("eso_lm", {.diffusion_share = 1}, Sample(2));
  EXPECT_EQ(diffusion.shape.content_rows, kLength);
  EXPECT_EQ(diffusion.shape.targets, kLength);
  const Batch sequence = Build("eso_lm", {.diffusion_share = 0}, Sample(2));
  EXPECT_EQ(sequence.shape.content_rows, 2 * kLength);
  EXPECT_EQ(sequence.weights, std::vector<float>(kLength, 1.0f));
}

// alpha_t = alpha_0 (1 - t) and z_0 with alpha_0: how many tokens are masked, and what they weigh.
TEST(EsoLmTest, RatesAndWeightsAreThoseOfTheSchedule) {
  double masked = 0, weight = 0, sequential = 0;
  constexpr int kDraws = 4000;
  for (int64_t step = 0; step < kDraws; ++step) {
    const Batch batch = Build("eso_lm", {.diffusion_share = 0.25}, Sample(1, step));
    for (int64_t i = 0; i < kLength; ++i) {
      masked += batch.weights[i] > 0 ? 1 : 0;
      weight += batch.weights[i];
      sequential += batch.weights[kLength + i];
    }
  }
  // Means a token; each token's indicator has a deviation below 1/2, tokens of a draw share at most
  // their rate.
  const double draws = kDraws * kLength;
  EXPECT_NEAR(masked / draws, 1 - 0.25 / 2, 0.02);
  EXPECT_NEAR(weight / draws, 0.25, 0.01);
  EXPECT_NEAR(sequential / draws, 0.75, 0.02);
}

// Groups are told by who sees whom: mutually visible content slots are one group.
TEST(A3Test, ContentSeesUpToItsGroupAndQueriesSeeBelow) {
  for (const GroupOrder order : {GroupOrder::kText, GroupOrder::kBlocks, GroupOrder::kRandom}) {
    const AnyOrderConfig config = {.group_len_min = 2, .group_len_max = 3, .group_order = order};
    int broken_groups = 0, steps_back = 0;
    for (int64_t lane = 0; lane < 20; ++lane) {
      const TextSample sample = Sample(lane);
      const Batch batch = Build("a3", config, sample);
      ExpectSound(batch);
      ASSERT_EQ(batch.shape.query_rows, kLength);
      const std::vector<int32_t> group(batch.key_key.begin(), batch.key_key.end());
      std::vector<int64_t> sizes(kLength, 0);
      for (int64_t i = 0; i < kLength; ++i) {
        ++sizes[group[i]];
        if (i > 0 && group[i] < group[i - 1]) ++steps_back;
        EXPECT_EQ(batch.labels[i], sample.tokens[i]);
        EXPECT_EQ(batch.weights[i], 1);
        EXPECT_EQ(batch.readout_rows[i], kLength + i);
        EXPECT_EQ(batch.row_pos[kLength + i], i);
        for (int64_t j = 0; j < kLength; ++j) {
          EXPECT_EQ(Sees(batch, i, j), group[i] >= group[j]);
          EXPECT_EQ(Sees(batch, kLength + i, j), group[i] > group[j]);
        }
      }
      // Groups are numbered from 0 without gaps; at most one is cut short.
      const auto groups = *std::max_element(group.begin(), group.end()) + 1;
      int cut = 0;
      for (int32_t g = 0; g < groups; ++g) {
        EXPECT_TRUE(sizes[g] >= 1 && sizes[g] <= 3) << sizes[g];
        cut += sizes[g] == 1 ? 1 : 0;
        const auto first = std::find(group.begin(), group.end(), g) - group.begin();
        for (int64_t i = first; i < first + sizes[g]; ++i)
          broken_groups += i >= kLength || group[i] != g ? 1 : 0;
      }
      EXPECT_LE(cut, 1);
    }
    EXPECT_EQ(broken_groups > 0, order == GroupOrder::kRandom);
    EXPECT_EQ(steps_back > 0, order != GroupOrder::kText);
  }
}

TEST(AsArmTest, ThePromptSeesItselfAndTheOthersReadOnFromLeftToRight) {
  const AnyOrderConfig config = {.prompt_fraction_min = 0.2, .prompt_fraction_max = 0.8};
  std::set<int64_t> prompt_lengths;
  for (int64_t lane = 0; lane < 40; ++lane) {
    const TextSample sample = Sample(lane);
    const Batch batch = Build("as_arm", config, sample);
    ExpectSound(batch);
    std::vector<bool> is_prompt(kLength, true);
    for (int64_t e = 0; e < batch.shape.targets; ++e) {
      const int32_t row = batch.readout_rows[e];
      EXPECT_EQ(row, kLength + e);
      if (batch.weights[e] == 0) {
        for (int64_t j = 0; j < kLength; ++j) EXPECT_FALSE(Sees(batch, row, j));
        continue;
      }
      EXPECT_EQ(batch.weights[e], 1);
      EXPECT_EQ(batch.labels[e], sample.tokens[batch.row_pos[row]]);
      is_prompt[batch.row_pos[row]] = false;
    }
    prompt_lengths.insert(std::count(is_prompt.begin(), is_prompt.end(), true));
    for (int64_t i = 0; i < kLength; ++i)
      for (int64_t j = 0; j < kLength; ++j)
        EXPECT_EQ(Sees(batch, i, j), is_prompt[j] || (!is_prompt[i] && j <= i)) << i << " " << j;
    for (int64_t e = 0; e < batch.shape.targets; ++e) {
      if (batch.weights[e] == 0) continue;
      const int64_t i = batch.row_pos[kLength + e];
      for (int64_t j = 0; j < kLength; ++j)
        EXPECT_EQ(Sees(batch, kLength + e, j), is_prompt[j] || j < i) << i << " " << j;
    }
  }
  EXPECT_EQ(*prompt_lengths.begin(), 3);
  EXPECT_EQ(*prompt_lengths.rbegin(), 13);
  EXPECT_EQ(prompt_lengths.size(), 11u);
}

TEST(AnyOrderTest, ALaneDoesNotDependOnItsPlaceInTheMicrobatch) {
  for (const char* const name : kNames) {
    SCOPED_TRACE(name);
    ExpectSameInAnyPlace(*MakeObjectiveOrDie(name, WithoutMemory(), OneWaySampling()), Sample(9),
                         Sample(6));
  }
}

TEST(AnyOrderTest, SettingsThatCannotBeUsedAreRefused) {
  const auto expect = [](const char* name, const std::vector<Refusal>& refusals) {
    ExpectRefusals(name, WithoutMemory(), OneWaySampling(), refusals);
  };
  for (const char* const name : kNames) {
    expect(name, {{[](auto& m, auto&) { m.next_sentence_head = true; }, "reads no sentence pairs"},
                  {"same_length = torch", "use causal_lm"}});
  }
  const Refusal own_strata = {"stratified_rates = false, rate_strata = own",
                              "rate_strata is \"own\" but stratified_rates is false"};
  for (const char* const name : {"masked_diffusion", "block_diffusion", "eso_lm"}) {
    expect(name, {{"mask_rate_min = 0", "mask_draw = \"count\""},
                  {"mask_rate_max = 1.5", "mask_rate_max is 1.5"},
                  own_strata});
  }
  const char* const by_time = "use mask_draw = \"rate\" and a mask_rate_min between 0 and 1";
  for (const char* const name : kDiffusion) {
    expect(name, {{"loss_weight = time, mask_draw = count", by_time},
                  {"loss_weight = time, mask_rate_min = 1", by_time},
                  {"shifted_readout = true",
                   "shifted_readout is true, but no position before the first token predicts it"}});
  }
  expect("masked_diffusion",
         {{"annealing = random",
           "[sampling] annealing = \"random\" cannot be expressed as one attention mask by ranks"},
          {"anneal_steps = 5", "anneal_steps is 5 but annealing is \"none\""},
          {"random_length_prob = 2", "random_length_prob is 2"}});
  expect("block_diffusion",
         {{"block_len = 3", "block_len=3 must divide seq_len=16"},
          {"resample_blocks = true, mask_rate_min = 0.3, mask_rate_max = 0.4",
           "no fraction of block_len=4 tokens lies in [mask_rate_min=0.3, mask_rate_max=0.4]"},
          {"resample_blocks = true, mask_draw = count",
           "resample_blocks is true but mask_draw is \"count\""},
          {"resample_blocks = true, loss_weight = time",
           "resample_blocks is true but loss_weight is \"time\""},
          {"loss_weight = cart", "loss_weight is \"cart\""}});
  expect("eso_lm", {{"mask_rate_max = 0.6", "mask_rate_max=0.6 must be 1"},
                    {"diffusion_share = -1", "diffusion_share is -1"},
                    {"mask_draw = count", "use \"rate\""}});
  expect("a3", {{"group_len_min = 5", "group_len_min=5"}});
  expect("as_arm", {own_strata, {"prompt_fraction_min = 0.99", "prompt_fraction_min=0.99"}});
}

}  // namespace
}  // namespace anyorder::testing
