// Which part of the corpus a lane reads, in which direction, and which pairs of segments it makes
// of it.
//
// The corpus is cut into contiguous streams, which together are all of it.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/philox.h"
#include "core/config/sampling_config.h"
#include "data/dataset/text_source.h"

namespace anyorder::data {

// A contiguous range of the corpus and the direction in which it is read.
struct LaneStream {
  int64_t begin = 0;   // position of its first token in the corpus
  int64_t length = 0;  // tokens
  bool backward = false;

  friend bool operator==(const LaneStream&, const LaneStream&) = default;
};

// The first token of stream `stream` of `num_streams` of a corpus. With `has_cells` stream s has
// the cells [s G / n, (s + 1) G / n) of the G that the corpus is cut into, or none; where n divides
// G this changes nothing. REQUIRES 0 <= stream <= num_streams < 2^32.
int64_t StreamBegin(int64_t stream, int64_t num_streams, int64_t num_tokens, bool has_cells);

// What the lanes of a run read of a corpus of num_tokens: with `bidirectional`, lanes [0, n/2) read
// streams 0..n/2-1 forward and lanes [n/2, n) the same streams backward; otherwise lane i reads
// stream i forward. All get the length of the shortest, so that lanes step together; a longer one,
// by one token if there are no cells, loses its last tokens in the lane's direction.
// REQUIRES num_lanes >= 1, and even if bidirectional.
std::vector<LaneStream> PlaceLanes(int64_t num_tokens, int64_t num_lanes, bool bidirectional,
                                   bool has_cells);

// A stream addressed in the lane's own order: position 0 is what the lane reads first, which for a
// backward lane is the stream's last token. Borrows `source`.
class LaneText {
 public:
  LaneText(const TextSource& source, const LaneStream& stream) : source_(source), stream_(stream) {}

  int64_t length() const { return stream_.length; }
  bool backward() const { return stream_.backward; }

  // As TextSource's, for lane positions [begin, end).
  absl::Status ReadTokens(int64_t begin, int64_t end, int32_t* out) const {
    return Read(&TextSource::ReadTokens, begin, end, out);
  }
  absl::Status ReadSentenceFlags(int64_t begin, int64_t end, uint8_t* out) const {
    return Read(&TextSource::ReadSentenceFlags, begin, end, out);
  }
  absl::Status ReadWordStarts(int64_t begin, int64_t end, uint8_t* out) const {
    return Read(&TextSource::ReadWordStarts, begin, end, out);
  }

  // The first position of the sentence that holds `position`.
  absl::StatusOr<int64_t> SentenceBegin(int64_t position) const;
  // The first position e in [position, limit] with e == limit or a sentence boundary just before e.
  // REQUIRES 1 <= position <= limit <= length().
  absl::StatusOr<int64_t> NextBoundary(int64_t position, int64_t limit) const;

 private:
  template <typename Value>
  absl::Status Read(absl::Status (TextSource::*read)(int64_t, int64_t, Value*) const, int64_t begin,
                    int64_t end, Value* out) const {
    const int64_t from = stream_.begin + (stream_.backward ? stream_.length - end : begin);
    const absl::Status status = (source_.*read)(from, from + end - begin, out);
    if (status.ok() && stream_.backward) std::reverse(out, out + (end - begin));
    return status;
  }

  const TextSource& source_;
  LaneStream stream_;
};

// Segment pairs: which text follows the reuse part of a lane's sequence (XLNet, section 2.4; the
// procedure of the released data_utils.py).

// Two non-empty ranges of lane positions.
struct SegmentPair {
  int64_t a_begin = 0;
  int64_t a_end = 0;
  int64_t b_begin = 0;
  int64_t b_end = 0;
  bool b_follows_a = false;
};

// A begins at `begin` and ends at a sentence end; B is, with equal chance, what follows A or text
// that begins a sentence anywhere in the lane's stream. Both are then cut until |A| + |B| == total:
// the longer one first (B when equal), from the right (kXlnet) or token by token at a random end
// (kBert, whose A may then begin after `begin`). If no sentence ends within reach, A is cut from
// one long sentence and B is text from anywhere.
// REQUIRES total >= 2 and begin + total < text.length(). DataLoss from the source.
absl::StatusOr<SegmentPair> DrawSegmentPair(const LaneText& text, int64_t begin, int64_t total,
                                            RandomStream& random,
                                            PairStyle style = PairStyle::kXlnet);

// The text [begin, begin + total), divided at a sentence end, each as likely as any other, or in
// the middle if none is inside: b_begin == a_end. REQUIRES and errors as above; begin + total may
// be text.length().
absl::StatusOr<SegmentPair> DrawDividedText(const LaneText& text, int64_t begin, int64_t total,
                                            RandomStream& random);

}  // namespace anyorder::data
