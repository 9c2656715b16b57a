#include "launcher/process/child_process.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/base/unique_fd.h"

namespace anyorder::launcher {
namespace {

// In the child, between fork and exec: the launcher has threads, so nothing here may allocate or
// lock.
[[noreturn]] void Become(const SpawnOptions& options, char* const* arguments,
                         char* const* environment, pid_t launcher) {
  if (options.own_session) ::setsid();
  if (options.death_signal != 0) {
    ::prctl(PR_SET_PDEATHSIG, options.death_signal);
    if (::getppid() != launcher) ::_exit(kExitIo);  // it died before the line above
  }
  for (const int signal_number : {SIGTERM, SIGINT, SIGUSR1, SIGPIPE})
    ::signal(signal_number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int input = options.input_fd >= 0 ? options.input_fd : ::open("/dev/null", O_RDONLY);
  if (input >= 0) ::dup2(input, STDIN_FILENO);
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

// The path of the running program; "" if it is not known.
std::string OwnProgram() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  return {path, length > 0 ? static_cast<size_t>(length) : 0};
}

// The arguments of this process; empty if they cannot be read.
std::vector<std::string> OwnArguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

// "" if PATH holds none.
std::string FindProgram(const std::string& name) {
  const char* path = ::getenv("PATH");
  if (path == nullptr) return "";
  for (const absl::string_view directory : absl::StrSplit(path, ":")) {
    const std::string file = absl::StrCat(directory.empty() ? "." : directory, "/", name);
    struct stat info {};
    if (::stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        ::access(file.c_str(), X_OK) == 0)
      return file;
  }
  return "";
}

constexpr size_t kMaxOutputBytes = 1 << 20;
constexpr absl::Duration kEndLimit = absl::Seconds(5);

// Appends what comes to `text`. False if the deadline comes before the end.
bool ReadToEnd(int fd, absl::Time deadline, std::string* text) {
  while (MonotonicNow() < deadline) {
    pollfd readable = {fd, POLLIN, 0};
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - MonotonicNow()) + 1;
    if (::poll(&readable, 1, static_cast<int>(std::min<int64_t>(left_ms, 1000))) <= 0) continue;
    char block[1 << 12];
    const ssize_t got = ::read(fd, block, sizeof block);
    if (got <= 0) return true;
    if (text->size() < kMaxOutputBytes) text->append(block, static_cast<size_t>(got));
  }
  return false;
}

// Waits for its end, and brings it about after the deadline: by SIGTERM, with which srun ends its
// step, and by SIGKILL later. False if that was necessary.
bool AwaitEnd(ChildProcess& child, absl::Time deadline) {
  bool is_told = false;
  for (; !child.Poll(); absl::SleepFor(absl::Milliseconds(1))) {
    if (MonotonicNow() > deadline + kEndLimit) child.Signal(SIGKILL);
    if (MonotonicNow() > deadline && !is_told) child.Signal(SIGTERM);
    is_told = is_told || MonotonicNow() > deadline;
  }
  return !is_told;
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
  const std::string program = OwnProgram();
  return program.substr(0, program.rfind('/'));
}

void EnsureShortSpin() {
  if (::getenv("GOMP_SPINCOUNT") != nullptr || ::getenv("OMP_WAIT_POLICY") != nullptr) return;
  const std::vector<std::string> arguments = OwnArguments();
  // By its path, not as /proc/self/exe: the process keeps its name.
  const std::string program = OwnProgram();
  if (arguments.empty() || program.empty()) return;
  // Also ends the repetition: the next time it is set.
  if (::putenv(const_cast<char*>(kShortSpin)) != 0) return;
  // If it fails, this process goes on and is only slower.
  ::execv(program.c_str(), Pointers(arguments).data());
}

absl::StatusOr<CapturedOutput> RunCaptured(const std::vector<std::string>& arguments,
                                           absl::Time deadline) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe to", arguments[0]);
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  SpawnOptions spawn;
  spawn.arguments = arguments;
  spawn.output_fd = write_end.get();
  spawn.own_session = true;
  spawn.death_signal = SIGTERM;
  ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Spawn(spawn));
  write_end = UniqueFd();
  CapturedOutput output;
  output.is_late = !ReadToEnd(read_end.get(), deadline, &output.text);
  read_end = UniqueFd();
  output.is_late = !AwaitEnd(child, deadline) || output.is_late;
  output.exit_status = *child.Poll();
  return output;
}

bool HasProgram(const std::string& name) { return !FindProgram(name).empty(); }

std::string ShellQuote(absl::string_view word) {
  const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char letter) {
    return absl::ascii_isalnum(static_cast<unsigned char>(letter)) ||
           absl::StrContains("_-+=./,:@%", letter);
  });
  return is_plain ? std::string(word)
                  : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

std::string ShellCommand(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " ", [](std::string* out, const std::string& word) {
    absl::StrAppend(out, ShellQuote(word));
  });
}

std::string FrontCommand() {
  const std::string name = "anyorder", own = ProgramDirectory() + "/" + name;
  std::error_code error;
  const std::string found = FindProgram(name);
  const bool is_found = !found.empty() && std::filesystem::equivalent(found, own, error);
  return is_found ? name : ShellQuote(own);
}

std::string TypedCommand() {
  const std::vector<std::string> words = OwnArguments();
  std::string command = words.empty() ? "anyorder" : ShellCommand(words);
  std::replace_if(
      command.begin(), command.end(),
      [](char letter) { return absl::ascii_iscntrl(static_cast<unsigned char>(letter)); }, '?');
  return command;
}

}  // namespace anyorder::launcher
