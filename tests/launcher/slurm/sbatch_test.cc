// sbatch options: time limits, the user's words, the head of a script.

#include "launcher/slurm/sbatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launcher/process/slurm_job.h"

namespace anyorder::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SbatchTest, TimeLimitsAreReadAsSlurmReadsThem) {
  // The forms of `man sbatch`, --time.
  EXPECT_EQ(*ParseTimeLimit("90"), 90 * 60);
  EXPECT_EQ(*ParseTimeLimit("90:30"), 90 * 60 + 30);
  EXPECT_EQ(*ParseTimeLimit("12:00:01"), 12 * 3600 + 1);
  EXPECT_EQ(*ParseTimeLimit("2-12"), 60 * 3600);
  EXPECT_EQ(*ParseTimeLimit("2-12:30"), 60 * 3600 + 30 * 60);
  EXPECT_EQ(*ParseTimeLimit("2-12:30:05"), 60 * 3600 + 30 * 60 + 5);
  EXPECT_EQ(*ParseTimeLimit("UNLIMITED"), 0);
  for (const char* bad : {"", "soon", "-5", "1-", "-1:00", "1:2:3:4", "1-2-3", "1::2", "1.5", "5h"})
    EXPECT_EQ(ParseTimeLimit(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
}

TEST(SbatchTest, WordsBelongToTheOptionBeforeThem) {
  const auto options = ParseSbatchWords({"-p", "debug", "--time", "5", "-N2", "--qos=a b"});
  ASSERT_TRUE(options.ok()) << options.status();
  std::vector<std::string> names, texts;
  for (const SbatchOption& option : *options) {
    names.push_back(option.name);
    texts.push_back(option.text);
  }
  EXPECT_THAT(names, ElementsAre("--partition", "--time", "--nodes", "--qos"));
  EXPECT_THAT(texts, ElementsAre("-p debug", "--time 5", "-N2", "\"--qos=a b\""));
  EXPECT_FALSE(ParseSbatchWords({"script.sh"}).ok());
  for (const char* bad : {"-a", "--array=1-3", "--wrap", "-W", "--wait", "--test-only", "-h"})
    EXPECT_FALSE(ParseSbatchWords({bad, "1"}).ok()) << bad;
  EXPECT_FALSE(ParseSbatchWords({"--comment=a\nb"}).ok());
}

TEST(SbatchTest, TheUsersOptionReplacesOursAndIsToldOf) {
  const auto users = ParseSbatchWords({"-t", "5", "--no-requeue"});
  ASSERT_TRUE(users.ok());
  std::vector<std::string> notes;
  const std::string head =
      ScriptHead({OurOption("--nodes", "2", "Why two:"), OurOption("--time", "90", ""),
                  OurOption("--requeue", "", "")},
                 *users, &notes);
  EXPECT_EQ(head,
            "# Why two:\n#SBATCH --nodes=2\n# Given after --:\n#SBATCH -t 5\n#SBATCH "
            "--no-requeue\n");
  ASSERT_GE(notes.size(), 2u);
  EXPECT_THAT(notes[0], HasSubstr("'-t 5' after -- replaces '--time=90'"));
}

TEST(SbatchTest, ShellQuotingKeepsEveryWord) {
  EXPECT_EQ(ShellCommand({"a-b/c.d", "x y", "it's", "$HOME", ""}),
            "a-b/c.d 'x y' 'it'\\''s' '$HOME' ''");
  EXPECT_EQ(SlurmPath("50%/job"), "50%%/job");
}

}  // namespace
}  // namespace anyorder::launcher
