#include "launcher/inference/eval_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace anyorder::launcher {
namespace {

using data::PieceKind;
using ::testing::IsEmpty;

TEST(PieceLengthsTest, CountsCharactersAndBytesOfTheText) {
  std::vector<data::VocabularyPiece> pieces = {{"<unk>", PieceKind::kUnknown},
                                               {"<eod>", PieceKind::kText},
                                               {"\u2581the"},
                                               {"\u2581"},
                                               {"\u00e9t"},
                                               {"\u20ac\U0001F600"}};
  const data::VocabIds ids{.unk = 0, .eod = 1};
  const std::vector<TextLength> lengths = PieceLengths(pieces, ids);
  const std::vector<TextLength> expected = {{1, 1}, {0, 0}, {4, 4}, {1, 1}, {2, 3}, {2, 7}};
  ASSERT_EQ(lengths.size(), expected.size());
  for (size_t id = 0; id < expected.size(); ++id) {
    EXPECT_EQ(lengths[id].characters, expected[id].characters) << id;
    EXPECT_EQ(lengths[id].bytes, expected[id].bytes) << id;
  }
  pieces.push_back({"<0x41>", PieceKind::kByte});
  EXPECT_THAT(PieceLengths(pieces, ids), IsEmpty());
}

}  // namespace
}  // namespace anyorder::launcher
