#include "ckpt/save_assembly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/testing/status_matchers.h"

namespace anyorder::ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Time kStart = absl::UnixEpoch();

class SaveAssemblyTest : public ::testing::Test {
 protected:
  static SaveIdentity Id(int64_t step) { return {"test", 1, step, step, 3, 1}; }
  absl::Status Begin(int rank, int64_t step) {
    return assembly_.Begin(Id(step), rank, 3, kStart).status();
  }
  absl::Status Stage(int rank, int64_t step, const std::string& metadata = "") {
    StagedRank staged;
    staged.file.rank = rank;
    staged.metadata = metadata;
    return assembly_.Stage(Id(step), rank, std::move(staged));
  }
  // "200" for a complete save, "200: reason" for an abandoned one.
  std::vector<std::string> Decided() {
    std::vector<std::string> decided;
    for (const QueuedSave& save : assembly_.TakeDecided()) {
      decided.push_back(std::to_string(save.job.id.step));
      if (!save.abandon_reason.empty()) decided.back() += ": " + save.abandon_reason;
    }
    return decided;
  }

  SaveAssembly assembly_{0};
};

TEST_F(SaveAssemblyTest, IsCompleteWhenTheLastRankStagesAndNotBefore) {
  for (const int rank : {2, 0, 1}) {
    EXPECT_THAT(Decided(), IsEmpty());
    ASSERT_TRUE(Begin(rank, 200).ok());
    ASSERT_TRUE(Stage(rank, 200).ok());
  }
  EXPECT_THAT(Decided(), ElementsAre("200"));
  assembly_.RankGone(0);  // too late to matter
  EXPECT_FALSE(Begin(1, 200).ok());
  EXPECT_THAT(Decided(), IsEmpty());
}

TEST_F(SaveAssemblyTest, TwoGenerationsMayBeOpenAtOnce) {
  for (const auto& [rank, step] :
       {std::pair(0, 200), {1, 200}, {0, 300}, {1, 300}, {2, 200}, {2, 300}}) {
    ASSERT_TRUE(Begin(rank, step).ok());
    ASSERT_TRUE(Stage(rank, step).ok());
  }
  EXPECT_THAT(Decided(), ElementsAre("200", "300"));
}

TEST_F(SaveAssemblyTest, ARankThatLeavesBeforeItHasStagedEndsTheSave) {
  for (const int rank : {0, 1}) ASSERT_TRUE(Begin(rank, 100).ok());
  assembly_.RankGone(1);
  EXPECT_THAT(Decided(), ElementsAre("100: rank 1 disconnected before it had staged"));
  EXPECT_TRUE(Begin(0, 200).ok());  // it had left before this one began
  EXPECT_THAT(Decided(), ElementsAre("200: rank 1 disconnected before it had staged"));
  EXPECT_THAT(Stage(0, 200), Fails(absl::IsFailedPrecondition, "rank 1 disconnected"));
  assembly_.RankCame(1);
  EXPECT_TRUE(Begin(0, 300).ok());
  EXPECT_THAT(Decided(), IsEmpty());
}

TEST_F(SaveAssemblyTest, ARankThatGoesOnLeavesBehindWhatItHasNotStaged) {
  for (const int rank : {0, 1}) ASSERT_TRUE(Begin(rank, 200).ok());
  ASSERT_TRUE(Stage(0, 200).ok());
  ASSERT_TRUE(Begin(0, 300).ok());
  EXPECT_THAT(Decided(), IsEmpty());
  ASSERT_TRUE(Begin(1, 300).ok());
  EXPECT_THAT(Decided(), ElementsAre(HasSubstr("200: rank 1 went on to generation 300")));
}

TEST_F(SaveAssemblyTest, RanksMustMeanTheSameStep) {
  ASSERT_TRUE(Begin(0, 200).ok());
  SaveIdentity other = Id(200);
  other.step = 201;
  EXPECT_FALSE(assembly_.Begin(other, 1, 3, kStart).ok());
  EXPECT_THAT(Decided(), ElementsAre(HasSubstr("means step 201")));
}

TEST_F(SaveAssemblyTest, MetadataMustAgree) {
  for (const int rank : {0, 1, 2}) ASSERT_TRUE(Begin(rank, 200).ok());
  ASSERT_TRUE(Stage(0, 200, "{}").ok());
  ASSERT_TRUE(Stage(1, 200).ok());
  Stage(2, 200, "{1}").IgnoreError();
  EXPECT_THAT(Decided(), ElementsAre(HasSubstr("rank 2 gives other metadata")));
}

TEST_F(SaveAssemblyTest, StagingTwiceOrUnasked) {
  EXPECT_FALSE(Stage(0, 200).ok());
  ASSERT_TRUE(Begin(0, 200).ok());
  ASSERT_TRUE(Stage(0, 200).ok());
  EXPECT_FALSE(Stage(0, 200).ok());
  EXPECT_THAT(Decided(), IsEmpty());
}

TEST_F(SaveAssemblyTest, LateSavesAreAbandoned) {
  ASSERT_TRUE(Begin(0, 200).ok());
  assembly_.AbandonBegunBefore(kStart, "late");
  EXPECT_THAT(Decided(), IsEmpty());
  assembly_.AbandonBegunBefore(kStart + absl::Seconds(1), "late");
  EXPECT_THAT(Decided(), ElementsAre("200: late"));
}

}  // namespace
}  // namespace anyorder::ckpt
