// sbatch options: the user's words, the head of a script.

#include "launcher/slurm/sbatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace anyorder::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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
