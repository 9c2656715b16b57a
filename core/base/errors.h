// Statuses whose message is put together from parts, as absl::StrCat does it:
//   return DataLoss("'", path, "' has ", size, " bytes");

#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace anyorder {

template <absl::StatusCode kCode>
struct ErrorOf {
  template <typename... Parts>
  absl::Status operator()(const Parts&... message) const {
    return absl::Status(kCode, absl::StrCat(message...));
  }
};

inline constexpr ErrorOf<absl::StatusCode::kAborted> Aborted;
inline constexpr ErrorOf<absl::StatusCode::kAlreadyExists> AlreadyExists;
inline constexpr ErrorOf<absl::StatusCode::kDataLoss> DataLoss;
inline constexpr ErrorOf<absl::StatusCode::kDeadlineExceeded> DeadlineExceeded;
inline constexpr ErrorOf<absl::StatusCode::kFailedPrecondition> FailedPrecondition;
inline constexpr ErrorOf<absl::StatusCode::kInternal> Internal;
inline constexpr ErrorOf<absl::StatusCode::kInvalidArgument> InvalidArgument;
inline constexpr ErrorOf<absl::StatusCode::kNotFound> NotFound;
inline constexpr ErrorOf<absl::StatusCode::kOutOfRange> OutOfRange;
inline constexpr ErrorOf<absl::StatusCode::kPermissionDenied> PermissionDenied;
inline constexpr ErrorOf<absl::StatusCode::kResourceExhausted> ResourceExhausted;
inline constexpr ErrorOf<absl::StatusCode::kUnavailable> Unavailable;

}  // namespace anyorder
