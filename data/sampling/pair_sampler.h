// Segment pairs: which text follows the reuse part of a lane's sequence (XLNet, section 2.4; the
// procedure of the released data_utils.py).

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "core/base/philox.h"
#include "core/config/sampling_config.h"
#include "data/sampling/lane_streams.h"

namespace anyorder::data {

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
