#include "data/sampling/permutation.h"

#include <numeric>
#include <utility>

#include "core/base/check.h"

namespace anyorder::data {

std::vector<int32_t> DrawPermutation(int64_t size, RandomStream& random) {
  std::vector<int32_t> permutation(size);
  std::iota(permutation.begin(), permutation.end(), 0);
  // Fisher-Yates: position i gets one of the i + 1 values not yet placed after it.
  for (int64_t i = size - 1; i > 0; --i)
    std::swap(permutation[i], permutation[random.Below64(i + 1)]);
  return permutation;
}

void FillOrder(absl::Span<const int32_t> permutation, absl::Span<int32_t> order) {
  const size_t block_size = permutation.size();
  ANYORDER_CHECK(block_size > 0 && order.size() % block_size == 0)
      << order.size() << " / " << block_size;
  for (size_t j = 0; j < order.size(); ++j) {
    const size_t offset = j % block_size;
    order[j] = static_cast<int32_t>(j - offset) + permutation[offset];
  }
}

}  // namespace anyorder::data
