// CRC32C (Castagnoli, RFC 3720 appendix B.4) by ISA-L: "123456789" gives 0xE3069283.

#pragma once

#include <cstdint>

namespace anyorder {

// `crc` continues an earlier value: Crc32c(ab) == Crc32c(b, n, Crc32c(a, m)).
uint32_t Crc32c(const void* data, int64_t bytes, uint32_t crc = 0);

}  // namespace anyorder
