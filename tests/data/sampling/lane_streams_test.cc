#include "data/sampling/lane_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/numeric/int128.h"

#include "tests/data/sampling/memory_text.h"

namespace anyorder::data {

namespace {

using ::testing::ElementsAre;

// Conformance item 3: the rows of the released data_utils.py, here 8. There 2 cores would have 4
// each, the second half of which reads the streams of its first half backward: rows in other order.
TEST(LaneLayoutTest, PublishedRowsHoldTheTextAndItsReverse) {
  const MemoryText text = MemoryText::Random(40, 4, 1);
  const auto lanes = PlaceLanes(40, 8, true, false);
  std::vector<std::vector<int32_t>> rows;
  for (const size_t lane : {0, 1, 4, 5, 2, 3, 6, 7}) {
    ASSERT_EQ(lanes[lane].length, 10);
    std::vector<int32_t>& row = rows.emplace_back(10);
    ASSERT_TRUE(LaneText(text, lanes[lane]).ReadTokens(0, 10, row.data()).ok());
  }
  const auto from = [](int32_t first, int32_t step) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 10; ++i) ids.push_back(MemoryText::kFirstId + first + i * step);
    return ids;
  };
  EXPECT_THAT(rows, ElementsAre(from(0, 1), from(10, 1), from(9, -1), from(19, -1), from(20, 1),
                                from(30, 1), from(29, -1), from(39, -1)));
}

TEST(LaneLayoutTest, UnevenStreamsGetTheLengthOfTheShortest) {
  const auto lanes = PlaceLanes(11, 4, true, false);
  // 11 tokens in two streams: [0, 5) and [5, 11). The second loses token 10 forward and token 5
  // backward.
  EXPECT_THAT(lanes, ElementsAre(LaneStream{0, 5, false}, LaneStream{5, 5, false},
                                 LaneStream{0, 5, true}, LaneStream{6, 5, true}));
  EXPECT_THAT(PlaceLanes(11, 2, false, false),
              ElementsAre(LaneStream{0, 5, false}, LaneStream{5, 5, false}));
}

// What a run of so many streams leaves out of N tokens.
int64_t LeftOut(int64_t num_tokens, int64_t streams, bool has_cells) {
  int64_t read = 0;
  for (const LaneStream& lane : PlaceLanes(num_tokens, streams, false, has_cells))
    read += lane.length;
  return num_tokens - read;
}

TEST(LaneLayoutTest, EvenStreamsHoldAllTokensButOneEachAtMost) {
  for (const int64_t tokens : {int64_t{1000003}, (int64_t{1} << 56) - 1}) {
    for (const int64_t n : {1, 3, 320, 1536, 3072, 4096, 5000, 7680, 100000}) {
      int64_t next = 0;
      for (int64_t s = 0; s < n; ++s) {
        ASSERT_EQ(StreamBegin(s, n, tokens, false), next);
        next = static_cast<int64_t>(static_cast<absl::int128>(s + 1) * tokens / n);
      }
      EXPECT_EQ(LeftOut(tokens, n, false), tokens % n) << n;
    }
  }
}

// Runs of earlier versions: in whole cells of 1/4096 of the text.
TEST(LaneLayoutTest, CellsCutWhereTheyAlwaysDid) {
  const int64_t tokens = 4096 * 1000 + 17;
  for (const int64_t n : {1, 2, 64, 4096}) {  // both cuts are the same
    EXPECT_EQ(PlaceLanes(tokens, 2 * n, true, true), PlaceLanes(tokens, 2 * n, true, false));
  }
  // 320 streams of 12 or 13 cells of 1000 tokens; the last cells have one more.
  EXPECT_EQ(StreamBegin(7, 320, tokens, true), 89 * 1000);
  EXPECT_EQ(LeftOut(tokens, 320, true), tokens - 320 * 12000);   // 6 %
  EXPECT_EQ(LeftOut(tokens, 1536, true), tokens - 1536 * 2000);  // 25 %
  EXPECT_EQ(LeftOut(tokens, 5000, true), tokens);                // some streams have none
  // Of a short text there are fewer: 8 of 65 tokens.
  EXPECT_EQ(StreamBegin(2, 3, 8 * 65, true), 5 * 65);
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

// The procedure as it is told: token by token over the whole row, no bounds on how far it looks.
SegmentPair PlainDraw(const std::vector<uint8_t>& flags, int64_t begin, int64_t total,
                      RandomStream& random) {
  const auto size = static_cast<int64_t>(flags.size());
  std::vector<int64_t> cuts;
  int64_t end = begin + 1;
  for (; end < size; ++end) {
    if (flags[end] == flags[end - 1]) continue;
    if (end - begin >= total) break;
    cuts.push_back(end);
  }
  SegmentPair pair;
  pair.a_begin = begin;
  if (cuts.empty() || random.Below(2) == 0) {
    pair.a_end = cuts.empty() ? end : cuts[random.Below64(cuts.size())];
    const int64_t b_len = std::max<int64_t>(1, total - (pair.a_end - begin));
    pair.b_begin = static_cast<int64_t>(random.Below64(size - b_len));
    pair.b_end = pair.b_begin + b_len;
    while (pair.b_begin > 0 && flags[pair.b_begin - 1] == flags[pair.b_begin]) --pair.b_begin;
    while (pair.b_end < size - 1 && flags[pair.b_end - 1] == flags[pair.b_end]) ++pair.b_end;
  } else {
    pair.b_follows_a = true;
    pair.a_end = cuts[random.Below64(cuts.size())];
    pair.b_begin = pair.a_end;
    pair.b_end = end;
  }
  while (pair.a_end - pair.a_begin + pair.b_end - pair.b_begin > total) {
    const bool is_a_longer = pair.a_end - pair.a_begin > pair.b_end - pair.b_begin;
    --(is_a_longer ? pair.a_end : pair.b_end);
  }
  return pair;
}

LaneText Whole(const MemoryText& text) {
  return {text, LaneStream{.begin = 0, .length = text.num_tokens(), .backward = false}};
}

TEST(PairSamplerTest, AgreesWithTheProcedureTokenByToken) {
  for (const int64_t mean_sentence : {1, 2, 9, 40, 300, 5000}) {
    const MemoryText text = MemoryText::Random(1500, mean_sentence, mean_sentence);
    for (const int64_t total : {2, 3, 29, 60, 253}) {
      for (uint64_t draw = 0; draw < 200; ++draw) {
        RandomStream choose(1, RandomPurpose::kPrep, draw, total);
        const auto begin = static_cast<int64_t>(choose.Below64(1500 - total));
        RandomStream plain_random(5, RandomPurpose::kPairs, draw, 0);
        RandomStream random(5, RandomPurpose::kPairs, draw, 0);
        const SegmentPair plain = PlainDraw(text.flags, begin, total, plain_random);
        const auto pair = DrawSegmentPair(Whole(text), begin, total, random).value();
        ASSERT_EQ(pair.a_begin, plain.a_begin);
        ASSERT_EQ(pair.a_end, plain.a_end) << mean_sentence << " " << total << " " << draw;
        ASSERT_EQ(pair.b_begin, plain.b_begin);
        ASSERT_EQ(pair.b_end, plain.b_end) << mean_sentence << " " << total << " " << draw;
        ASSERT_EQ(pair.b_follows_a, plain.b_follows_a);
      }
    }
  }
}

}  // namespace

}  // namespace anyorder::data
