#include "launcher/process/child_process.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

// In the child, between fork and exec: the launcher has threads, so nothing here may allocate or
// lock.
[[noreturn]] void Become(const SpawnOptions& options, char* const* arguments,
                         char* const* environment, pid_t launcher) {
  if (options.own_session) ::setsid();
  if (options.die_with_launcher) {
    ::prctl(PR_SET_PDEATHSIG, options.death_signal);
    if (::getppid() != launcher) ::_exit(kExitIo);  // it died before the line above
  }
  for (const int signal_number : {SIGTERM, SIGINT, SIGUSR1, SIGPIPE})
    ::signal(signal_number, SIG_DFL);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  if (options.output_fd >= 0) {
    ::dup2(options.output_fd, STDOUT_FILENO);
    ::dup2(options.output_fd, STDERR_FILENO);
  }
  ::execvpe(arguments[0], arguments, environment);
  constexpr char kFailure[] = "anyorder: a program that it needs could not be started: ";
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, kFailure, sizeof kFailure - 1);
  written = ::write(STDERR_FILENO, arguments[0], std::strlen(arguments[0]));
  written = ::write(STDERR_FILENO, "\n", 1);
  ::_exit(kExitIo);
}

// The launcher's environment, then the additions that it does not set itself.
std::vector<std::string> MergedEnvironment(const std::vector<std::string>& additions) {
  std::vector<std::string> merged;
  for (char** variable = environ; *variable != nullptr; ++variable) merged.emplace_back(*variable);
  for (const std::string& addition : additions) {
    const std::string name = addition.substr(0, addition.find('='));
    if (::getenv(name.c_str()) == nullptr) merged.push_back(addition);
  }
  return merged;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Spawn(const SpawnOptions& options) {
  const std::vector<std::string> environment = MergedEnvironment(options.environment);
  const std::vector<char*> argument_pointers = Pointers(options.arguments);
  const std::vector<char*> environment_pointers = Pointers(environment);
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return ErrnoStatus("fork for", options.arguments[0]);
  if (pid == 0) Become(options, argument_pointers.data(), environment_pointers.data(), launcher);
  return ChildProcess(pid);
}

std::optional<int> ChildProcess::Poll() {
  if (exit_status_) return exit_status_;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_status_;
}

void ChildProcess::Signal(int signal_number) const {
  // A reaped process id may already be someone else's.
  if (!exit_status_) ::kill(pid_, signal_number);
}

std::string ProgramDirectory() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, length > 0 ? static_cast<size_t>(length) : 0);
  return program.substr(0, program.rfind('/'));
}

}  // namespace anyorder::launcher
