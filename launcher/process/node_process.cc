// `anyorder node-process -- COMMAND...`: runs a command on another machine for a launcher, which
// reaches it by ssh. A signal does not travel there; a line on standard input, "USR1" or "KILL",
// does. When the connection ends, the command goes on: a checkpoint service outlives its
// launcher.

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"

namespace anyorder::launcher {
namespace {

constexpr int kPollMs = 50;

void Obey(const std::string& line, ChildProcess& child) {
  if (line == "USR1") child.Signal(SIGUSR1);
  if (line == "KILL") child.Signal(SIGKILL);
}

// Waits for input and obeys its lines. False at its end.
bool TakeInput(std::string& partial, ChildProcess& child) {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  if (::poll(&input, 1, kPollMs) <= 0) return true;
  char block[256];
  const ssize_t got = ::read(STDIN_FILENO, block, sizeof block);
  if (got <= 0) return false;
  partial.append(block, static_cast<size_t>(got));
  for (size_t end = 0; (end = partial.find('\n')) != std::string::npos; partial.erase(0, end + 1))
    Obey(partial.substr(0, end), child);
  return true;
}

int RunNodeProcess(const std::vector<std::string>& words) {
  for (const int signal_number : {SIGHUP, SIGPIPE, SIGINT, SIGTERM})
    ::signal(signal_number, SIG_IGN);
  SpawnOptions spawn;
  spawn.arguments = words;
  spawn.own_session = true;
  absl::StatusOr<ChildProcess> child = ChildProcess::Spawn(spawn);
  if (!child.ok()) return Report(child.status());
  std::string partial;
  bool is_open = true;
  while (!child->Poll()) {
    if (is_open) {
      is_open = TakeInput(partial, *child);
    } else {
      ::poll(nullptr, 0, kPollMs);
    }
  }
  return *child->Poll();
}

}  // namespace

Subcommand DeclareNodeProcess(CLI::App& front) {
  const auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* command = AddCommand(front, "node-process", "A step of launch --hosts.", {})->group("");
  command->add_option("command", *words, "after --: what to run")->required();
  return {command, [words] { return RunNodeProcess(*words); }};
}

}  // namespace anyorder::launcher
