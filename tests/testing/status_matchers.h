// What a status says: EXPECT_THAT(status, Fails(absl::IsDataLoss, "shard 3", "is torn")).

#pragma once

#include <gmock/gmock.h>

#include <string>

#include "absl/status/status.h"

#include "core/base/status.h"

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

// The same of an error with which a program ends with `exit_status`.
template <typename... Parts>
auto Exits(int exit_status, const Parts&... parts) {
  return ::testing::AllOf(::testing::ResultOf("exit status", ExitStatusFor, exit_status),
                          Says(parts...));
}

}  // namespace anyorder
