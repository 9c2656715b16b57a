// A frame of the checkpoint service's and the launcher's sockets (ckpt/protocol.h), by hand.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "core/base/crc32c.h"

namespace anyorder {

// Says that its body has `claimed` bytes.
inline std::string Frame(absl::string_view body, size_t claimed) {
  const uint32_t words[] = {static_cast<uint32_t>(claimed),
                            Crc32c(body.data(), static_cast<int64_t>(body.size()))};
  return absl::StrCat("AOCK", absl::string_view(reinterpret_cast<const char*>(words), sizeof words),
                      body);
}
inline std::string Frame(absl::string_view body) { return Frame(body, body.size()); }

}  // namespace anyorder
