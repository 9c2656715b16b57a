#include "data/sampling/lane_streams.h"

#include <algorithm>
#include <array>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder::data {

namespace {
// Flags read at once while looking for a sentence boundary: most sentences are shorter.
constexpr int64_t kScanBlock = 128;
}  // namespace

std::vector<LanePlace> RunLayout(int64_t num_lanes, bool bidirectional) {
  ANYORDER_CHECK(num_lanes >= 1 && !(bidirectional && num_lanes % 2 != 0)) << num_lanes;
  const int64_t streams = bidirectional ? num_lanes / 2 : num_lanes;
  std::vector<LanePlace> layout;
  for (int64_t lane = 0; lane < num_lanes; ++lane)
    layout.push_back({.stream = lane % streams, .backward = lane >= streams});
  return layout;
}

std::vector<LanePlace> PublishedLayout(int64_t num_rows, int64_t num_cores) {
  ANYORDER_CHECK(num_cores >= 1 && num_rows % (2 * num_cores) == 0) << num_rows;
  const int64_t streams_per_core = num_rows / num_cores / 2;
  std::vector<LanePlace> layout;
  for (int64_t core = 0; core < num_cores; ++core) {
    for (const bool backward : {false, true}) {
      for (int64_t i = 0; i < streams_per_core; ++i)
        layout.push_back({.stream = core * streams_per_core + i, .backward = backward});
    }
  }
  return layout;
}

absl::StatusOr<std::vector<LaneStream>> PlaceLanes(const TextSource& source,
                                                   const std::vector<LanePlace>& layout) {
  int64_t num_streams = 0;
  for (const LanePlace& place : layout) num_streams = std::max(num_streams, place.stream + 1);
  std::vector<LaneRange> ranges;
  int64_t length = source.num_tokens();
  for (const LanePlace& place : layout) {
    ANYORDER_ASSIGN_OR_RETURN(const LaneRange range,
                              source.ReadLaneRange(place.stream, num_streams, place.backward));
    ranges.push_back(range);
    length = std::min(length, range.end - range.begin);
  }
  std::vector<LaneStream> lanes;
  for (size_t i = 0; i < layout.size(); ++i) {
    // Backward ranges count from the corpus's end: position q is token num_tokens - 1 - q.
    const int64_t begin =
        layout[i].backward ? source.num_tokens() - ranges[i].begin - length : ranges[i].begin;
    lanes.push_back({.begin = begin, .length = length, .backward = layout[i].backward});
  }
  return lanes;
}

absl::Status LaneText::ReadTokens(int64_t begin, int64_t end, int32_t* out) const {
  const int64_t from = SourceBegin(begin, end);
  ANYORDER_RETURN_IF_ERROR(source_.ReadTokens(from, from + end - begin, out));
  if (stream_.backward) std::reverse(out, out + (end - begin));
  return absl::OkStatus();
}

absl::Status LaneText::ReadSentenceFlags(int64_t begin, int64_t end, uint8_t* out) const {
  const int64_t from = SourceBegin(begin, end);
  ANYORDER_RETURN_IF_ERROR(source_.ReadSentenceFlags(from, from + end - begin, out));
  if (stream_.backward) std::reverse(out, out + (end - begin));
  return absl::OkStatus();
}

absl::Status LaneText::ReadWordStarts(int64_t begin, int64_t end, uint8_t* out) const {
  const int64_t from = SourceBegin(begin, end);
  ANYORDER_RETURN_IF_ERROR(source_.ReadWordStarts(from, from + end - begin, out));
  if (stream_.backward) std::reverse(out, out + (end - begin));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> LaneText::SentenceBegin(int64_t position) const {
  std::array<uint8_t, kScanBlock> flags;
  // [begin, end) is the block; its last flag is the sentence's own.
  int64_t end = position + 1;
  while (true) {
    const int64_t begin = std::max<int64_t>(0, end - kScanBlock);
    ANYORDER_RETURN_IF_ERROR(ReadSentenceFlags(begin, end, flags.data()));
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
    ANYORDER_RETURN_IF_ERROR(ReadSentenceFlags(begin, end, flags.data()));
    for (int64_t i = 1; i < end - begin; ++i) {
      if (flags[i] != flags[i - 1]) return begin + i;
    }
    begin = end - 1;
  }
  return limit;
}

}  // namespace anyorder::data
