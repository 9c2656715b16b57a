#include "core/base/repeat_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace anyorder {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RepeatLimitTest, OfFiftyEqualLinesFiveAreWrittenAndTheRestIsCounted) {
  RepeatLimit limit;
  absl::Time now;
  int num_written = 0;
  for (int i = 0; i < 50; ++i, now += absl::Milliseconds(200))
    num_written += limit.Admit("the disk is full", now).empty() ? 0 : 1;
  EXPECT_EQ(num_written, 5);
  now += absl::Seconds(1);
  EXPECT_THAT(limit.Admit("step 7", now),
              ElementsAre("left out 45 times: the disk is full", "step 7"));
  EXPECT_THAT(limit.Admit("the disk is full", now), ElementsAre("the disk is full"));
}

TEST(RepeatLimitTest, LinesThatDifferAreNeverLeftOut) {
  RepeatLimit limit;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = absl::StrCat("rank ", i, " is lost");
    EXPECT_THAT(limit.Admit(line, absl::Time()), ElementsAre(line));
  }
}

TEST(RepeatLimitTest, ALineThatManyOthersPushedOutIsCountedBeforeItIsForgotten) {
  RepeatLimit limit;
  for (int i = 0; i < 7; ++i) limit.Admit("again", absl::Time());
  EXPECT_THAT(limit.Admit("again", absl::Time()), IsEmpty());
  std::string said;
  for (int i = 0; i < 20; ++i)
    for (const std::string& line : limit.Admit(absl::StrCat(i), absl::Time()))
      absl::StrAppend(&said, line, "\n");
  EXPECT_THAT(said, ::testing::HasSubstr("left out 3 times: again\n"));
}

}  // namespace
}  // namespace anyorder
