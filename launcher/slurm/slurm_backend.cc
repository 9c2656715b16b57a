#include "launcher/slurm/slurm_backend.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "ckpt/lease.h"
#include "core/base/counted.h"
#include "core/base/crc32c.h"
#include "core/base/file_system.h"
#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/train/run/run_directory.h"
#include "launcher/process/new_files.h"
#include "launcher/process/node_place.h"
#include "launcher/start/launch_signals.h"
#include "launcher/start/open_mpi.h"

namespace anyorder::launcher {
namespace {

// For a node to answer a step. After this the run continues without it, long before Slurm's own
// SlurmdTimeout.
constexpr absl::Duration kNodeStepLimit = absl::Seconds(20);
constexpr absl::Duration kNodesLimit = absl::Seconds(60);
constexpr absl::Duration kLeftoverLimit = absl::Minutes(2);
constexpr char kRankStep[] = "anyorder-train";
constexpr char kServiceStep[] = "anyorder-ckptd";

std::string Variable(const char* name) {
  const char* const value = ::getenv(name);
  return value == nullptr ? "" : value;
}

void Add(const std::vector<std::string>& words, std::vector<std::string>* arguments) {
  arguments->insert(arguments->end(), words.begin(), words.end());
}

// Elsewhere srun complains of --cpu-bind.
bool BindsTasks() {
  std::string config;
  if (!RunCommand({"scontrol", "show", "config"}, absl::Seconds(20), &config).ok()) return false;
  for (const absl::string_view line : absl::StrSplit(config, '\n')) {
    if (absl::StartsWith(line, "TaskPlugin "))
      return absl::StrContains(line, "affinity") || absl::StrContains(line, "cgroup");
  }
  return false;
}

class SlurmBackend final : public LaunchBackend {
 public:
  SlurmBackend(JobOptions options, MpiChoice mpi, OpenMpi open_mpi, bool binds_tasks)
      : options_(std::move(options)),
        binds_tasks_(binds_tasks),
        job_(Variable("SLURM_JOB_ID")),
        slurm_directory_(options_.run_dir + "/slurm"),
        mpi_(std::move(mpi)),
        open_mpi_(std::move(open_mpi)) {}

  absl::StatusOr<Place> Prepare() override {
    RETURN_IF_ERROR(MakeDirectories(slurm_directory_));
    const std::vector<std::string> before = nodes_;
    if (environment_.empty()) {
      RETURN_IF_ERROR(EndLeftoverSteps());
      Log(mpi_.reason);
      environment_ = MpiEnvironmentForNodes();
    }
    ASSIGN_OR_RETURN(nodes_, NodesThatAnswer());
    const auto num_nodes = std::ssize(nodes_);
    const int64_t wanted = options_.ranks_per_node;
    const Shape shape = ChooseShape(num_nodes, wanted, options_.max_ranks);
    if (shape.nodes * shape.ranks_per_node < num_nodes * wanted) {
      LogWarning(absl::StrCat("the run has ", options_.max_ranks,
                              " microbatches: ", Counted(shape.ranks_per_node, "rank"),
                              " on each of ", Counted(shape.nodes, "node"),
                              "; ask for fewer, or for smaller microbatches"));
    }
    has_started_ = true;
    nodes_.resize(shape.nodes);
    if (mpi_.plugin.empty()) {
      ASSIGN_OR_RETURN(has_scratch_,
                       MakeHeadScratch(open_mpi_, options_.run_dir, absl::StrJoin(nodes_, ",")));
    }
    ranks_per_node_ = shape.ranks_per_node;
    Place place;
    place.ranks = shape.nodes * shape.ranks_per_node;
    place.nodes = nodes_;
    place.has_lost_nodes = std::any_of(before.begin(), before.end(), [&](const std::string& node) {
      return std::find(nodes_.begin(), nodes_.end(), node) == nodes_.end();
    });
    if (!absl::SimpleAtoi(job_, &place.slurm_job)) place.slurm_job = -1;
    if (!absl::SimpleAtoi(Variable("SLURM_RESTART_COUNT"), &place.slurm_restart))
      place.slurm_restart = 0;
    return place;
  }

  StartedGroup StartService(const AttemptOptions& options) override {
    if (!service_words_) {
      ASSIGN_OR_RETURN(OutputRelay words,
                       OutputRelay::Open(RunDirectory(options_.run_dir).service_log,
                                         /*is_shown=*/false));
      service_words_.emplace(std::move(words));
    }
    SlurmStepOptions step;
    step.directory = slurm_directory_;
    step.prefix = absl::StrCat("ckptd-", options.identity.attempt, "-");
    step.is_service = true;
    step.output = &*service_words_;
    step.spawn.arguments = Srun(1);
    Add({"--mpi=none", "--kill-on-bad-exit=0", "--wait=0", "--job-name=" + StepName(kServiceStep),
         absl::StrCat("--output=", slurm_directory_, "/", step.prefix, "%N.log")},
        &step.spawn.arguments);
    Add(ServiceCommand(options), &step.spawn.arguments);
    Add({"--nodes", absl::StrJoin(nodes_, ","), "--ended-attempt",
         absl::StrCat(EndedAttempt(options.identity.attempt))},
        &step.spawn.arguments);
    return StartSlurmStep(step);
  }

  // Nodes that wait for node 0 have less to say than the one that was refused.
  std::string ServiceWords(const AttemptOptions& options) override {
    return service_words_->last_error().empty() ? LaunchBackend::ServiceWords(options)
                                                : service_words_->last_error();
  }

  StartedGroup StartRanks(const AttemptOptions& options, OutputRelay& output) override {
    SlurmStepOptions step;
    step.spawn.environment = environment_;
    step.spawn.environment.push_back(absl::StrCat("ANYORDER_WORLD_SIZE=", options.place.ranks));
    if (mpi_.plugin.empty()) {
      std::vector<std::string> hosts;
      for (const std::string& node : nodes_)
        hosts.push_back(absl::StrCat(node, ":", ranks_per_node_));
      step.spawn.arguments = MpirunCommand(open_mpi_, options.place.ranks, hosts);
      AddMpirunEnvironment(open_mpi_, options_.run_dir, absl::StrJoin(nodes_, ","),
                           /*by_srun=*/true, &step.spawn.environment);
      output.DropNotice(ExitNotice(open_mpi_));
    } else {
      step.directory = slurm_directory_;
      step.prefix = absl::StrCat("ranks-", options.identity.attempt, "-");
      step.spawn.arguments = Srun(ranks_per_node_);
      Add({"--mpi=" + mpi_.plugin, "--kill-on-bad-exit=1", "--job-name=" + StepName(kRankStep),
           absl::StrCat("--output=", slurm_directory_, "/", step.prefix, "%N.log")},
          &step.spawn.arguments);
      const std::string cpus = Variable("SLURM_CPUS_PER_TASK");
      if (!cpus.empty()) step.spawn.arguments.push_back("--cpus-per-task=" + cpus);
      // Slurm would bind each rank to the one core that nobody asked more than, and its threads
      // with it.
      if (cpus.empty() && binds_tasks_) step.spawn.arguments.push_back("--cpu-bind=none");
    }
    Add(RankCommand(options), &step.spawn.arguments);
    Add({"--nodes", absl::StrJoin(nodes_, ",")}, &step.spawn.arguments);
    step.spawn.death_signal = SIGTERM;  // which ends the step; SIGKILL would end only its srun
    step.output = &output;
    return StartSlurmStep(step);
  }

  bool is_distributed() const override { return true; }
  // Services remove their directories, and the next start what is left.
  void CleanUp() override {
    if (has_scratch_) RemoveScratch(options_.run_dir, HostName()).IgnoreError();
  }

 private:
  // Steps are told from those of other runs in the same job.
  std::string StepName(const char* kind) const {
    const std::string& run = options_.run_dir;
    return absl::StrCat(kind, ".", absl::Hex(Crc32c(run.data(), std::ssize(run))));
  }

  // Names everything that the job's SLURM_ variables would otherwise decide.
  std::vector<std::string> Srun(int64_t tasks_per_node) const {
    const int64_t num_nodes = std::ssize(nodes_);
    return {"srun",
            "--overlap",
            "--export=ALL",
            "--distribution=block",
            "--open-mode=append",
            absl::StrCat("--nodes=", num_nodes),
            absl::StrCat("--ntasks=", num_nodes * tasks_per_node),
            absl::StrCat("--ntasks-per-node=", tasks_per_node),
            absl::StrCat("--nodelist=", absl::StrJoin(nodes_, ","))};
  }

  // A launcher that was killed leaves its steps behind, where the job lives on (salloc).
  absl::Status EndLeftoverSteps() {
    const absl::Time deadline = MonotonicNow() + kLeftoverLimit;
    for (bool is_told = false; MonotonicNow() < deadline; absl::SleepFor(absl::Milliseconds(500))) {
      ASSIGN_OR_RETURN(const std::vector<JobStep> steps, StepsOfJob(job_));
      bool is_over = true;
      for (const JobStep& step : steps) {
        const bool is_service = step.name == StepName(kServiceStep);
        if (!is_service && step.name != StepName(kRankStep)) continue;
        is_over = false;
        if (is_told) continue;
        Log(absl::StrCat("ending step ", step.id, " of an earlier launch of this run"));
        SignalStep(step.id, is_service ? "USR1" : "KILL").IgnoreError();
      }
      if (is_over) return absl::OkStatus();
      is_told = true;
    }
    return absl::OkStatus();  // the lease decides
  }

  // Slurm learns of a lost node long after its processes have ended, so the nodes are asked
  // themselves.
  absl::StatusOr<std::vector<std::string>> NodesThatAnswer() {
    const absl::Time deadline = MonotonicNow() + kNodesLimit;
    while (true) {
      ASSIGN_OR_RETURN(const std::vector<std::string> held, NodesOfJob(job_));
      ASSIGN_OR_RETURN(nodes_, UsableNodes(held));
      if (nodes_.empty())
        return Unavailable("no node of job ", job_, " (", absl::StrJoin(held, ","),
                           ") can be used");
      ASSIGN_OR_RETURN(const NodeAnswers answers, AskNodes());
      // Later it was shared once, and the node has lost it since.
      if (!answers.elsewhere.empty() && !has_started_)
        return NotShared(options_.run_dir, answers.elsewhere);
      if (!answers.elsewhere.empty())
        LogWarning(NotShared(options_.run_dir, answers.elsewhere).message());
      if (answers.nodes.size() == nodes_.size() || NumLaunchSignals() > 0) return nodes_;
      if (MonotonicNow() < deadline) {
        absl::SleepFor(absl::Seconds(1));
        continue;
      }
      std::vector<std::string> living;
      for (const std::string& node : nodes_) {
        if (answers.nodes.count(node) > 0) {
          living.push_back(node);
        } else {
          LogWarning(absl::StrCat("continuing without node ", node, ", which runs no step"));
        }
      }
      if (!living.empty()) return living;
      return Unavailable("no node of job ", job_, " runs a step");
    }
  }

  // One task on each node, which removes what earlier starts left there and says its node's name.
  absl::StatusOr<NodeAnswers> AskNodes() {
    ASSIGN_OR_RETURN(const std::string mark, WriteSharedMark(options_.run_dir));
    const absl::Cleanup remove = [&mark] { ::unlink(mark.c_str()); };
    std::vector<std::string> command = Srun(1);
    Add({"--mpi=none", "--kill-on-bad-exit=0", ProgramDirectory() + "/anyorder", "clean-node",
         "--run-dir", options_.run_dir, "--mark", mark, "--nodes", absl::StrJoin(nodes_, ",")},
        &command);
    std::string output;
    const absl::Status asked = RunCommand(command, kNodeStepLimit, &output);
    NodeAnswers answers = ReadNodeAnswers(output);
    if (!asked.ok() && answers.nodes.size() < nodes_.size()) LogWarning(asked.message());
    return answers;
  }

  // The start up to which no service runs any more: those of this launcher, whose steps it has seen
  // end, and those of a job that Slurm says is over. What is left of them was cut off from Slurm,
  // and stops by the lease.
  int64_t EndedAttempt(int64_t attempt) {
    if (first_attempt_ == 0) first_attempt_ = attempt;
    if (attempt > first_attempt_) return attempt - 1;
    const auto owner = ckpt::ReadLease(FileSystem::Posix(), options_.run_dir);
    const bool has_ended = owner.ok() && owner->attempt < attempt &&
                           JobHasEnded(owner->job, ckpt::DescribeThisProcess("", 0, "").job);
    return has_ended ? owner->attempt : 0;
  }

  const JobOptions options_;
  const bool binds_tasks_;  // Slurm binds them to cores
  const std::string job_;
  const std::string slurm_directory_;
  const MpiChoice mpi_;
  const OpenMpi open_mpi_;  // where mpirun starts the ranks
  std::optional<OutputRelay> service_words_;
  std::vector<std::string> nodes_;  // of the start
  bool has_started_ = false;        // this launcher, once before
  bool has_scratch_ = false;        // here, for mpirun alone
  int64_t ranks_per_node_ = 0;
  int64_t first_attempt_ = 0;  // of this launcher
  std::vector<std::string> environment_;
};

}  // namespace

Shape ChooseShape(int64_t nodes, int64_t ranks_per_node, int64_t max_ranks) {
  Shape best;
  for (int64_t n = 1; n <= nodes; ++n) {
    const int64_t r = std::min(ranks_per_node, max_ranks / n);
    if (r >= 1 && n * r >= best.nodes * best.ranks_per_node) best = {n, r};
  }
  return best;
}

BatchNodes NodesOfThisJob(int64_t ranks_per_node) {
  const auto number = [](const char* name) {  // "2(x3),1": 2
    return std::strtoll(Variable(name).c_str(), nullptr, 10);
  };
  for (const char* counts : {"SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})
    if (ranks_per_node == 0) ranks_per_node = number(counts);
  return {Variable("SLURM_JOB_PARTITION"), ranks_per_node,
          number("SLURM_JOB_NUM_NODES") * ranks_per_node};
}

absl::StatusOr<std::unique_ptr<LaunchBackend>> MakeSlurmBackend(const JobOptions& options) {
  if (Variable("SLURM_JOB_ID").empty()) {
    return InvalidArgument(
        "--backend slurm: this is not a Slurm job (SLURM_JOB_ID is not set); use 'anyorder "
        "submit', or start this inside sbatch or salloc");
  }
  JobOptions resolved = options;
  resolved.ranks_per_node = NodesOfThisJob(options.ranks_per_node).ranks_per_node;
  if (resolved.ranks_per_node < 1)
    return InvalidArgument("--ranks-per-node: name the number of ranks on each node");
  for (const char* program : {"srun", "squeue", "sinfo", "scontrol"}) {
    if (HasProgram(program)) continue;
    return InvalidArgument("--backend slurm: there is no ", program,
                           " in PATH; add the directory of Slurm's commands to it");
  }
  std::string plugins;
  const absl::Status listed = RunCommand({"srun", "--mpi=list"}, absl::Seconds(20), &plugins);
  if (!listed.ok()) return InvalidArgument("--backend slurm: ", listed.message());
  ASSIGN_OR_RETURN(MpiChoice mpi, ChooseMpi(options.mpi, plugins, HasProgram("mpirun")));
  OpenMpi open_mpi;
  if (mpi.plugin.empty()) {
    ASSIGN_OR_RETURN(open_mpi, FindOpenMpi());
  }
  return std::unique_ptr<LaunchBackend>(
      new SlurmBackend(resolved, std::move(mpi), std::move(open_mpi), BindsTasks()));
}

}  // namespace anyorder::launcher
