// anyorder-train: one trainer rank. Started by mpirun or srun, normally through `anyorder launch`.

#include <CLI/CLI.hpp>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "ckpt/protocol.h"
#include "ckpt/rank_link.h"
#include "core/base/log.h"
#include "core/base/machine_memory.h"
#include "core/base/status.h"
#include "core/liveness/rank_page.h"
#include "core/train/run/config_file.h"
#include "core/train/run/node_inventory.h"
#include "core/train/run/run_directory.h"
#include "core/train/run/stop_signal.h"
#include "core/train/trainer.h"
#include "dist/collective_watch.h"
#include "dist/mpi_communicator.h"
#include "dist/start_guard.h"
#include "kernels/backends/make_backend.h"
#include "launcher/process/command_line.h"
#include "launcher/process/new_files.h"
#include "launcher/process/node_place.h"
#include "launcher/start/open_mpi.h"

namespace anyorder {
namespace {

constexpr char kProgram[] = "anyorder-train";

struct CommandLine {
  CommandLine() { trainer.make_backend = kernels::MakeBackend; }

  TrainerOptions trainer;
  std::string resume = "auto";
  std::string progress = "lines";
  std::string nodes;
};

void Declare(CLI::App& app, CommandLine& line) {
  app.set_version_flag("--version", "anyorder-train " ANYORDER_VERSION, "print the version");
  app.add_option("--run-dir", line.trainer.run_dir, "run directory with a frozen config.toml")
      ->required();
  app.add_option("--run-id", line.trainer.run_id, "name of the run")->required();
  app.add_option("--attempt", line.trainer.attempt, "number of this start of the run")->required();
  app.add_option("--resume", line.resume, "auto, required or never")->capture_default_str();
  app.add_option("--nodes", line.nodes,
                 "names of the run's nodes, with commas; this one is SLURMD_NODENAME");
  app.add_option("--progress", line.progress, "a redrawn line, or one every few seconds")
      ->check(CLI::IsMember({"terminal", "lines"}))
      ->capture_default_str();
}

// Ranks that outlive their mpirun, or Slurm's own parent of them, would train on against the next
// start of the run.
void DieWithParent() {
  if (::getenv("ANYORDER_WORLD_SIZE") == nullptr) return;  // started by hand
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // In a container the parent may be the first process, too.
  if (::getppid() == 1 && ::getpid() != 1 && ::getenv("SLURM_JOB_ID") == nullptr) ::_exit(kExitIo);
}

// Where this rank's own service is, and Open MPI's files, before it looks for them.
absl::StatusOr<launcher::NodePlace> PrepareNode(const std::string& nodes, TrainerOptions& options) {
  ASSIGN_OR_RETURN(const launcher::NodePlace place, launcher::FindNodePlace(nodes));
  ASSIGN_OR_RETURN(const launcher::NodeScratch scratch,
                   launcher::FindScratch(options.run_dir, place.name));
  options.node = place.index;
  options.num_nodes = place.count;
  options.service_socket = launcher::ServiceSocket(scratch, options.attempt);
  launcher::UseForMpi(scratch);
  return place;
}

// What those that start ranks call them, before MPI says it; 0 by hand.
int RankInEnvironment() {
  int rank = 0;
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    const char* const text = ::getenv(variable);
    if (text != nullptr && absl::SimpleAtoi(text, &rank)) return rank;
  }
  return 0;
}

ckpt::RankLinkOptions LinkOptions(const TrainerOptions& options) {
  ckpt::RankLinkOptions link;
  link.socket_path = options.service_socket.empty()
                         ? ckpt::DefaultSocketPath(options.run_dir, options.node)
                         : options.service_socket;
  link.run_id = options.run_id;
  link.attempt = options.attempt;
  // By hand a service may be replaced at leisure.
  if (::getenv("ANYORDER_WORLD_SIZE") == nullptr) link.service_limit = absl::InfiniteDuration();
  return link;
}

absl::StatusOr<TrainEnd> TrainOnRank(TrainerOptions options, const std::string& node,
                                     dist::Communicator& communicator, liveness::RankPage& page) {
  page.SetRank(communicator.rank());
  dist::CollectiveWatchOptions watched;
  watched.page = &page;
  dist::CollectiveWatch watch(watched, communicator.rank(), communicator.host());
  watch.SetPhase("config.toml");
  communicator.set_watch(&watch);
  const absl::Cleanup unwatch = [&communicator] { communicator.set_watch(nullptr); };
  const absl::StatusOr<RunConfig> config = LoadRunConfig(RunDirectory(options.run_dir).config, {});
  RETURN_IF_ERROR(communicator.AllAgree(config.status()));
  if (config->run.is_private) launcher::KeepFilesPrivate();
  if (options.num_nodes > 1) {
    const std::vector<int> node_of_rank = dist::GatherNodes(communicator, options.node);
    const std::vector<int> ranks_of_nodes = dist::CountRanksOfNodes(node_of_rank);
    RETURN_IF_ERROR(dist::CheckPlacement(ranks_of_nodes, options.num_nodes));
    options.local_ranks = ranks_of_nodes[options.node];
    communicator.set_nodes(dist::RankGroups(node_of_rank));
  }
  const kernels::DeviceMemory gpus = kernels::MemoryOfDevices(config->train.device);
  options.local_devices = gpus.devices;
  const char* const partition = ::getenv("SLURM_JOB_PARTITION");
  const NodeFacts mine = {
      MachineMemoryBytes("", /*is_limited=*/false), gpus.devices, gpus.bytes, gpus.name,
      partition == nullptr ? "" : partition,        /*ranks=*/1};
  RecordNodes(RunDirectory(options.run_dir).nodes, {{node, mine}}, communicator);
  ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                   Trainer::Create(*config, options, communicator, &watch));
  return trainer->Run();
}

int Main(int argc, char** argv) {
  InstallStopSignals();  // first: until then a signal ends the rank
  CommandLine line;
  CLI::App app("One trainer rank; started by `anyorder launch`, mpirun or srun.", kProgram);
  Declare(app, line);
  if (const auto ended = launcher::ParseCommandLine(app, argc, argv)) return *ended;
  if (!ParseEnum(line.resume, line.trainer.resume)) {
    return ReportAndExitStatus(
        kProgram, InvalidArgument("--resume ", line.resume, ": must be auto, required or never"));
  }
  line.trainer.progress_on_terminal = line.progress == "terminal";
  DieWithParent();
  std::string node = HostName();
  if (!line.nodes.empty()) {
    const auto place = PrepareNode(line.nodes, line.trainer);
    if (!place.ok()) return ReportAndExitStatus(kProgram, place.status());
    node = place->name;
    SetLogName(absl::StrCat("a rank on ", place->name));
  }
  // Before MPI, whose start may hang.
  const auto page = liveness::RankPage::Create(RankInEnvironment(), HostName());
  if (!page.ok()) return ReportAndExitStatus(kProgram, page.status());
  (*page)->SetPhase("start of MPI");
  const ckpt::RankLink link(LinkOptions(line.trainer), **page);

  const auto environment = dist::MpiEnvironment::Create(&argc, &argv);
  if (!environment.ok()) {
    // Ranks that do not find each other all have the same to say.
    const char* const task = ::getenv("SLURM_PROCID");
    return task == nullptr || std::string(task) == "0"
               ? ReportAndExitStatus(kProgram, environment.status())
               : ExitStatusFor(environment.status());
  }
  const std::unique_ptr<dist::Communicator> world = (*environment)->World();
  SetLogName(absl::StrCat("rank ", world->rank()));
  const absl::StatusOr<TrainEnd> end = TrainOnRank(line.trainer, node, *world, **page);
  if (end.ok()) return *end == TrainEnd::kStopped ? kExitRequeue : kExitDone;
  // All ranks hold the same error; one line is enough.
  return world->rank() == 0 ? ReportAndExitStatus(kProgram, end.status())
                            : ExitStatusFor(end.status());
}

}  // namespace
}  // namespace anyorder

int main(int argc, char** argv) { return anyorder::Main(argc, argv); }
