// Factorisation orders (XLNet, section 2.2; the block permutation of the released data_utils.py).

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "core/base/philox.h"

namespace anyorder::data {

// A uniformly random permutation of 0..size-1.
std::vector<int32_t> DrawPermutation(int64_t size, RandomStream& random);

// Ranks of the order.size() positions of one half, in place: blocks of permutation.size() positions
// come left to right, and every block uses the same permutation: order[j] = block(j) * perm_size +
// permutation[offset(j)]. REQUIRES order.size() % permutation.size() == 0.
void FillOrder(absl::Span<const int32_t> permutation, absl::Span<int32_t> order);

}  // namespace anyorder::data
