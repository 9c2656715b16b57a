// Whether a dense mask is one of ranks: the integers of kernels/visibility.h for a mask that
// somebody drew, or the two rows that rule them out. For tests, and for designers of an
// objective (`anyorder show --mask`); nothing of a training step.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder {

// Rows see keys; small, since it is dense.
struct DenseMask {
  int64_t num_rows = 0;
  int64_t num_keys = 0;
  std::vector<uint8_t> visible;  // [num_rows, num_keys], 0 or 1

  bool At(int64_t row, int64_t key) const {
    return visible[static_cast<size_t>(row * num_keys + key)] != 0;
  }
};

// key[j] <= lim[i] exactly where row i sees key j.
struct RankForm {
  std::vector<int32_t> lim;  // [num_rows]
  std::vector<int32_t> key;  // [num_keys]; kernels::kKeyNever where nobody sees the key
};

// The smallest ranks that do it: classes of rows with equal sets, counted from 0 in order of size.
// They exist if and only if the sets form a chain: of any two rows one sees all that the other
// sees. FailedPrecondition otherwise, which names two rows and what each of them sees alone
// (numbers count from 0). Groups, documents and windows are not looked for: they limit or widen a
// mask of ranks, kernels/visibility.h.
absl::StatusOr<RankForm> ToRanks(const DenseMask& mask);

// Why the objective that goes by `name` is none of ours, and what comes nearest: one line. Empty
// for any other name. `asked`: how it was asked for, if not as an objective.
std::string WhyInexpressible(absl::string_view name, absl::string_view asked = "");

}  // namespace anyorder
