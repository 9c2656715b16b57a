#include "core/config/attention_windows.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/testing/status_matchers.h"

namespace anyorder {
namespace {

bool Same(const kernels::Band& a, const kernels::Band& b) {
  return a.left == b.left && a.right == b.right && a.stride == b.stride;
}

ModelConfig Model(const std::string& windows) {
  return {.num_layers = 2, .num_heads = 4, .mem_len = 2, .attention_windows = windows};
}

void ExpectBands(const std::string& windows, const std::vector<kernels::Band>& expected) {
  const std::vector<kernels::Band> bands = AttentionWindows(Model(windows)).value();
  ASSERT_EQ(bands.size(), expected.size()) << windows;
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(Same(bands[i], expected[i])) << windows << " at " << i;
}

TEST(AttentionWindowsTest, NothingSetIsUnlimited) {
  ExpectBands("", {});
  ExpectBands("*:*", {});
}

TEST(AttentionWindowsTest, OneLayerServesAll) {
  const kernels::Band band{3, 1, 1};
  ExpectBands("3:1", {band, band, band, band, band, band, band, band});
}

TEST(AttentionWindowsTest, LayersAndGroupsOfHeadsDiffer) {
  const kernels::Band local{8, 0, 1}, dilated{8, 0, 2}, left{5, -1, 1}, all{-1, -1, 1};
  ExpectBands(" 2x 8:0 / 2x8:0:2 ; 5:* / 3x *:* ",
              {local, local, dilated, dilated, left, all, all, all});
}

TEST(AttentionWindowsTest, FaultsNameThePart) {
  for (const auto& [windows, part] :
       {std::pair{"3", "'3', which is not a window"},
        {"a:1", "'a:1', whose sides"},
        {"-2:1", "'-2:1', whose sides"},
        {"1:1:0", "'1:1:0', whose stride"},
        {"1:1;1:1;1:1", "names 3 layers but must name one for all or 2"},
        {"2x 1:1 / 3x 1:1", "for more than 4 heads"},
        {"1:1 / 1:1", "for fewer than 4 heads"},
        {"0x 1:1", "number of heads before x"}})
    EXPECT_THAT(AttentionWindows(Model(windows)).status(), Says(part)) << windows;
}

// The pictures of both released forms, two memory slots before four rows:
// each row sees the newest mem_len keys, itself among them, or itself and mem_len before it.
TEST(AttentionWindowsTest, SameLengthCountsKeysAsTheReleasedCodesDo) {
  for (const SameLength form : {SameLength::kTorch, SameLength::kTensorFlow}) {
    ModelConfig model = Model("");
    model.same_length = form;
    const std::vector<kernels::Band> bands = AttentionWindows(model).value();
    ASSERT_EQ(bands.size(), 8u);
    const int expected = form == SameLength::kTorch ? 2 : 3;
    for (int row = 0; row < 4; ++row) {
      int seen = 0;
      for (int key = -2; key <= row; ++key) seen += bands.front().Contains(row - key) ? 1 : 0;
      EXPECT_EQ(seen, expected) << "row " << row;
      EXPECT_TRUE(bands.front().Contains(0));
    }
  }
}

TEST(AttentionWindowsTest, SameLengthNeedsMemoryAndNoOtherWindow) {
  ModelConfig model = Model("");
  model.same_length = SameLength::kTorch;
  model.mem_len = 0;
  EXPECT_FALSE(AttentionWindows(model).ok());
  model.mem_len = 3;
  model.attention_windows = "1:1";
  EXPECT_FALSE(AttentionWindows(model).ok());
}

}  // namespace
}  // namespace anyorder
