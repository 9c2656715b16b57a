#include "launcher/inference/eval_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace anyorder::launcher {
namespace {

using data::PieceKind;
using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::IsEmpty;

TEST(PieceLengthsTest, CountsCharactersAndBytesOfTheText) {
  std::vector<data::VocabularyPiece> pieces = {{"<unk>", PieceKind::kUnknown},
                                               {"<eod>", PieceKind::kText},
                                               {"\u2581the"},
                                               {"\u2581"},
                                               {"\u00e9t"},
                                               {"\u20ac\U0001F600"}};
  const data::VocabIds ids{.unk = 0, .eod = 1};
  // Characters and bytes.
  EXPECT_THAT(PieceLengths(pieces, ids),
              ElementsAre(FieldsAre(1, 1), FieldsAre(0, 0), FieldsAre(4, 4), FieldsAre(1, 1),
                          FieldsAre(2, 3), FieldsAre(2, 7)));
  pieces.push_back({"<0x41>", PieceKind::kByte});
  EXPECT_THAT(PieceLengths(pieces, ids), IsEmpty());
}

}  // namespace
}  // namespace anyorder::launcher
