// Programs that the launcher starts: watched ones, and those that answer a question, which are
// never waited for longer than a given time; and this process itself: its program and command line.

#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace anyorder::launcher {

struct SpawnOptions {
  std::vector<std::string> arguments;    // [0] is the program, looked up in PATH if it has no slash
  std::vector<std::string> environment;  // "NAME=value", where the launcher has no NAME
  int output_fd = -1;                    // stdout and stderr; -1: the launcher's own
  int input_fd = -1;                     // stdin; -1: /dev/null
  // Its own session: signals of the terminal do not reach it, and it may outlive the launcher.
  bool own_session = false;
  int death_signal = 0;  // from the kernel when the launcher dies, however that happens; 0: none
};

// The destructor does not end the process.
class ChildProcess {
 public:
  static absl::StatusOr<ChildProcess> Spawn(const SpawnOptions& options);

  pid_t pid() const { return pid_; }
  // Its exit status, or 128 + signal number; nothing while it runs. Never blocks.
  std::optional<int> Poll();
  void Signal(int signal_number) const;

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;
  std::optional<int> exit_status_;
};

// The directory of the running program, where its siblings are.
std::string ProgramDirectory();

// How long threads of OpenMP that wait for one another spin before they sleep, for the environment
// of a process; read before its main() begins.
//
// OpenMP's default is milliseconds. On cores that other programs share, the thread that is waited
// for may not run meanwhile, and every parallel loop pays for it: 12 tiny steps of two ranks took
// 9.1 s instead of 0.8 s on two busy cores, an evaluation by two threads 17 s instead of 2.2 s.
inline constexpr char kShortSpin[] = "GOMP_SPINCOUNT=1000";
// Makes this process one with kShortSpin: starts it again, in place and with the same command line,
// unless its environment says how long to spin. Call it before anything is read or written.
void EnsureShortSpin();

struct CapturedOutput {
  bool is_late = false;  // the deadline came first, and the program was ended
  int exit_status = -1;
  std::string text;  // stdout and stderr, at most a MiB
};

// `arguments` as in SpawnOptions. SIGTERM at the deadline, SIGKILL 5 seconds later.
absl::StatusOr<CapturedOutput> RunCaptured(const std::vector<std::string>& arguments,
                                           absl::Time deadline);

// Whether PATH holds a program of this name.
bool HasProgram(const std::string& name);

// A word as a shell reads it, in single quotes where it needs them; and several.
std::string ShellQuote(absl::string_view word);
std::string ShellCommand(const std::vector<std::string>& words);

// How the user calls `anyorder` again: by its name where PATH leads to this very program, otherwise
// by its whole path, quoted for a shell.
std::string FrontCommand();

// This process's command line as it was typed, for people; control characters are question marks.
std::string TypedCommand();

}  // namespace anyorder::launcher
