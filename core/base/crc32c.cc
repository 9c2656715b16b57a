#include "core/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace anyorder {

uint32_t Crc32c(const void* data, int64_t bytes, uint32_t crc) {
  // ISA-L takes an int length, a pointer to non-const, and leaves the inversions to the caller.
  constexpr int64_t kMaxCall = 1 << 30;
  auto* from = static_cast<unsigned char*>(const_cast<void*>(data));
  uint32_t state = ~crc;
  while (bytes > 0) {
    const int64_t piece = std::min(bytes, kMaxCall);
    state = crc32_iscsi(from, static_cast<int>(piece), state);
    from += piece;
    bytes -= piece;
  }
  return ~state;
}

}  // namespace anyorder
