// Where a device's operations find what they read and write.

#pragma once

#include <array>

namespace anyorder {

// The device's own memory, or page-locked memory of the host, which the device reaches over its
// bus: there is more of it, and it is slower.
enum class MemoryPlace { kDevice, kHost };
constexpr auto SpellingsOf(MemoryPlace) { return std::array{"device", "host"}; }

}  // namespace anyorder
