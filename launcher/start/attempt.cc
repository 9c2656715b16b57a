#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <csignal>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/train/run/ledger.h"
#include "core/train/run/run_directory.h"
#include "dist/heartbeat.h"
#include "launcher/start/launch_backend.h"
#include "launcher/start/launcher_heartbeat.h"

namespace anyorder::launcher {
namespace {

constexpr absl::Duration kServiceRetryLimit = absl::Seconds(10);
constexpr absl::Duration kServiceEndLimit = absl::Minutes(5);
constexpr absl::Duration kAfterOrderlyService = absl::Seconds(10);
constexpr absl::Duration kRepeatRequest = absl::Seconds(1);
constexpr absl::Duration kRepeatRequestInTraining = absl::Seconds(15);
constexpr int kPollMs = 50;

// A signal handler can reach nothing but globals.
volatile std::sig_atomic_t num_signals = 0;
volatile std::sig_atomic_t last_signal = 0;
volatile std::sig_atomic_t last_second = 0;
bool is_slurm_job = false;

// Slurm signals the batch script's children, too, and the script passes its own signal on: what
// comes so close together is one request. Two Ctrl-C are two, however fast.
void CountSignal(int signal_number) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto second = static_cast<std::sig_atomic_t>(now.tv_sec);
  const bool is_echo = num_signals > 0 && second - last_second <= 1 &&
                       (signal_number != last_signal || is_slurm_job);
  last_signal = signal_number;
  if (is_echo) return;
  last_second = second;
  num_signals = num_signals + 1;
}

bool IsAskedToStop() { return num_signals > 0; }

// What a service says while it starts, passed on to whoever waits for it.
class ServiceWords {
 public:
  ServiceWords(const AttemptOptions& options, LaunchBackend& backend)
      : options_(options), backend_(backend), words_(backend.ServiceWords(options)) {}

  // Whether it has said nothing new for options.service_silence_limit. Call often.
  bool IsSilent() {
    const absl::Duration limit = options_.service_silence_limit;
    const absl::Time now = MonotonicNow();
    if (now - looked_ < limit / 16) return false;
    looked_ = now;
    std::string words = backend_.ServiceWords(options_);
    if (words == words_) return now - heard_ > limit;
    words_ = std::move(words);
    heard_ = now;
    const size_t prefix = words_.find("] ");  // of its own log
    Log(absl::StrCat("waiting for the checkpoint service: ",
                     prefix == std::string::npos ? words_ : words_.substr(prefix + 2)));
    return false;
  }

 private:
  const AttemptOptions& options_;
  LaunchBackend& backend_;
  std::string words_;
  absl::Time looked_ = MonotonicNow();
  absl::Time heard_ = looked_;
};

// Starts it and waits until it owns the run directory and listens, has died of a signal, or a stop
// is asked for. Ranks of a killed launcher may be connected to the service before for a moment
// longer, so a refusal is not final at once.
absl::StatusOr<std::unique_ptr<ProcessGroup>> StartService(const AttemptOptions& options,
                                                           LaunchBackend& backend) {
  const absl::Time started = MonotonicNow();
  while (true) {
    ANYORDER_RETURN_IF_ERROR(options.lease->Check());
    ANYORDER_ASSIGN_OR_RETURN(std::unique_ptr<ProcessGroup> service, backend.StartService(options));
    ServiceWords words(options, backend);
    while (!service->Poll() && !backend.IsReady(options, *service) && !IsAskedToStop() &&
           !options.lease->is_lost()) {
      if (words.IsSilent()) {
        service->AskToStop(/*urgent=*/false);
        return Unavailable("the checkpoint service did not start and said nothing new for ",
                           absl::FormatDuration(options.service_silence_limit), "; see ckptd.log");
      }
      absl::SleepFor(absl::Milliseconds(10));
    }
    const std::optional<int> ended = service->Poll();
    if (!ended || *ended > 128 || IsAskedToStop()) return service;
    const std::string why = backend.ServiceWords(options);
    if (*ended != kExitUsage) return absl::UnavailableError(why);
    if (MonotonicNow() - started > kServiceRetryLimit) return absl::AlreadyExistsError(why);
    absl::SleepFor(absl::Milliseconds(200));
  }
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> StartRanks(const AttemptOptions& options,
                                                         LaunchBackend& backend,
                                                         OutputRelay& output) {
  ANYORDER_RETURN_IF_ERROR(options.before_ranks());
  return backend.StartRanks(options, output);
}

// Passes signals on to the ranks: the first asks them to save and stop, the second not to wait for
// the commit, the third kills them.
class SignalForwarder {
 public:
  SignalForwarder(const AttemptOptions& options, ProcessGroup& ranks)
      : options_(options), ranks_(ranks) {}

  void Forward() {
    if (!IsAskedToStop()) return;
    const int request = std::min(static_cast<int>(num_signals), 3);
    if (request > told_ && request == 1)
      Log("stopping: the ranks save a checkpoint first; a second signal exits without waiting for "
          "the disk");
    if (request > told_ && request == 2)
      LogWarning(
          "exiting once the ranks have handed over their checkpoint; a third signal kills them "
          "without one");
    if (request > told_ && request == 3) {
      LogWarning("killing the ranks without a checkpoint");
      ranks_.Kill();
    }
    // Repeated, because a signal that comes before the ranks have started is lost. Rarely once they
    // train: while mpirun cleans up after a crash a signal ends it, and the ranks' exit status
    // would be lost.
    if (request < 3 && (request > told_ || IsDueAgain())) {
      ranks_.AskToStop(/*urgent=*/request == 2);
      sent_ = MonotonicNow();
    }
    told_ = request;
  }

 private:
  bool IsDueAgain() {
    const absl::Duration waited = MonotonicNow() - sent_;
    if (waited <= kRepeatRequest) return false;
    if (!is_training_) is_training_ = HasBegun();
    return !is_training_ || waited > kRepeatRequestInTraining;
  }
  // Whether the ranks of this start have written that they train: then they listen.
  bool HasBegun() const {
    const auto records = ReadLedger(RunDirectory(options_.run_dir).ledger);
    return records.ok() &&
           std::any_of(records->begin(), records->end(), [&](const LedgerRecord& record) {
             const auto* train = record.As<ledger::Train>();
             return train != nullptr && train->attempt == options_.identity.attempt;
           });
  }

  const AttemptOptions& options_;
  ProcessGroup& ranks_;
  int told_ = 0;
  bool is_training_ = false;
  absl::Time sent_ = absl::InfinitePast();
};

// The service finishes what is staged, then goes. After a second signal it does so alone: it
// outlives us.
void EndService(ProcessGroup& service) {
  const absl::Time deadline = MonotonicNow() + kServiceEndLimit;
  absl::Time asked = absl::InfinitePast();
  while (!service.Poll()) {
    if (MonotonicNow() - asked > kRepeatRequest) {
      service.AskToStop(/*urgent=*/false);
      asked = MonotonicNow();
    }
    if (num_signals > 1) {
      Log("exiting: the checkpoint service commits the staged checkpoint and then exits "
          "(ckptd.log)");
      return;
    }
    if (MonotonicNow() > deadline) {
      LogWarning("the checkpoint service is still writing; it exits when it is done");
      return;
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
}

constexpr int kLooksPerReport = 4;

// Whether the ranks of a start still run, seen from outside. Ranks report each other where they
// wait for one another (dist/collective_watch.h); this also sees one rank alone, and all of them
// stopped. Times silence by this process's own monotonic clock, so that neither another node's
// clock nor a suspended machine counts.
class RankWatchdog {
 public:
  explicit RankWatchdog(const AttemptOptions& options)
      : heartbeats_(RunDirectory(options.run_dir).heartbeats),
        attempt_(options.identity.attempt),
        report_after_(absl::Seconds(options.dist.hang_report_seconds)),
        exit_after_(absl::Seconds(options.dist.collective_timeout_seconds)),
        seen_(options.place.ranks),
        last_look_(Uptime()) {}

  // Call often; looks a few times per report_after_. True if a rank was silent for exit_after_;
  // each silence is warned of once.
  bool Poll() {
    const absl::Duration now = Uptime();
    const absl::Duration period = std::min(report_after_, exit_after_) / kLooksPerReport;
    const absl::Duration gap = now - last_look_;
    if (gap < period) return false;
    last_look_ = now;
    // This process stood still itself, and so probably did the ranks: that was no silence of
    // theirs.
    const absl::Duration own_silence = gap > 4 * period ? gap : absl::ZeroDuration();
    bool is_lost = false;
    for (size_t rank = 0; rank < seen_.size(); ++rank) {
      Seen& seen = seen_[rank];
      const auto beat = dist::ReadRankBeat(heartbeats_, static_cast<int>(rank));
      // Before its first beat and after its regular end a rank owes none.
      if (!beat.ok() || beat->attempt != attempt_ || beat->has_ended) continue;
      seen.since += own_silence;
      if (beat->ticks != seen.ticks) {
        seen = {beat->ticks, now, false};
        continue;
      }
      const absl::Duration silence = now - seen.since;
      if (silence < report_after_) continue;
      if (!seen.reported) {
        LogWarning(absl::StrCat(beat->ToString(), ", hangs: no heartbeat for ",
                                absl::FormatDuration(absl::Trunc(silence, absl::Milliseconds(1)))));
        seen.reported = true;
      }
      is_lost = is_lost || silence >= exit_after_;
    }
    return is_lost;
  }

 private:
  struct Seen {
    int64_t ticks = -1;
    absl::Duration since;  // when they last changed, by the monotonic clock
    bool reported = false;
  };

  const std::string heartbeats_;  // directory (dist/heartbeat.h)
  const int64_t attempt_;
  const absl::Duration report_after_;  // silence that is worth a warning
  const absl::Duration exit_after_;    // and after which only a new start helps
  std::vector<Seen> seen_;
  absl::Duration last_look_;
};

// What the end of the ranks means for the run. A stop signal during start-up ends ranks that could
// not listen yet and had nothing to save, and mpirun, which a scheduler's signal reaches as well,
// then ends with 1. Ranks that crash instead of stopping have lost the steps since the last
// checkpoint, and say so.
int EndOfRanks(int exit_status) {
  const auto is_by = [exit_status](std::initializer_list<int> signals) {
    return std::any_of(signals.begin(), signals.end(), [exit_status](int signal_number) {
      return exit_status == 128 + signal_number;
    });
  };
  if (is_by({SIGTERM, SIGINT, SIGUSR1})) return kExitRequeue;
  if (!IsAskedToStop()) return exit_status;
  if (exit_status == 1 || is_by({SIGUSR2, SIGKILL})) return kExitRequeue;
  if (exit_status <= 128) return exit_status;
  LogWarning(absl::StrCat(
      "the ranks ended with status ", exit_status,
      " while they were stopping; steps since the last checkpoint are lost and will be "
      "trained again"));
  return kExitIo;
}

int WatchUntilEnd(const AttemptOptions& options, ProcessGroup& service, ProcessGroup& ranks,
                  bool is_distributed, OutputRelay& output) {
  SignalForwarder signals(options, ranks);
  RankWatchdog watchdog(options);
  bool service_is_lost = false;
  absl::Time service_end = absl::InfiniteFuture();
  while (!ranks.Poll()) {
    output.Pump(kPollMs);
    signals.Forward();
    if (options.lease->is_lost()) ranks.Kill();
    if (watchdog.Poll()) {
      LogWarning("killing the ranks, because one of them hangs (dist.collective_timeout_seconds)");
      ranks.Kill();
    }
    if (service.Poll()) service_end = std::min(service_end, MonotonicNow());
    // One that Slurm told to stop ends in order when its ranks have left it, which may be seen
    // before their own end.
    const absl::Duration patience =
        is_distributed && service.Poll() == 0 ? kAfterOrderlyService : absl::ZeroDuration();
    if (MonotonicNow() - service_end >= patience && !service_is_lost) {
      // Its attempt ends with it: another service could not tell unfinished saves of this one from
      // its own.
      LogWarning(absl::StrCat("the checkpoint service ended with status ", *service.Poll(),
                              "; killing the ranks, which can no longer save checkpoints"));
      ranks.Kill();
      service_is_lost = true;
    }
  }
  output.Pump(0);
  return *ranks.Poll();
}

}  // namespace

void CatchLaunchSignals() {
  is_slurm_job = ::getenv("SLURM_JOB_ID") != nullptr;
  struct sigaction action {};
  action.sa_handler = CountSignal;
  for (const int signal_number : {SIGTERM, SIGINT, SIGUSR1})
    sigaction(signal_number, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

int NumLaunchSignals() { return num_signals; }

absl::StatusOr<int> RunAttempt(const AttemptOptions& options, LaunchBackend& backend,
                               OutputRelay& output) {
  if (IsAskedToStop()) return static_cast<int>(kExitRequeue);  // between two starts
  std::optional<LauncherHeartbeat> heartbeat;
  if (backend.is_distributed()) {
    ANYORDER_RETURN_IF_ERROR(
        LauncherHeartbeat::Begin(options.run_dir, options.identity.attempt, heartbeat));
  }
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessGroup> service,
                            StartService(options, backend));
  if (IsAskedToStop()) {
    EndService(*service);
    return static_cast<int>(kExitRequeue);
  }
  if (const std::optional<int> ended = service->Poll()) {
    LogWarning(
        absl::StrCat("the checkpoint service ended with status ", *ended, " while it started"));
    return *ended;
  }
  ANYORDER_RETURN_IF_ERROR(options.lease->Check());
  const absl::StatusOr<std::unique_ptr<ProcessGroup>> ranks = StartRanks(options, backend, output);
  if (!ranks.ok()) {
    EndService(*service);
    return ranks.status();
  }
  const int exit_status =
      WatchUntilEnd(options, *service, **ranks, backend.is_distributed(), output);
  ANYORDER_RETURN_IF_ERROR(options.lease->Check());
  EndService(*service);
  backend.CleanUp();
  return EndOfRanks(exit_status);
}

}  // namespace anyorder::launcher
