// Sealed JSON files (ckpt/json_values.h) without and with the line of their checksum: mutants of
// the text before it are sealed again, because otherwise only the checksum would be tested.

#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "core/base/crc32c.h"

namespace anyorder::fuzz {

inline std::string WithoutSeal(const std::string& sealed) {
  return sealed.substr(0, sealed.rfind("\"crc32c\""));
}

inline std::string WithSeal(absl::string_view body) {
  const uint32_t crc = Crc32c(body.data(), static_cast<int64_t>(body.size()));
  return absl::StrCat(body, "\"crc32c\": \"", absl::Hex(crc, absl::kZeroPad8), "\"}\n");
}

}  // namespace anyorder::fuzz
