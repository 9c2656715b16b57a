#include "core/base/status.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "core/base/counted.h"
#include "core/base/dtype.h"
#include "core/base/fields.h"

namespace anyorder {
namespace {

TEST(StatusTest, ExitStatusesFollowTheTable) {
  EXPECT_EQ(ExitStatusFor(absl::OkStatus()), 0);
  EXPECT_EQ(ExitStatusFor(absl::InvalidArgumentError("")), 64);
  EXPECT_EQ(ExitStatusFor(absl::DataLossError("")), 65);
  EXPECT_EQ(ExitStatusFor(ErrnoStatus("write", "x", ENOSPC)), 74);
  EXPECT_EQ(ExitStatusFor(absl::CancelledError("")), 75);
  EXPECT_EQ(ExitStatusFor(absl::InternalError("")), 70);
}

TEST(StatusTest, ErrnoMessageNamesOperationPathAndCause) {
  EXPECT_EQ(ErrnoStatus("open", "/a/b", ENOENT).message(),
            "open '/a/b': No such file or directory");
}

// Prints to `device` and ends as a program that believes that all went well.
[[noreturn]] void PrintTo(const char* device) {
  ::dup2(::open(device, O_WRONLY), STDOUT_FILENO);
  std::puts("the result");
  ::_exit(ReportAndExitStatus("program", absl::OkStatus()));
}

TEST(StatusDeathTest, ResultThatDidNotReachItsReaderIsAFailure) {
  EXPECT_EXIT(PrintTo("/dev/null"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(PrintTo("/dev/full"), testing::ExitedWithCode(74),
              "program: write 'standard output': No space left on device");
}

TEST(BFloat16Test, RoundsToNearestEven) {
  EXPECT_EQ(BFloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(BFloat16(1.00390625f).bits, 0x3f80);  // half way: to the even neighbour, down
  EXPECT_EQ(BFloat16(1.01171875f).bits, 0x3f82);  // half way: to the even neighbour, up
  EXPECT_TRUE(static_cast<float>(BFloat16(__builtin_nanf(""))) !=
              static_cast<float>(BFloat16(__builtin_nanf(""))));
}

TEST(NearestNameTest, SuggestsOnlyLikelyTypos) {
  const std::vector<std::string> names = {"seq_len", "mem_len", "num_layers"};
  EXPECT_EQ(NearestName("seqlen", names), "seq_len");
  EXPECT_EQ(NearestName("completely_else", names), "");
  // Nine of eighteen letters: another word.
  EXPECT_EQ(NearestName("repetition_penalty", {"presence_penalty"}), "");
}

TEST(FieldBoundsTest, EqualEndsAreOneNumber) {
  EXPECT_EQ(Between(1, 4).ToText(), "in [1, 4]");
  EXPECT_EQ(Between(1, 1).ToText(), "equal to 1");
}

TEST(CountedTest, OneIsNotMany) {
  EXPECT_EQ(Counted(1, "batch", "es"), "1 batch");
  EXPECT_EQ(Counted(2, "batch", "es"), "2 batches");
  EXPECT_EQ(Counted(0, "rank"), "0 ranks");
  EXPECT_EQ(RangeText(1, 4), "1 to 4");
  EXPECT_EQ(RangeText(3, 3), "3");
}

}  // namespace
}  // namespace anyorder
