// How long blanks of unknown length are: what makes texts of different length comparable, and the
// search over lengths.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace anyorder::launcher {

// What candidates are ordered by, the largest first:
//
//   (log_prob + sum over blanks of unknown length of log P(n)) / N^length_penalty + fit
//
// where N is the number of tokens in all blanks together, and n that of a blank. Without a prior
// P = 1. With mean_length m > 1 it is the geometric distribution of that mean, which needs no
// corpus: P(n) = (1/m) (1 - 1/m)^(n-1), n = 1, 2, ...
//
// `fit` is the log-probability of what stands behind blanks of unknown length, given all else. A
// blank of n tokens has some likely filling for every n, also for one at which a word is cut off:
// that the length is wrong shows in what follows. Its tokens are the same for all candidates, so it
// is not divided by a length.
struct LengthRule {
  double length_penalty = 1;
  double mean_length = 0;  // 0: no prior

  // `lengths`: of all blanks; `known`: the same, 0 where it was to be found.
  double Score(double log_prob, double fit, const std::vector<int64_t>& lengths,
               const std::vector<int64_t>& known) const;
};

struct LengthBounds {
  std::vector<int64_t> known;  // of each blank; 0: to be found
  std::vector<int64_t> least;  // of each blank
  int64_t most = 0;            // of a blank to be found
  int64_t room = 0;            // tokens of all blanks together
};

// Tries lengths of all blanks; the score of each.
using TryLengths = absl::FunctionRef<absl::StatusOr<std::vector<double>>(
    const std::vector<std::vector<int64_t>>& lengths)>;

// The lengths of the largest score that a search by coordinates finds. It begins with the least
// lengths; then one blank after the other, from left to right, tries all its lengths that have room
// while the others keep the best ones so far; and once more, if that changed anything. Nothing is
// tried twice: at most 1 + 2 B (most - 1) tries for B blanks of unknown length, of one blank each
// of its lengths. Of equal scores the one that was tried first wins. REQUIRES: there is room for
// the least lengths.
absl::StatusOr<std::vector<int64_t>> FindLengths(const LengthBounds& bounds, TryLengths try_all);

}  // namespace anyorder::launcher
