#include "launcher/incarnation.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "ckpt/file_system.h"
#include "ckpt/lease.h"
#include "ckpt/protocol.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/train/run_directory.h"
#include "launcher/child_process.h"
#include "launcher/mpi_scratch.h"
#include "launcher/silent_ranks.h"

namespace anyorder::launcher {
namespace {

constexpr absl::Duration kServiceStartLimit =
    absl::Minutes(3);  // it may finish its predecessor's saves first
constexpr absl::Duration kServiceRetryLimit = absl::Seconds(10);
constexpr absl::Duration kServiceEndLimit = absl::Minutes(5);
constexpr absl::Duration kRepeatWish = absl::Seconds(1);
constexpr int kPollMs = 50;

// A signal handler can reach nothing but globals.
volatile std::sig_atomic_t num_signals = 0;

void CountSignal(int) {
  num_signals = num_signals + 1;
}

const char* NameOf(ResumeMode mode) {
  switch (mode) {
    case ResumeMode::kAuto:
      return "auto";
    case ResumeMode::kRequired:
      return "required";
    case ResumeMode::kNever:
      return "never";
  }
  return "auto";
}

bool IsAskedToStop() {
  return num_signals > 0;
}

// The last line that the service logged.
std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);)
    last = line;
  return last;
}

absl::StatusOr<ChildProcess> SpawnService(const IncarnationOptions& options) {
  const std::string log = RunDirectory(options.run_dir).service_log;
  const int log_fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd < 0) return ErrnoStatus("open", log);
  SpawnOptions spawn;
  spawn.arguments = {ProgramDirectory() + "/anyorder-ckptd",
                     "--run-dir",
                     options.run_dir,
                     "--run-id",
                     options.identity.run_id,
                     "--incarnation",
                     absl::StrCat(options.identity.incarnation),
                     "--keep-last",
                     absl::StrCat(options.checkpoint.keep_last),
                     "--keep-every",
                     absl::StrCat(options.checkpoint.keep_every)};
  spawn.output_fd = log_fd;
  spawn.own_session = true;
  absl::StatusOr<ChildProcess> service = ChildProcess::Spawn(spawn);
  ::close(log_fd);
  return service;
}

// It listens only when it has finished what the start before left: the ranks must not choose a checkpoint earlier.
bool IsReady(const IncarnationOptions& options, const ChildProcess& service) {
  const auto owner = ckpt::ReadLease(ckpt::FileSystem::Posix(), options.run_dir);
  return owner.ok() && owner->pid == service.pid() &&
         owner->incarnation == options.identity.incarnation &&
         ckpt::ConnectChannel(owner->socket_path).ok();
}

// Starts it and waits until it owns the run directory and listens, has died of a signal, or a stop is asked for. Ranks of a killed
// launcher may be connected to the service before for a moment longer, so a refusal is not final at once.
absl::StatusOr<ChildProcess> StartService(const IncarnationOptions& options) {
  const absl::Time started = absl::Now();
  while (true) {
    ANYORDER_ASSIGN_OR_RETURN(ChildProcess service, SpawnService(options));
    while (!service.Poll() && !IsReady(options, service) && !IsAskedToStop()) {
      if (absl::Now() - started > kServiceStartLimit) {
        service.Signal(SIGTERM);
        return absl::UnavailableError("the checkpoint service does not start; see ckptd.log");
      }
      absl::SleepFor(absl::Milliseconds(10));
    }
    const std::optional<int> ended = service.Poll();
    if (!ended || *ended > 128 || IsAskedToStop()) return service;
    const std::string why = LastLine(RunDirectory(options.run_dir).service_log);
    if (*ended != kExitUsage) return absl::UnavailableError(why);
    if (absl::Now() - started > kServiceRetryLimit) return absl::AlreadyExistsError(why);
    absl::SleepFor(absl::Milliseconds(200));
  }
}

absl::StatusOr<ChildProcess> StartRanks(const IncarnationOptions& options,
                                        const MpiScratch& scratch,
                                        OutputRelay& output) {
  ANYORDER_RETURN_IF_ERROR(output.NewPipe());
  SpawnOptions spawn;
  spawn.arguments = {"mpirun",
                     "--quiet",
                     "-n",
                     absl::StrCat(options.ranks),
                     "--bind-to",
                     "none",
                     "--oversubscribe",
                     "-x",
                     "ANYORDER_WORLD_SIZE",
                     ProgramDirectory() + "/anyorder-train",
                     "--run-dir",
                     options.run_dir,
                     "--run-id",
                     options.identity.run_id,
                     "--incarnation",
                     absl::StrCat(options.identity.incarnation),
                     "--resume",
                     NameOf(options.resume),
                     "--progress",
                     options.progress_on_terminal ? "terminal" : "lines"};
  // Containers run as root and forbid ptrace; ranks may outnumber cores. All ranks are on this machine.
  spawn.environment = {
      absl::StrCat("ANYORDER_WORLD_SIZE=", options.ranks),
      "OMPI_ALLOW_RUN_AS_ROOT=1",
      "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
      "OMPI_MCA_pml=ob1",
      "OMPI_MCA_btl=self,vader",
      "OMPI_MCA_btl_vader_single_copy_mechanism=none",
      "OMPI_MCA_mpi_yield_when_idle=1",
      // OpenMP's default spins for milliseconds; where cores are shared that costs tenfold (measured:
      // 12 tiny steps in 9.1 s instead of 0.8 s on two busy cores).
      "GOMP_SPINCOUNT=1000"};
  for (const std::string& variable : scratch.Environment())
    spawn.environment.push_back(variable);
  spawn.output_fd = output.write_end();
  spawn.own_session = true;  // the terminal's Ctrl-C must reach only the launcher
  spawn.die_with_launcher = true;
  absl::StatusOr<ChildProcess> ranks = ChildProcess::Spawn(spawn);
  output.CloseWriteEnd();
  return ranks;
}

// Passes signals on through mpirun, which forwards SIGUSR1 and SIGUSR2 to every rank (core/train/stop_signal.h): the first as a
// wish to save and stop, the second as a wish not to wait for the commit, the third as an end.
class SignalForwarder {
 public:
  explicit SignalForwarder(const ChildProcess& ranks) : ranks_(ranks) {}

  void Forward() {
    if (!IsAskedToStop()) return;
    const int wish = std::min(static_cast<int>(num_signals), 3);
    if (wish > told_ && wish == 1)
      Log("stopping: the ranks save a checkpoint first; a second signal leaves without waiting for "
          "the disk");
    if (wish > told_ && wish == 2)
      LogWarning(
          "leaving once the ranks have staged; a third signal ends them without a checkpoint");
    if (wish > told_ && wish == 3) {
      LogWarning("ending the ranks without a checkpoint");
      ranks_.Signal(SIGKILL);  // and they die with mpirun
    }
    // Again and again: what reaches mpirun before it has started its ranks reaches nobody.
    if (wish < 3 && (wish > told_ || absl::Now() - sent_ > kRepeatWish)) {
      ranks_.Signal(wish == 1 ? SIGUSR1 : SIGUSR2);
      sent_ = absl::Now();
    }
    told_ = wish;
  }

 private:
  const ChildProcess& ranks_;
  int told_ = 0;
  absl::Time sent_ = absl::InfinitePast();
};

// The service finishes what is staged, then goes. After a second signal it does so alone: it outlives us.
void EndService(ChildProcess& service) {
  service.Signal(SIGTERM);
  const absl::Time deadline = absl::Now() + kServiceEndLimit;
  while (!service.Poll()) {
    if (num_signals > 1) {
      Log("leaving: the checkpoint service commits what is staged and ends by itself (ckptd.log)");
      return;
    }
    if (absl::Now() > deadline) {
      LogWarning("the checkpoint service is still writing; it ends by itself");
      return;
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
}

// A signal during start-up ends ranks that could not listen yet and had nothing to save.
int EndOfRanks(int exit_status) {
  const bool is_asked = IsAskedToStop() || exit_status == 128 + SIGTERM ||
                        exit_status == 128 + SIGINT || exit_status == 128 + SIGUSR1;
  return is_asked && exit_status > 128 ? static_cast<int>(kExitRequeue) : exit_status;
}

}  // namespace

void CatchLaunchSignals() {
  struct sigaction action {};
  action.sa_handler = CountSignal;
  for (const int signal_number : {SIGTERM, SIGINT, SIGUSR1})
    sigaction(signal_number, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

absl::StatusOr<int> RunIncarnation(const IncarnationOptions& options, OutputRelay& output) {
  if (IsAskedToStop()) return static_cast<int>(kExitRequeue);  // between two starts
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<MpiScratch> scratch,
                            MpiScratch::Create(options.run_dir));
  ANYORDER_ASSIGN_OR_RETURN(ChildProcess service, StartService(options));
  if (IsAskedToStop()) {
    EndService(service);
    return static_cast<int>(kExitRequeue);
  }
  if (const std::optional<int> ended = service.Poll()) {
    LogWarning(
        absl::StrCat("the checkpoint service ended with status ", *ended, " while it started"));
    return *ended;
  }
  absl::StatusOr<ChildProcess> ranks = StartRanks(options, *scratch, output);
  if (!ranks.ok()) {
    EndService(service);
    return ranks.status();
  }
  SignalForwarder signals(*ranks);
  SilentRanks silent_ranks({RunDirectory(options.run_dir).heartbeats,
                            options.ranks,
                            options.identity.incarnation,
                            absl::Seconds(options.dist.hang_report_seconds),
                            absl::Seconds(options.dist.hang_exit_seconds)});
  bool service_is_lost = false;
  while (!ranks->Poll()) {
    output.Pump(kPollMs);
    signals.Forward();
    if (silent_ranks.Poll()) {
      LogWarning("ending the ranks, because one of them does not run (dist.hang_exit_seconds)");
      ranks->Signal(SIGKILL);  // and they die with mpirun, stopped ones, too
    }
    if (service.Poll() && !service_is_lost) {
      // Its incarnation ends with it: another service could not tell its half-made saves from its own.
      LogWarning(absl::StrCat("the checkpoint service ended with status ",
                              *service.Poll(),
                              "; ending the ranks, which could not save any more"));
      ranks->Signal(SIGKILL);
      service_is_lost = true;
    }
  }
  output.Pump(0);
  EndService(service);
  return EndOfRanks(*ranks->Poll());
}

}  // namespace anyorder::launcher
