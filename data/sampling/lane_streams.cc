#include "data/sampling/lane_streams.h"

#include <array>
#include <bit>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder::data {

namespace {

// Flags read at once while looking for a sentence boundary: most sentences are shorter.
constexpr int64_t kScanBlock = 128;

// Cuts single tokens from the right end of the longer segment (of B when equal) until the lengths
// add up to `total`, in closed form. A length of `total` or more gives the same result as any
// longer one, which is why no search below needs to look further than that.
void Trim(int64_t total, SegmentPair& pair) {
  int64_t a = pair.a_end - pair.a_begin;
  int64_t b = pair.b_end - pair.b_begin;
  int64_t excess = a + b - total;
  ANYORDER_CHECK(excess >= 0) << a << " + " << b << " < " << total;
  int64_t& longer = a > b ? a : b;
  const int64_t levelled = std::min(excess, std::max(a, b) - std::min(a, b));
  longer -= levelled;
  excess -= levelled;
  b -= (excess + 1) / 2;
  a -= excess / 2;
  pair.a_end = pair.a_begin + a;
  pair.b_end = pair.b_begin + b;
}

// BERT's truncate_seq_pair.
void TrimAtRandomEnds(int64_t total, RandomStream& random, SegmentPair& pair) {
  while (pair.a_end - pair.a_begin + pair.b_end - pair.b_begin > total) {
    const bool cuts_a = pair.a_end - pair.a_begin > pair.b_end - pair.b_begin;
    if (random.Below(2) == 0) {
      ++(cuts_a ? pair.a_begin : pair.b_begin);
    } else {
      --(cuts_a ? pair.a_end : pair.b_end);
    }
  }
}

// Sentence ends inside [begin, begin + total), where A may end.
absl::StatusOr<std::vector<int64_t>> CutPoints(const LaneText& text, int64_t begin, int64_t total) {
  std::vector<uint8_t> flags(total);
  RETURN_IF_ERROR(text.ReadSentenceFlags(begin, begin + total, flags.data()));
  std::vector<int64_t> cut_points;
  for (int64_t i = 1; i < total; ++i) {
    if (flags[i] != flags[i - 1]) cut_points.push_back(begin + i);
  }
  return cut_points;
}

// B from anywhere in the stream, extended to whole sentences. Its last possible end is length() -
// 1: the released code keeps one token after B for its next-token targets.
absl::Status DrawRandomB(const LaneText& text, int64_t total, RandomStream& random,
                         SegmentPair& pair) {
  const int64_t last_end = text.length() - 1;
  const int64_t b_len = std::max<int64_t>(1, total - (pair.a_end - pair.a_begin));
  const auto drawn = static_cast<int64_t>(random.Below64(last_end - b_len + 1));
  ASSIGN_OR_RETURN(pair.b_begin, text.SentenceBegin(drawn));
  pair.b_end = drawn + b_len;
  const int64_t reach = std::min(last_end, pair.b_begin + total);
  if (pair.b_end < reach) {
    ASSIGN_OR_RETURN(pair.b_end, text.NextBoundary(pair.b_end, reach));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t StreamBegin(int64_t stream, int64_t num_streams, int64_t num_tokens, bool has_cells) {
  const auto tokens = static_cast<uint64_t>(num_tokens);
  auto part = static_cast<uint64_t>(stream);
  auto parts = static_cast<uint64_t>(num_streams);
  if (has_cells) {
    // The largest power of two up to 4096 that leaves 64 tokens in every cell.
    const uint64_t cells = std::clamp<uint64_t>(std::bit_floor(tokens / 64), 1, 4096);
    part = part * cells / parts;
    parts = cells;
  }
  // floor(part * tokens / parts), whose product may not fit.
  return static_cast<int64_t>(part * (tokens / parts) + part * (tokens % parts) / parts);
}

std::vector<LaneStream> PlaceLanes(int64_t num_tokens, int64_t num_lanes, bool bidirectional,
                                   bool has_cells) {
  ANYORDER_CHECK(num_lanes >= 1 && !(bidirectional && num_lanes % 2 != 0)) << num_lanes;
  const int64_t num_streams = bidirectional ? num_lanes / 2 : num_lanes;
  std::vector<LaneStream> lanes;
  int64_t shortest = num_tokens;
  for (int64_t lane = 0; lane < num_lanes; ++lane) {
    const int64_t stream = lane % num_streams;
    const int64_t begin = StreamBegin(stream, num_streams, num_tokens, has_cells);
    const int64_t end = StreamBegin(stream + 1, num_streams, num_tokens, has_cells);
    lanes.push_back({.begin = begin, .length = end - begin, .backward = lane >= num_streams});
    shortest = std::min(shortest, end - begin);
  }
  for (LaneStream& lane : lanes) {
    if (lane.backward) lane.begin += lane.length - shortest;
    lane.length = shortest;
  }
  return lanes;
}

absl::StatusOr<int64_t> LaneText::SentenceBegin(int64_t position) const {
  std::array<uint8_t, kScanBlock> flags;
  // [begin, end) is the block; its last flag is the sentence's own.
  int64_t end = position + 1;
  while (true) {
    const int64_t begin = std::max<int64_t>(0, end - kScanBlock);
    RETURN_IF_ERROR(ReadSentenceFlags(begin, end, flags.data()));
    for (int64_t i = end - begin - 1; i > 0; --i) {
      if (flags[i] != flags[i - 1]) return begin + i;
    }
    if (begin == 0) return 0;
    end = begin + 1;
  }
}

absl::StatusOr<int64_t> LaneText::NextBoundary(int64_t position, int64_t limit) const {
  std::array<uint8_t, kScanBlock> flags;
  // A boundary before e needs the flags of e - 1 and e, so neighbouring blocks share one flag.
  int64_t begin = position - 1;
  while (begin + 1 < limit) {
    const int64_t end = std::min(limit, begin + kScanBlock);
    RETURN_IF_ERROR(ReadSentenceFlags(begin, end, flags.data()));
    for (int64_t i = 1; i < end - begin; ++i) {
      if (flags[i] != flags[i - 1]) return begin + i;
    }
    begin = end - 1;
  }
  return limit;
}

absl::StatusOr<SegmentPair> DrawSegmentPair(const LaneText& text, int64_t begin, int64_t total,
                                            RandomStream& random, PairStyle style) {
  ANYORDER_CHECK(total >= 2 && begin >= 0 && begin + total < text.length()) << begin;
  ASSIGN_OR_RETURN(const std::vector<int64_t> cut_points, CutPoints(text, begin, total));

  SegmentPair pair;
  pair.a_begin = begin;
  const bool random_b = cut_points.empty() || random.Below(2) == 0;
  pair.b_follows_a = !random_b;
  pair.a_end = cut_points.empty() ? begin + total : cut_points[random.Below64(cut_points.size())];
  if (random_b) {
    RETURN_IF_ERROR(DrawRandomB(text, total, random, pair));
  } else {
    pair.b_begin = pair.a_end;
    const int64_t reach = std::min(text.length(), pair.b_begin + total);
    ASSIGN_OR_RETURN(pair.b_end, text.NextBoundary(begin + total, reach));
  }
  if (style == PairStyle::kBert) {
    TrimAtRandomEnds(total, random, pair);
  } else {
    Trim(total, pair);
  }
  return pair;
}

absl::StatusOr<SegmentPair> DrawDividedText(const LaneText& text, int64_t begin, int64_t total,
                                            RandomStream& random) {
  ANYORDER_CHECK(total >= 2 && begin >= 0 && begin + total <= text.length()) << begin;
  ASSIGN_OR_RETURN(const std::vector<int64_t> cut_points, CutPoints(text, begin, total));
  SegmentPair pair;
  pair.a_begin = begin;
  pair.a_end =
      cut_points.empty() ? begin + total / 2 : cut_points[random.Below64(cut_points.size())];
  pair.b_begin = pair.a_end;
  pair.b_end = begin + total;
  pair.b_follows_a = true;
  return pair;
}

}  // namespace anyorder::data
