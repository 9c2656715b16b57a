// How the checkpoint service and the ranks of a start are started: as processes of this machine,
// or as steps of a Slurm job. All else about a run (lease, ledger, signals, who is alive,
// restarts) is the same for both.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "core/train/run/run_config.h"
#include "core/train/state/resume.h"
#include "launcher/process/child_process.h"
#include "launcher/process/host_names.h"
#include "launcher/process/output_relay.h"
#include "launcher/run/run_identity.h"
#include "launcher/start/held_lease.h"
#include "launcher/start/run_pace.h"
#include "launcher/start/start_request.h"

namespace anyorder::launcher {

// Where a start runs.
struct Place {
  int64_t ranks = 1;
  std::vector<std::string> nodes;  // in the order of their ranks
  int64_t slurm_job = -1;          // these two as in the ledger
  int64_t slurm_restart = -1;
  bool has_lost_nodes = false;  // of the start before
};

struct AttemptOptions {
  std::string run_dir;
  RunIdentity identity;
  Place place;
  ResumeMode resume = ResumeMode::kAuto;
  RunConfig config;
  bool progress_on_terminal = false;
  HeldLease* lease = nullptr;    // never null in RunAttempt
  PaceRecorder* pace = nullptr;  // nor is this, once there are ranks
  // Called once the service owns the run directory, before the ranks start: what a start that is
  // refused must not have written.
  std::function<absl::Status()> before_ranks;
  // A service may say nothing new for so long while it starts, which takes as long as it takes to
  // read a checkpoint that an earlier start left uncommitted.
  absl::Duration service_silence_limit = absl::Minutes(3);
};

// The service or the ranks of one start, on however many nodes. The destructor ends nothing.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  // Its exit status, or 128 + signal number; nothing while it runs. Never blocks; call it often.
  virtual std::optional<int> Poll() = 0;
  // Ranks: save and stop; `urgent`: without waiting for the commit. A service: finish what is
  // staged and end. May be lost while the step starts, so repeat it.
  virtual void AskToStop(bool urgent) = 0;
  // Ends it on every node that can be reached.
  virtual void Kill() = 0;
};

struct GroupSignals {
  int stop = 0;
  int urgent = 0;
  // SIGKILL or, where that would end the program alone, SIGTERM, with which it ends its processes
  // on other machines. One that hangs is killed a minute later.
  int kill = 0;
};

// A service or ranks that one program of this machine stands for: the service itself, or the mpirun
// or srun that passes signals on to the ranks (local_backend.cc).
class ProgramGroup final : public ProcessGroup {
 public:
  ProgramGroup(ChildProcess program, const GroupSignals& signals)
      : program_(program), signals_(signals) {}

  std::optional<int> Poll() override;
  void AskToStop(bool urgent) override;
  void Kill() override;

 private:
  ChildProcess program_;
  const GroupSignals signals_;
  absl::Time killed_ = absl::InfiniteFuture();  // when it was first told to end
  bool is_asked_ = false;
};

using StartedGroup = absl::StatusOr<std::unique_ptr<ProcessGroup>>;

class LaunchBackend {
 public:
  virtual ~LaunchBackend() = default;

  // Chooses and cleans the place of the next start. Unavailable if there is none left.
  virtual absl::StatusOr<Place> Prepare() = 0;

  virtual StartedGroup StartService(const AttemptOptions& options) = 0;
  // The last thing that the service said: the last line of its log.
  virtual std::string ServiceWords(const AttemptOptions& options);

  virtual StartedGroup StartRanks(const AttemptOptions& options, OutputRelay& output) = 0;
  // Whether ranks cannot see this process die, and so are told by their services.
  virtual bool is_distributed() const = 0;
  // After the ranks of a start.
  virtual void CleanUp() = 0;
};

// The command lines of anyorder-train and anyorder-ckptd, the same for every backend.
std::vector<std::string> RankCommand(const AttemptOptions& options);
std::vector<std::string> ServiceCommand(const AttemptOptions& options);

// By mpirun on this machine.
absl::StatusOr<std::unique_ptr<LaunchBackend>> MakeLocalBackend(const std::string& run_dir,
                                                                int64_t ranks);

struct HostsOptions {
  std::string run_dir;  // absolute
  std::vector<HostSlots> hosts;
  int64_t ranks = 1;  // at most as many as all hosts have slots
  // Words that are followed by a host and a command; "": see RemoteShell (open_mpi.h).
  std::string rsh;
};
// On machines that a shell command reaches, ssh as a rule: clusters without Slurm. InvalidArgument
// without mpirun or, for other machines, without `rsh`. Writes nothing.
absl::StatusOr<std::unique_ptr<LaunchBackend>> MakeHostsBackend(const HostsOptions& options);

struct JobOptions {
  std::string run_dir;         // absolute
  int64_t ranks_per_node = 0;  // at most; 0: as many as the job's tasks on its first node
  std::string mpi = "auto";    // or srun, mpirun
  int64_t max_ranks = 1;       // as many microbatches as the run has
};
// What launcher/slurm is to this folder, which does not know it.
struct BatchSystem {
  // Service and ranks as steps of the job that this launcher runs in. InvalidArgument, with the
  // fix, outside of a job or without a way to start ranks. Writes nothing.
  absl::StatusOr<std::unique_ptr<LaunchBackend>> (*make_backend)(const JobOptions& options);
  JobHasEndedQuestion job_has_ended;
  // What that job has, for `ranks_per_node` as in JobOptions.
  BatchNodes (*nodes_of_job)(int64_t ranks_per_node);
};

// The exit status of the ranks, when they are gone and the service has finished what they had
// staged. If the service dies, the ranks are ended (137). 75 without any rank if a stop was asked
// for before. Errors: AlreadyExists if someone else's service owns the run directory; Unavailable
// if none can be started; Aborted once the lease is lost: then the ranks are gone, and nothing else
// is touched, since it may be the new owner's.
absl::StatusOr<int> RunAttempt(const AttemptOptions& options, LaunchBackend& backend,
                               OutputRelay& output);

}  // namespace anyorder::launcher
