// Error values of the outside world: files, configuration, data, peers. Our own mistakes use
// check.h.
//
// The macros have the meaning of Abseil's later ones, which Debian 12's Abseil (20220623) lacks.

#pragma once

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace anyorder {

// Exit statuses of every program (launcher/README.md).
enum ExitStatus : int {
  kExitDone = 0,
  kExitUsage = 64,         // bad command line or configuration
  kExitData = 65,          // bad input data, or a digest that does not match
  kExitInternal = 70,      // our own bug
  kExitIo = 74,            // the machine failed us: disk full, unreadable path, lost peer
  kExitRequeue = 75,       // checkpointed; please start me again
  kExitDoNotRestart = 93,  // crash loop, or a policy to stop: restarting will not help
};

// The exit status that stands for `status`:
//   InvalidArgument, AlreadyExists, OutOfRange, Unimplemented -> 64
//   DataLoss, FailedPrecondition                              -> 65
//   NotFound, PermissionDenied, ResourceExhausted, Unavailable, DeadlineExceeded -> 74
//   Cancelled -> 75;  Aborted -> 93;  anything else -> 70
int ExitStatusFor(const absl::Status& status);

// Statuses whose message is put together from parts, as absl::StrCat does it:
//   return DataLoss("'", path, "' has ", size, " bytes");
template <absl::StatusCode kCode>
struct ErrorOf {
  absl::Status operator()(const auto&... message) const {
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

// "open 'x.txt': No such file or directory", with the code that fits `error_number`: ENOENT
// NotFound, EACCES PermissionDenied, ENOSPC/EDQUOT ResourceExhausted, EEXIST AlreadyExists,
// otherwise Unavailable.
absl::Status ErrnoStatus(absl::string_view operation, absl::string_view path,
                         int error_number = errno);

// `status` with `context: ` put before its message; OK stays OK.
inline absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}
template <typename Value>
absl::StatusOr<Value> Annotate(absl::StatusOr<Value> result, absl::string_view context) {
  if (!result.ok()) return Annotate(result.status(), context);
  return result;
}

// Prints the one line that a program owes its user on failure: "PROGRAM: message". When OK it
// prints nothing, but what was printed before must reach its reader: a full disk behind stdout is a
// failure, too. Returns the exit status.
int ReportAndExitStatus(absl::string_view program, const absl::Status& status);

}  // namespace anyorder

#define RETURN_IF_ERROR(expr)                                             \
  do {                                                                    \
    if (absl::Status anyorder_status_ = (expr); !anyorder_status_.ok()) { \
      return anyorder_status_;                                            \
    }                                                                     \
  } while (false)

#define ANYORDER_CONCAT_INNER_(a, b) a##b
#define ANYORDER_CONCAT_(a, b) ANYORDER_CONCAT_INNER_(a, b)
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL_(ANYORDER_CONCAT_(anyorder_statusor_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL_(result, lhs, expr)      \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  lhs = std::move(result).value()
