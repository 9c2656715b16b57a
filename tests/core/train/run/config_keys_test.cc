// The documentation of configuration keys: complete, and true to what validation refuses.

#include "core/train/run/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/train/run/config_file.h"

namespace anyorder {
namespace {

using ::testing::HasSubstr;

TEST(ConfigKeysTest, EveryKeyHasASentenceOfItsOwn) {
  std::set<std::string> sentences;
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_GE(key.help.size(), 15u) << key.name();
    EXPECT_TRUE(absl::EndsWith(key.help, ".")) << key.name();
    EXPECT_TRUE(sentences.insert(key.help).second) << key.name() << ": " << key.help;
  }
}

TEST(ConfigKeysTest, KeysAreThoseOfAFrozenConfiguration) {
  std::string text, section;
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.section != section)
      absl::StrAppend(&text, section.empty() ? "" : "\n", "[", key.section, "]\n");
    section = key.section;
    absl::StrAppend(&text, key.key, " = ", key.default_text, "\n");
  }
  EXPECT_EQ(text, RunConfig().ToText());
}

// The bounds that are printed are those that are enforced.
TEST(ConfigKeysTest, NumbersBelowTheirBoundsAreRefused) {
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.bounds.empty()) continue;
    RunConfig config;
    config.data.shards = "shards";
    ASSERT_TRUE(config.Validate().ok()) << config.Validate();
    ASSERT_TRUE(ApplyOverride(absl::StrCat(key.name(), "=-1000"), config).ok()) << key.name();
    EXPECT_THAT(std::string(config.Validate().message()),
                HasSubstr(absl::StrCat(key.name(), " is -1000 but must be ", key.bounds)));
  }
}

TEST(ConfigKeysTest, EnumerationsAndSwitchesListTheirValues) {
  EXPECT_THAT(FindConfigKey("dist.reduction")->values, testing::ElementsAre("tree", "fast"));
  EXPECT_THAT(FindConfigKey("model.mlm_head")->values, testing::ElementsAre("true", "false"));
  EXPECT_THAT(FindConfigKey("objective.name")->values, testing::Contains("permutation_lm"));
}

TEST(ConfigKeysTest, AKeyIsFoundWithItsSectionOrAlone) {
  EXPECT_EQ(FindConfigKey("train.steps")->name(), "train.steps");
  EXPECT_EQ(FindConfigKey("mem_len")->name(), "model.mem_len");
  EXPECT_EQ(FindConfigKey("train.steps")->unit, "steps");
  const auto fault = [](const char* name) {
    return std::string(FindConfigKey(name).status().message());
  };
  EXPECT_THAT(fault("train.step"), HasSubstr("did you mean 'train.steps'?"));
  EXPECT_THAT(fault("train.mem_len"), HasSubstr("did you mean 'model.mem_len'?"));
  EXPECT_THAT(fault("train.lanes"), HasSubstr("its name is now 'train.global_batch_size'"));
  EXPECT_THAT(fault("clip_norm"), HasSubstr("its name is now 'optimizer.max_grad_norm'"));
  EXPECT_THAT(fault("every"), HasSubstr("unknown key 'every'"));  // of two sections
}

}  // namespace
}  // namespace anyorder
