#include <algorithm>
#include <csignal>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/liveness/rank_watchdog.h"
#include "launcher/start/health_server.h"
#include "launcher/start/launch_backend.h"
#include "launcher/start/launch_signals.h"

namespace anyorder::launcher {
namespace {

constexpr absl::Duration kServiceRetryLimit = absl::Seconds(10);
constexpr absl::Duration kServiceEndLimit = absl::Minutes(5);
constexpr absl::Duration kAfterOrderlyService = absl::Seconds(10);
constexpr absl::Duration kRepeatRequest = absl::Seconds(1);
constexpr absl::Duration kRepeatRequestInTraining = absl::Seconds(15);
// For ranks that were asked to stop before their first step, and have nothing to save.
constexpr absl::Duration kStopLimitInStart = absl::Seconds(10);
constexpr absl::Duration kJudgePeriod = absl::Milliseconds(250);
constexpr int kPollMs = 50;

bool IsAskedToStop() { return NumLaunchSignals() > 0; }

std::vector<std::string> NodesOf(const Place& place) {
  return place.nodes.empty() ? std::vector<std::string>{HostName()} : place.nodes;
}

// Passes on to the user what a service logs while it starts.
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
StartedGroup StartService(const AttemptOptions& options, const HealthServer& health,
                          LaunchBackend& backend) {
  const size_t num_nodes = NodesOf(options.place).size();
  const absl::Time started = MonotonicNow();
  while (true) {
    RETURN_IF_ERROR(options.lease->Check());
    ASSIGN_OR_RETURN(std::unique_ptr<ProcessGroup> service, backend.StartService(options));
    ServiceWords words(options, backend);
    while (!service->Poll() && !health.AreServing(num_nodes) && !IsAskedToStop() &&
           !options.lease->is_lost()) {
      if (words.IsSilent()) {
        service->AskToStop(/*urgent=*/false);
        return Unavailable("the checkpoint service did not get ready and said nothing new for ",
                           absl::FormatDuration(options.service_silence_limit), "; see ckptd.log");
      }
      absl::SleepFor(absl::Milliseconds(10));
    }
    const std::optional<int> ended = service->Poll();
    if (!ended || *ended > 128 || IsAskedToStop()) return service;
    const std::string why = backend.ServiceWords(options);
    if (*ended != kExitUsage) return Unavailable(why);
    if (MonotonicNow() - started > kServiceRetryLimit) return AlreadyExists(why);
    absl::SleepFor(absl::Milliseconds(200));
  }
}

StartedGroup StartRanks(const AttemptOptions& options, LaunchBackend& backend,
                        OutputRelay& output) {
  RETURN_IF_ERROR(options.before_ranks());
  return backend.StartRanks(options, output);
}

// Passes signals on to the ranks: the first asks them to save and stop, the second not to wait for
// the commit, the third kills them.
class SignalForwarder {
 public:
  // `deaf_limit`: for how long ranks may train on after the first request.
  SignalForwarder(ProcessGroup& ranks, absl::Duration deaf_limit)
      : ranks_(ranks), deaf_limit_(deaf_limit) {}

  // `newest_step`: that a rank has done; 0: they have not begun, and maybe do not listen.
  void Forward(int64_t newest_step) {
    if (!IsAskedToStop()) return;
    is_training_ = newest_step > 0;
    if (step_when_asked_ == 0) step_when_asked_ = newest_step;
    const int request = std::min(NumLaunchSignals(), 3);
    if (request > told_ && request == 1) {
      Log(newest_step == 0
              ? absl::StrCat("stopping: the ranks have trained nothing in this start; they end "
                             "within ",
                             absl::FormatDuration(kStopLimitInStart))
              : "stopping: the ranks save a checkpoint first; a second signal exits without "
                "waiting for the disk");
    }
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
      asked_ = std::min(asked_, sent_);
    }
    told_ = request;
    KillIfDeaf(newest_step);
  }

 private:
  // Ranks that do not listen yet, or an mpirun that passes nothing on: one that is stopped.
  void KillIfDeaf(int64_t newest_step) {
    const absl::Duration waited = MonotonicNow() - asked_;
    // The request may come in the middle of a step, and stops the ranks after the next.
    const bool trains_on = newest_step > step_when_asked_ + 2;
    if (is_killed_ || waited < (is_training_ ? deaf_limit_ : kStopLimitInStart)) return;
    if (is_training_ && !trains_on) return;  // in a long step or save; the watchdog judges them
    LogWarning(is_training_
                   ? absl::StrCat("killing the ranks: they train on ",
                                  absl::FormatDuration(absl::Trunc(waited, absl::Seconds(1))),
                                  " after the request to stop, which mpirun or srun does not pass "
                                  "on; steps since the last checkpoint are lost")
                   : "killing the ranks, which did not stop and have not begun to train");
    is_killed_ = true;
    ranks_.Kill();
  }

  bool IsDueAgain() {
    const absl::Duration waited = MonotonicNow() - sent_;
    return waited > (is_training_ ? kRepeatRequestInTraining : kRepeatRequest);
  }

  ProcessGroup& ranks_;
  const absl::Duration deaf_limit_;
  int told_ = 0;
  int64_t step_when_asked_ = 0;  // or the first one after that
  bool is_training_ = false;
  bool is_killed_ = false;  // by us, because they do not listen
  absl::Time sent_ = absl::InfinitePast();
  absl::Time asked_ = absl::InfiniteFuture();  // first
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
    if (NumLaunchSignals() > 1) {
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

// Judges the ranks and nodes of a start by what its services report, and ends it.
class Watchdog {
 public:
  Watchdog(const AttemptOptions& options, HealthServer& health, ProcessGroup& service,
           ProcessGroup& ranks)
      : judge_(LimitsOf(options), static_cast<int>(options.place.ranks), NodesOf(options.place)),
        pace_(*options.pace),
        health_(health),
        service_(service),
        ranks_(ranks) {}

  // Call often. True once the ranks had to be killed.
  bool Poll() {
    const absl::Time now = MonotonicNow();
    if (now - looked_ < kJudgePeriod) return is_over_;
    looked_ = now;
    const std::vector<liveness::NodeReport> newest = health_.Newest();
    const liveness::Verdict verdict = judge_.Judge(newest, now);
    for (const std::string& report : verdict.reports) LogWarning(report);
    for (const std::string& warning : pace_.Take(newest)) LogWarning(warning);
    if (verdict.end.empty()) return is_over_;
    LogWarning("killing the ranks: " + verdict.end);
    is_over_ = true;
    health_.EndRanks(verdict.end);  // also where mpirun and srun cannot reach them
    ranks_.Kill();
    // A stopped one would keep its end waiting.
    if (judge_.has_silent_service()) service_.Kill();
    return true;
  }
  int64_t newest_step() const { return judge_.newest_step(); }

 private:
  static liveness::WatchLimits LimitsOf(const AttemptOptions& options) {
    const DistConfig& dist = options.config.dist;
    const HealthConfig& health = options.config.health;
    return {.report_after = absl::Seconds(dist.hang_report_seconds),
            .end_after = absl::Seconds(dist.collective_timeout_seconds),
            .start_limit = absl::Seconds(health.start_timeout_seconds),
            .service_limit = absl::Seconds(health.contact_timeout_seconds),
            .file_stall_limit = absl::Seconds(health.file_stall_seconds)};
  }

  liveness::RankWatchdog judge_;
  PaceRecorder& pace_;
  HealthServer& health_;
  ProcessGroup& service_;
  ProcessGroup& ranks_;
  absl::Time looked_ = absl::InfinitePast();
  bool is_over_ = false;
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

int WatchUntilEnd(const AttemptOptions& options, HealthServer& health, ProcessGroup& service,
                  ProcessGroup& ranks, bool is_distributed, OutputRelay& output) {
  SignalForwarder signals(ranks, absl::Seconds(options.config.health.contact_timeout_seconds));
  Watchdog watchdog(options, health, service, ranks);
  bool service_is_lost = false;
  absl::Time service_end = absl::InfiniteFuture();
  while (!ranks.Poll()) {
    output.Pump(kPollMs);
    signals.Forward(watchdog.newest_step());
    if (options.lease->is_lost()) ranks.Kill();
    service_is_lost = watchdog.Poll() || service_is_lost;  // then it is killed with the ranks
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

absl::StatusOr<int> RunAttempt(const AttemptOptions& options, LaunchBackend& backend,
                               OutputRelay& output) {
  if (IsAskedToStop()) return static_cast<int>(kExitRequeue);  // between two starts
  EnterPhase("starting the checkpoint service and the ranks",
             {.held = absl::Seconds(options.config.health.start_timeout_seconds)});
  ASSIGN_OR_RETURN(
      const std::unique_ptr<HealthServer> health,
      HealthServer::Start({options.run_dir, options.identity.run_id, options.identity.attempt,
                           backend.is_distributed(),
                           absl::Seconds(options.config.health.contact_timeout_seconds),
                           static_cast<int64_t>(NodesOf(options.place).size())}));
  ASSIGN_OR_RETURN(const std::unique_ptr<ProcessGroup> service,
                   StartService(options, *health, backend));
  if (IsAskedToStop()) {
    EndService(*service);
    return static_cast<int>(kExitRequeue);
  }
  if (const std::optional<int> ended = service->Poll()) {
    LogWarning(
        absl::StrCat("the checkpoint service ended with status ", *ended, " while it started"));
    return *ended;
  }
  RETURN_IF_ERROR(options.lease->Check());
  const StartedGroup ranks = StartRanks(options, backend, output);
  if (!ranks.ok()) {
    EndService(*service);
    return ranks.status();
  }
  // Now there is something to save and to record, which is worth waiting for.
  EnterPhase("following the ranks and recording their end",
             {.held = absl::InfiniteDuration(),
              .after_request = absl::Seconds(options.config.health.file_stall_seconds)});
  const int exit_status =
      WatchUntilEnd(options, *health, *service, **ranks, backend.is_distributed(), output);
  RETURN_IF_ERROR(options.lease->Check());
  EndService(*service);
  backend.CleanUp();
  return EndOfRanks(exit_status);
}

}  // namespace anyorder::launcher
