// anyorder-ckptd: the checkpoint service of one node, as a foreground process outside the trainers'
// MPI job. ckpt/PROTOCOL.md says what it promises.

#include <CLI/CLI.hpp>
#include <signal.h>
#include <sys/vfs.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "ckpt/service.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "launcher/process/command_line.h"
#include "launcher/process/new_files.h"
#include "launcher/process/node_place.h"

namespace anyorder {
namespace {

ckpt::Service* running_service = nullptr;  // for the signal handler

// Under Slurm the ranks get the same signal at the same time, and have a save to make.
void StopAfterTrainersOnSignal(int) {
  if (running_service != nullptr) running_service->RequestStopAfterTrainers();
}

void StopOnSignal(int) {
  if (running_service != nullptr) running_service->RequestStop();
}

void SetHandler(int signal_number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(signal_number, &action, nullptr);
}

// The place of a service that is one of several.
struct Nodes {
  std::string list;
  std::optional<launcher::NodePlace> place;
  launcher::NodeScratch scratch;
};

absl::Status FindPlace(Nodes& nodes, ckpt::ServiceOptions& options) {
  if (nodes.list.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(nodes.place, launcher::FindNodePlace(nodes.list));
  ASSIGN_OR_RETURN(nodes.scratch,
                   launcher::MakeScratch(options.run_dir, nodes.place->name, "/tmp"));
  options.node = nodes.place->index;
  options.num_nodes = nodes.place->count;
  options.socket_path = launcher::ServiceSocket(nodes.scratch, options.attempt);
  struct statfs info {};  // 0 if it does not say: no local one
  ::statfs(options.run_dir.c_str(), &info);
  options.ended_grace = launcher::NameCacheTime(static_cast<int64_t>(info.f_type));
  return absl::OkStatus();
}

absl::Status Serve(Nodes nodes, ckpt::ServiceOptions options) {
  RETURN_IF_ERROR(FindPlace(nodes, options));
  SetLogName(absl::StrCat("ckptd ", options.node));
  ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::Service> service, ckpt::Service::Start(options));
  running_service = service.get();
  // Only now: until there is something to finish, a signal may simply end the process.
  const auto handler = nodes.place ? StopAfterTrainersOnSignal : StopOnSignal;
  SetHandler(SIGTERM, handler);
  SetHandler(SIGINT, handler);
  if (nodes.place) SetHandler(SIGUSR1, handler);  // srun ends its step at once when it gets SIGTERM
  Log(absl::StrCat("serving '", options.run_dir, "' on ", service->socket_path()));
  const absl::Status status = service->Run();
  SetHandler(SIGTERM, SIG_IGN);
  SetHandler(SIGINT, SIG_IGN);
  SetHandler(SIGUSR1, SIG_IGN);
  running_service = nullptr;
  // Its own: a next start that is here already has others.
  if (nodes.place) launcher::RemoveScratch(nodes.scratch).IgnoreError();
  return status;
}

int Main(int argc, char** argv) {
  ckpt::ServiceOptions options;
  double idle_seconds = absl::ToDoubleSeconds(options.idle_limit);
  double file_stall_seconds = absl::ToDoubleSeconds(options.file_system_limit);
  bool skip_verify = false;
  bool is_private = false;
  Nodes nodes;
  CLI::App app(
      "Checkpoint service of one node: commits what the trainers stage, and outlives them.",
      "anyorder-ckptd");
  app.set_version_flag("--version", "anyorder-ckptd " ANYORDER_VERSION, "print the version");
  app.add_option("--run-dir", options.run_dir, "run directory; must exist")->required();
  app.add_option("--socket", options.socket_path,
                 "Unix socket (default: inside the run directory)");
  app.add_option("--run-id", options.run_id, "name of the run")->required();
  app.add_option("--attempt", options.attempt, "number of this start of the run, from 1")
      ->required();
  app.add_option("--node", options.node, "this node; node 0 holds the lease (default 0)");
  app.add_option("--num-nodes", options.num_nodes, "nodes of the run (default 1)");
  app.add_option(
      "--nodes", nodes.list,
      "names of the run's nodes, with commas, instead of --node, --num-nodes and --socket; "
      "this one is SLURMD_NODENAME");
  app.add_option("--ended-attempt", options.ended_attempt,
                 "services of starts up to this one are known to have ended");
  app.add_option("--keep-last", options.keep_last, "newest checkpoints kept, >= 2 (default 2)");
  app.add_option("--keep-every", options.keep_every, "also keep every step divisible by this");
  app.add_option("--idle-seconds", idle_seconds,
                 "exit so long after the last trainer (default 60)");
  app.add_option("--file-stall-seconds", file_stall_seconds,
                 "exit when LEASE could not be read for so long (default 300)");
  app.add_flag("--skip-verify", skip_verify,
               "do not read checkpoints back before retiring older ones");
  app.add_flag("--private", is_private, "let nobody else read what this writes (umask 077)");
  if (const auto ended = launcher::ParseCommandLine(app, argc, argv)) return *ended;
  options.idle_limit = absl::Seconds(idle_seconds);
  // One renewal that fails is no stall.
  options.file_system_limit = std::max(absl::Seconds(file_stall_seconds), options.lease_lifetime);
  options.verify_after_commit = !skip_verify;
  if (is_private) launcher::KeepFilesPrivate();
  // The terminal or the batch script may go before the last save is on disk.
  SetHandler(SIGHUP, SIG_IGN);
  SetHandler(SIGPIPE, SIG_IGN);
  return ReportAndExitStatus("anyorder-ckptd", Serve(nodes, options));
}

}  // namespace
}  // namespace anyorder

int main(int argc, char** argv) { return anyorder::Main(argc, argv); }
