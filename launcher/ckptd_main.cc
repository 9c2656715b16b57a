// anyorder-ckptd: the checkpoint service of one node, as a foreground process outside the trainers' MPI job.
// ckpt/PROTOCOL.md says what it promises.

#include <CLI/CLI.hpp>
#include <signal.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "ckpt/service.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "launcher/command_line.h"

namespace anyorder {
namespace {

ckpt::Service* running_service = nullptr;  // for the signal handler

void StopOnSignal(int) {
  if (running_service != nullptr) running_service->RequestStop();
}

void SetHandler(int signal_number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(signal_number, &action, nullptr);
}

absl::Status Serve(const ckpt::ServiceOptions& options) {
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::Service> service,
                            ckpt::Service::Start(options));
  running_service = service.get();
  // Only now: until there is something to finish, a signal may simply end the process.
  SetHandler(SIGTERM, StopOnSignal);
  SetHandler(SIGINT, StopOnSignal);
  Log(absl::StrCat("serving '", options.run_dir, "' on ", service->socket_path()));
  const absl::Status status = service->Run();
  SetHandler(SIGTERM, SIG_IGN);
  SetHandler(SIGINT, SIG_IGN);
  running_service = nullptr;
  return status;
}

int Main(int argc, char** argv) {
  ckpt::ServiceOptions options;
  double idle_seconds = absl::ToDoubleSeconds(options.idle_limit);
  bool skip_verify = false;
  CLI::App app(
      "Checkpoint service of one node: commits what the trainers stage, and outlives them.",
      "anyorder-ckptd");
  app.add_option("--run-dir", options.run_dir, "run directory; must exist")->required();
  app.add_option(
      "--socket", options.socket_path, "Unix socket (default: inside the run directory)");
  app.add_option("--run-id", options.run_id, "name of the run")->required();
  app.add_option("--incarnation", options.incarnation, "number of this start of the run, from 1")
      ->required();
  app.add_option("--node", options.node, "this node; node 0 holds the lease (default 0)");
  app.add_option("--num-nodes", options.num_nodes, "nodes of the run (default 1)");
  app.add_option("--keep-last", options.keep_last, "newest checkpoints kept, >= 2 (default 2)");
  app.add_option("--keep-every", options.keep_every, "also keep every step divisible by this");
  app.add_option(
      "--idle-seconds", idle_seconds, "exit so long after the last trainer (default 60)");
  app.add_flag(
      "--skip-verify", skip_verify, "do not read checkpoints back before retiring older ones");
  if (const auto ended = launcher::ParseCommandLine(app, argc, argv)) return *ended;
  options.idle_limit = absl::Seconds(idle_seconds);
  options.verify_after_commit = !skip_verify;
  SetLogName(absl::StrCat("ckptd ", options.node));
  // The terminal or the batch script may go before the last save is on disk.
  SetHandler(SIGHUP, SIG_IGN);
  SetHandler(SIGPIPE, SIG_IGN);
  return ReportAndExitStatus("anyorder-ckptd", Serve(options));
}

}  // namespace
}  // namespace anyorder

int main(int argc, char** argv) {
  return anyorder::Main(argc, argv);
}
