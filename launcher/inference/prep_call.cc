#include "launcher/inference/prep_call.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "launcher/process/child_process.h"

namespace anyorder::launcher {
namespace {

constexpr char kProgram[] = "anyorder-prep";
constexpr int kSignalled = 128;  // exit status of ChildProcess for signal 0

// The program's own line without its name, "anyorder-prep: " or "anyorder-prep encode: ".
absl::string_view OwnWords(const CapturedOutput& output) {
  absl::string_view text = absl::StripTrailingAsciiWhitespace(output.text);
  if (absl::ConsumePrefix(&text, kProgram)) {
    absl::ConsumePrefix(&text, " encode");
    absl::ConsumePrefix(&text, ": ");
  }
  return text;
}

}  // namespace

std::string PrepProgram() { return absl::StrCat(ProgramDirectory(), "/", kProgram); }

absl::Status PrepError(const CapturedOutput& output, absl::string_view doing) {
  const std::string message = absl::StrCat(doing, ": ", OwnWords(output));
  switch (output.exit_status) {
    case kExitUsage: return absl::InvalidArgumentError(message);
    case kExitData: return absl::FailedPreconditionError(message);
    case kExitIo: return absl::UnavailableError(message);
    default: break;
  }
  // A signal comes from outside, as a rule from a machine without memory left.
  if (output.exit_status > kSignalled) {
    return Unavailable(doing, ": signal ", output.exit_status - kSignalled, " ended ", kProgram,
                       "; check the free memory and try again");
  }
  return Internal(message, " (", kProgram, " ended with status ", output.exit_status, ")");
}

absl::StatusOr<ScratchFolder> ScratchFolder::Make() {
  const char* parent = ::getenv("TMPDIR");
  std::string path = absl::StrCat(parent == nullptr || *parent == '\0' ? "/tmp" : parent,
                                  "/anyorder-texts.XXXXXX");
  if (::mkdtemp(path.data()) == nullptr) return ErrnoStatus("make directory", path);
  return ScratchFolder(path);
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::exchange(other.path_, "")) {}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

absl::Status CallPrep(const std::vector<std::string>& arguments, absl::string_view doing) {
  std::vector<std::string> command = {PrepProgram()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  // No texts take this long: it only keeps a stuck program from being waited for without end.
  const absl::Time deadline = MonotonicNow() + absl::Hours(1);
  ANYORDER_ASSIGN_OR_RETURN(const CapturedOutput output, RunCaptured(command, deadline));
  if (output.is_late) return DeadlineExceeded(doing, ": ", kProgram, " did not end within an hour");
  return output.exit_status == kExitDone ? absl::OkStatus() : PrepError(output, doing);
}

}  // namespace anyorder::launcher
