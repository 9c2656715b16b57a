#include "core/base/philox.h"

#include <cmath>
#include <numbers>

#include "core/base/check.h"

namespace anyorder {

namespace {
__extension__ using Uint128 = unsigned __int128;
}  // namespace

RandomStream::RandomStream(uint64_t seed, RandomPurpose purpose, uint64_t step, uint64_t lane) {
  // The 64-bit key cannot hold seed, purpose, step and lane; hash them into it with Philox itself,
  // and leave the lane in the counter too, so that two lanes never share a sequence even if keys
  // collide.
  const PhiloxBlock key =
      Philox4x32<10>({static_cast<uint32_t>(purpose), static_cast<uint32_t>(step),
                      static_cast<uint32_t>(step >> 32), static_cast<uint32_t>(lane >> 32)},
                     static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  key0_ = key[0];
  key1_ = key[1];
  counter_ = {0, 0, static_cast<uint32_t>(lane), static_cast<uint32_t>(step)};
}

uint32_t RandomStream::Next() {
  if (used_ == 4) {
    block_ = Philox4x32<10>(counter_, key0_, key1_);
    if (++counter_[0] == 0) ++counter_[1];
    used_ = 0;
  }
  return block_[used_++];
}

uint64_t RandomStream::Below64(uint64_t bound) {
  ANYORDER_CHECK(bound > 0);
  // Lemire's multiply-and-reject: the low half tells whether the high half is in a truncated
  // interval.
  const uint64_t threshold = (0 - bound) % bound;
  while (true) {
    const uint64_t high = Next();
    const uint64_t draw = (high << 32) | Next();
    const auto product = static_cast<Uint128>(draw) * bound;
    if (static_cast<uint64_t>(product) >= threshold) return static_cast<uint64_t>(product >> 64);
  }
}

double RandomStream::Uniform() {
  const uint64_t high = Next();
  return static_cast<double>(((high << 32) | Next()) >> 11) * 0x1.0p-53;
}

double RandomStream::Normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - Uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * Uniform());
}

}  // namespace anyorder
