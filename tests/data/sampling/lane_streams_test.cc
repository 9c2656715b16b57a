#include "data/sampling/lane_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/data/sampling/memory_text.h"

namespace anyorder::data {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

// Conformance item 3 of the published layout: 8 rows on 2 cores, reversed in the second half of
// each core.
TEST(LaneLayoutTest, PublishedRowsHoldTheTextAndItsReverse) {
  const MemoryText text = MemoryText::Random(40, 4, 1);
  const auto lanes = PlaceLanes(text, PublishedLayout(8, 2)).value();
  std::vector<std::vector<int32_t>> rows;
  for (const LaneStream& lane : lanes) {
    ASSERT_EQ(lane.length, 10);
    std::vector<int32_t>& row = rows.emplace_back(10);
    ASSERT_TRUE(LaneText(text, lane).ReadTokens(0, 10, row.data()).ok());
  }
  const auto from = [](int32_t first, int32_t step) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 10; ++i) ids.push_back(MemoryText::kFirstId + first + i * step);
    return ids;
  };
  EXPECT_THAT(rows, ElementsAre(from(0, 1), from(10, 1), from(9, -1), from(19, -1), from(20, 1),
                                from(30, 1), from(29, -1), from(39, -1)));
}

TEST(LaneLayoutTest, RunReadsForwardInTheFirstHalfOfItsLanes) {
  EXPECT_THAT(RunLayout(4, true), ElementsAre(LanePlace{0, false}, LanePlace{1, false},
                                              LanePlace{0, true}, LanePlace{1, true}));
  EXPECT_THAT(RunLayout(3, false),
              ElementsAre(LanePlace{0, false}, LanePlace{1, false}, LanePlace{2, false}));
}

TEST(LaneLayoutTest, UnevenStreamsGetTheLengthOfTheShortest) {
  const MemoryText text = MemoryText::Random(11, 4, 1);
  const auto lanes = PlaceLanes(text, RunLayout(4, true)).value();
  // 11 tokens in two streams: [0, 5) and [5, 11). The second loses token 10 forward and token 5
  // backward.
  EXPECT_THAT(lanes, ElementsAre(LaneStream{0, 5, false}, LaneStream{5, 5, false},
                                 LaneStream{0, 5, true}, LaneStream{6, 5, true}));
}

TEST(LaneTextTest, BackwardRangesAreReversed) {
  const MemoryText text = MemoryText::Random(300, 4, 2);
  const LaneStream stream = {.begin = 100, .length = 150, .backward = true};
  const LaneText lane(text, stream);
  const MemoryText reversed = text.Reversed();
  // Lane position p is text position 249 - p, which is position 50 + p of the reversed text.
  std::vector<int32_t> tokens(20);
  std::vector<uint8_t> flags(20);
  std::vector<uint8_t> starts(20);
  ASSERT_TRUE(lane.ReadTokens(30, 50, tokens.data()).ok());
  ASSERT_TRUE(lane.ReadSentenceFlags(30, 50, flags.data()).ok());
  ASSERT_TRUE(lane.ReadWordStarts(30, 50, starts.data()).ok());
  EXPECT_THAT(tokens, ElementsAreArray(&reversed.tokens[80], 20));
  EXPECT_THAT(flags, ElementsAreArray(&reversed.flags[80], 20));
  EXPECT_THAT(starts, ElementsAreArray(&reversed.starts[80], 20));
  EXPECT_EQ(tokens[0], MemoryText::kFirstId + 249 - 30);
}

// Sentences much shorter and much longer than what is read at once.
TEST(LaneTextTest, BoundariesAgreeWithALinearSearch) {
  for (const int64_t mean_sentence : {1, 3, 70, 400}) {
    const MemoryText text = MemoryText::Random(1000, mean_sentence, 3);
    for (const bool backward : {false, true}) {
      const LaneStream stream = {.begin = 50, .length = 900, .backward = backward};
      const LaneText lane(text, stream);
      std::vector<uint8_t> flags(900);
      ASSERT_TRUE(lane.ReadSentenceFlags(0, 900, flags.data()).ok());
      for (int64_t p = 0; p < 900; p += 7) {
        int64_t begin = p;
        while (begin > 0 && flags[begin - 1] == flags[begin]) --begin;
        ASSERT_EQ(lane.SentenceBegin(p).value(), begin) << mean_sentence << " " << p;
        if (p == 0) continue;
        for (const int64_t limit : {p, std::min<int64_t>(p + 200, 900), int64_t{900}}) {
          int64_t next = p;
          while (next < limit && flags[next - 1] == flags[next]) ++next;
          ASSERT_EQ(lane.NextBoundary(p, limit).value(), next) << p << " " << limit;
        }
      }
    }
  }
}

}  // namespace
}  // namespace anyorder::data
