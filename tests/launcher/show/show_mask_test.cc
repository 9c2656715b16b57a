// `anyorder show --mask`: files that hold masks, and files that do not.

#include "launcher/show/show_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace anyorder::launcher {
namespace {

using ::testing::HasSubstr;

class ShowMaskTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Ranks(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return RanksOfMaskFile(path_);
  }
  void ExpectRefused(const std::string& text, const std::string& reason) const {
    const absl::Status status = Ranks(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
  ~ShowMaskTest() override { std::filesystem::remove(path_); }

  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "/mask_",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".txt");
};

TEST_F(ShowMaskTest, RanksOfXlnetsWorkedExample) {
  const absl::StatusOr<std::string> ranks =
      Ranks("# order 3 2 4 1\n1 1 1 1\n. 1 1 .\r\n0010  # the first\n\n0\t1 1 1\n");
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  EXPECT_EQ(*ranks, "lim 3 1 0 2\nkey 3 1 0 2\n");
}

TEST_F(ShowMaskTest, KeysThatNobodySeesHaveNoRank) {
  EXPECT_EQ(*Ranks("100\n000"), "lim 1 0\nkey 1 - -\n");
}

TEST_F(ShowMaskTest, MasksWithoutRanksAndFilesWithoutMasksAreRefused) {
  ExpectRefused("100\n010\n",
                path_ + ": this mask cannot be expressed by ranks: row 0 sees key 0 and not key 1");
  ExpectRefused("11\n1x\n", path_ + ":2: 'x' is not a mask entry");
  ExpectRefused("11\n\n1\n", path_ + ":3: 1 keys, but the rows before have 2");
  ExpectRefused("# nothing\n", "no mask row");
  EXPECT_FALSE(RanksOfMaskFile(path_ + ".none").ok());
}

}  // namespace
}  // namespace anyorder::launcher
