#include "launcher/seeds/seed_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace anyorder::launcher {
namespace {

using testing::HasSubstr;

TEST(SpreadTest, OfOddEvenAndNoNumbers) {
  const Spread odd = SpreadOf({3, 1, 8});
  EXPECT_EQ(odd.count, 3);
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.mean, 4);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 8);
  EXPECT_DOUBLE_EQ(odd.standard_deviation, std::sqrt((1 + 9 + 16) / 2.0));
  EXPECT_EQ(SpreadOf({4, 1, 2, 9}).median, 3);
  EXPECT_EQ(SpreadOf({5}).median, 5);
  EXPECT_TRUE(std::isnan(SpreadOf({5}).standard_deviation));
  EXPECT_EQ(SpreadOf({}).count, 0);
  EXPECT_TRUE(std::isnan(SpreadOf({}).median));
}

SeedRun MakeRun(int64_t seed, const std::string& state, double value) {
  SeedRun run{seed, absl::StrCat("r-seed", seed), state};
  if (!std::isnan(value)) run.best = {.metric = "task_accuracy", .step = 20, .value = value};
  return run;
}

// What did not train to its end is shown, and counts for nothing.
TEST(SeedTableTest, RunsThatFailedAreNamedAndLeftOutOfTheSpread) {
  std::vector<SeedRun> runs = {MakeRun(1, "finished", 0.5), MakeRun(2, "failed", 0.875),
                               MakeRun(3, "finished early", 0.75), MakeRun(4, kNotStarted, NAN)};
  runs[1].error = "the disk is full";
  runs[1].exit_status = 74;
  runs[1].log = "r-seed2/train.log";
  EXPECT_EQ(SeedTable("task_accuracy", runs),
            "      seed  state           best task_accuracy        step  run\n"
            "         1  finished                    0.5000          20  r-seed1\n"
            "         2  failed                      0.8750          20  r-seed2\n"
            "         3  finished early              0.7500          20  r-seed3\n"
            "         4  not started                      -           -  r-seed4\n"
            "task_accuracy (higher is better) of 2 finished runs: median 0.6250, mean 0.6250, min "
            "0.5000, max 0.7500, standard deviation 0.1768\n"
            "seed 2 failed: the disk is full; log: r-seed2/train.log\n");
  const std::string json = SeedJson("task_accuracy", runs);
  EXPECT_THAT(json, HasSubstr("\"lower_is_better\": false"));
  EXPECT_THAT(json, HasSubstr("\"finished\": 2,\n  \"median\": 0.625,"));
  EXPECT_THAT(json, HasSubstr("\"exit_status\": 74,\n      \"error\": \"the disk is full\","));
  EXPECT_THAT(SeedJson("loss", {}), HasSubstr("\"median\": null"));
}

}  // namespace
}  // namespace anyorder::launcher
