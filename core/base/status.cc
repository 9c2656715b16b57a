#include "core/base/status.h"

#include <cstdio>
#include <cstring>

#include "core/base/bounded_writer.h"

namespace anyorder {

int ExitStatusFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return kExitDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented: return kExitUsage;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition: return kExitData;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded: return kExitIo;
    case absl::StatusCode::kCancelled: return kExitRequeue;
    case absl::StatusCode::kAborted: return kExitDoNotRestart;
    default: return kExitInternal;
  }
}

absl::Status ErrnoStatus(absl::string_view operation, absl::string_view path, int error_number) {
  const std::string message =
      absl::StrCat(operation, " '", path, "': ", std::strerror(error_number));
  switch (error_number) {
    case ENOENT: return NotFound(message);
    case EACCES:
    case EPERM: return PermissionDenied(message);
    case ENOSPC:
    case EDQUOT: return ResourceExhausted(message);
    case EEXIST:
    case ENOTEMPTY: return AlreadyExists(message);
    default: return Unavailable(message);
  }
}

int ReportAndExitStatus(absl::string_view program, const absl::Status& status) {
  absl::Status outcome = status;
  if (outcome.ok()) {
    errno = 0;
    const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    if (!is_written) outcome = ErrnoStatus("write", "standard output", errno == 0 ? EIO : errno);
  }
  if (!outcome.ok()) WriteToStderr(absl::StrCat(program, ": ", outcome.message(), "\n"));
  return ExitStatusFor(outcome);
}

}  // namespace anyorder
