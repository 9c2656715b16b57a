#include "core/train/evaluation/piece_lengths.h"

#include <gtest/gtest.h>

#include <string>

namespace anyorder {
namespace {

std::string Field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

// ModelProto.pieces: {1: piece, 2: score (float), 3: type}.
std::string Piece(const std::string& text, int type = 1) {
  const std::string score{"\x15\0\0\0\0", 5};
  const std::string kind{'\x18', static_cast<char>(type)};
  return Field(1, Field(1, text) + score + kind);
}

data::VocabIds Ids() { return {.unk = 0, .eod = 1}; }

TEST(PieceLengthsTest, CountsCharactersAndBytesOfTheText) {
  const std::string model = Piece("<unk>", 2) + Piece("<eod>", 4) + Piece("\xE2\x96\x81the") +
                            Piece("\xE2\x96\x81") + Piece("\xC3\xA9t") +
                            Piece("\xE2\x82\xAC\xF0\x9F\x98\x80") + Field(2, "trainer settings");
  const auto lengths = PieceLengths(model, Ids()).value();
  ASSERT_EQ(lengths.size(), 6u);
  const std::vector<TextLength> expected = {{1, 1}, {0, 0}, {4, 4}, {1, 1}, {2, 3}, {2, 7}};
  for (size_t id = 0; id < expected.size(); ++id) {
    EXPECT_EQ(lengths[id].characters, expected[id].characters) << id;
    EXPECT_EQ(lengths[id].bytes, expected[id].bytes) << id;
  }
}

TEST(PieceLengthsTest, RefusesWhatIsNoModel) {
  for (const std::string& model :
       {std::string(), std::string("a tokenizer"), Piece("cut").substr(0, 6)})
    EXPECT_TRUE(absl::IsDataLoss(PieceLengths(model, Ids()).status())) << model;
  EXPECT_TRUE(absl::IsUnimplemented(PieceLengths(Piece("<0x41>", 6), Ids()).status()));
}

}  // namespace
}  // namespace anyorder
