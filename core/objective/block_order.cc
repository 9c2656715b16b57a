#include "core/objective/block_order.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace anyorder {

int64_t BlockRule::Goal(int64_t size) const {
  // 0.15 * 20 is 3 and must not become 4 by its last bit.
  const double exact = fraction * static_cast<double>(size);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(exact * (1 - 1e-12))));
}

int64_t BlockRule::Most(int64_t size) const {
  return std::min(most, Goal(size) - 1 + std::max<int64_t>(1, max_span));
}

std::vector<TokenBlock> DrawBlocks(const BlockRule& rule, absl::Span<const uint8_t> is_special,
                                   RandomStream& random) {
  const auto size = static_cast<int64_t>(is_special.size());
  const int64_t goal = rule.Goal(size);
  std::vector<uint8_t> taken(is_special.begin(), is_special.end());
  ANYORDER_CHECK(std::count(taken.begin(), taken.end(), 0) >= goal && goal <= rule.most &&
                 rule.span_fraction < 1 && rule.min_span >= 1 && rule.max_span >= rule.min_span)
      << "no " << goal << " tokens of " << size << " can be masked";
  std::vector<TokenBlock> blocks;
  for (int64_t masked = 0; masked < goal;) {
    const auto begin = static_cast<int64_t>(random.Below64(static_cast<uint64_t>(size)));
    int64_t length = 1;
    if (random.Uniform() < rule.span_fraction) {
      const auto lengths = static_cast<uint32_t>(rule.max_span - rule.min_span + 1);
      length = rule.min_span + random.Below(lengths);
    }
    const int64_t end = begin + length;
    if (end > size || masked + length > rule.most) continue;
    if (std::any_of(taken.begin() + begin, taken.begin() + end, [](uint8_t t) { return t != 0; }))
      continue;
    std::fill(taken.begin() + begin, taken.begin() + end, 1);
    blocks.push_back({begin, end});
    masked += length;
  }
  return blocks;
}

}  // namespace anyorder
