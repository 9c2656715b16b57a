// What a status says: EXPECT_THAT(status, Fails(absl::IsDataLoss, "shard 3", "is torn")).

#pragma once

#include <gmock/gmock.h>

#include <string>

#include "absl/status/status.h"

namespace anyorder {

// A message with all these parts.
template <typename... Parts>
auto Says(const Parts&... parts) {
  return ::testing::ResultOf(
      [](const absl::Status& status) { return std::string(status.message()); },
      ::testing::AllOf(::testing::_, ::testing::HasSubstr(std::string(parts))...));
}

// The same of an error that `is_kind` knows, as absl::IsDataLoss does.
template <typename... Parts>
auto Fails(bool (*is_kind)(const absl::Status&), const Parts&... parts) {
  return ::testing::AllOf(::testing::Truly(is_kind), Says(parts...));
}

}  // namespace anyorder
