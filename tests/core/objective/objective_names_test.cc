// Objectives by the names that people know them by.

#include "core/objective/objective_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/objective/objective.h"
#include "core/objective/rank_mask.h"

namespace anyorder {
namespace {

using ::testing::HasSubstr;

TEST(ObjectiveNamesTest, SystemsAndSpellingsMeanTheRegisteredName) {
  const std::pair<const char*, const char*> cases[] = {
      {"permutation_lm", "permutation_lm"},
      {"xlnet", "permutation_lm"},
      {"XLNet", "permutation_lm"},
      {"transformer-xl", "causal_lm"},
      {"transformer_xl", "causal_lm"},
      {"llada", "masked_diffusion"},
      {"mdlm", "masked_diffusion"},
      {"masked-diffusion", "masked_diffusion"},
      {"llada-sft", "masked_diffusion_sft"},
      {"bd3", "block_diffusion"},
      {"BD3-LM", "block_diffusion"},
      {"bd3lm", "block_diffusion"},
      {"eso-lm", "eso_lm"},
      {"as-arm", "as_arm"},
      {"sigma-GPT", "sigma_gpt"},
      {"GPT", "gpt"},
      {"gpt-2", "gpt"},
      {"unilm-seq2seq", "unilm_seq2seq"},
  };
  for (const auto& [given, registered] : cases)
    EXPECT_EQ(ObjectiveNamed(given).value_or("none"), registered) << given;
}

// No name means two objectives, or one and a mask that cannot be expressed.
TEST(ObjectiveNamesTest, EveryNameIsOfOneObjective) {
  std::set<std::string> names;
  for (const std::string& objective : ObjectiveNames()) {
    EXPECT_TRUE(names.insert(objective).second) << objective;
    EXPECT_EQ(ObjectiveNamed(objective).value_or("none"), objective);
    for (const std::string& other : OtherNames(objective)) {
      EXPECT_TRUE(names.insert(other).second) << other;
      EXPECT_EQ(ObjectiveNamed(other).value_or("none"), objective);
      EXPECT_EQ(WhyInexpressible(other), "");
    }
  }
}

TEST(ObjectiveNamesTest, OthersAreRefusedWithTheNearestOrTheReason) {
  const auto fault = [](const char* name) {
    return std::string(ObjectiveNamed(name).status().message());
  };
  EXPECT_THAT(fault("xlnt"), HasSubstr("did you mean 'xlnet'?"));
  EXPECT_THAT(fault("lada"), HasSubstr("did you mean 'llada'?"));
  EXPECT_THAT(fault("T5"), HasSubstr("cannot be expressed"));
  EXPECT_THAT(fault("something_else_entirely"), HasSubstr("known objectives: permutation_lm, "));
}

}  // namespace
}  // namespace anyorder
