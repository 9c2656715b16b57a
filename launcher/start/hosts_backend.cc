// Service and ranks on the machines of --hosts: clusters without Slurm.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "core/train/run/run_directory.h"
#include "launcher/process/child_process.h"
#include "launcher/process/node_place.h"
#include "launcher/start/launch_backend.h"
#include "launcher/start/open_mpi.h"

namespace anyorder::launcher {
namespace {

// For a host to answer.
constexpr absl::Duration kAnswerLimit = absl::Seconds(20);
// For a killed service's end to be heard of; then the way to its host is cut.
constexpr absl::Duration kKillLimit = absl::Seconds(3);

// The service of one host, by its `anyorder node-process` there, which reads `input`.
struct HostService {
  ChildProcess child;
  OutputRelay output;
  UniqueFd input;
};

absl::StatusOr<HostService> StartHostService(const std::vector<std::string>& command,
                                             const std::string& log) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe to", command[0]);
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  ::fcntl(write_end.get(), F_SETFL, O_NONBLOCK);
  ASSIGN_OR_RETURN(OutputRelay output, OutputRelay::Open(log, /*is_shown=*/false));
  SpawnOptions spawn;
  spawn.arguments = command;
  spawn.input_fd = read_end.get();
  ASSIGN_OR_RETURN(ChildProcess child, output.Start(std::move(spawn)));
  return HostService{std::move(child), std::move(output), std::move(write_end)};
}

// Those of a start. They end together: when one fails, the others are ended, too.
class HostServices final : public ProcessGroup {
 public:
  explicit HostServices(std::list<HostService> services) : services_(std::move(services)) {}

  std::optional<int> Poll() override {
    bool is_over = true;
    for (HostService& service : services_) {
      service.output.Pump(0);
      const std::optional<int> ended = service.child.Poll();
      is_over = is_over && ended.has_value();
      if (!ended || *ended == 0) continue;
      if (exit_status_ == 0) exit_status_ = *ended;  // the others end because of it
      Kill();
    }
    const bool is_due = MonotonicNow() - killed_ > kKillLimit;
    for (HostService& service : services_)
      if (is_due) service.child.Signal(SIGKILL);
    return is_over ? std::optional(exit_status_) : std::nullopt;
  }
  void AskToStop(bool) override { TellAll("USR1\n"); }  // its ranks may have a save to make
  void Kill() override {
    if (killed_ != absl::InfiniteFuture()) return;
    killed_ = MonotonicNow();
    TellAll("KILL\n");
  }

 private:
  // What cannot be passed on is said again later, or the way is cut.
  void TellAll(absl::string_view line) {
    for (const HostService& service : services_)
      [[maybe_unused]] const ssize_t written =
          ::write(service.input.get(), line.data(), line.size());
  }

  std::list<HostService> services_;
  int exit_status_ = 0;
  absl::Time killed_ = absl::InfiniteFuture();
};

struct HostAnswer {
  NodeAnswers said;
  std::string failure;  // "" if it answered
};

class HostsBackend final : public LaunchBackend {
 public:
  HostsBackend(HostsOptions options, OpenMpi mpi, std::vector<std::string> rsh)
      : options_(std::move(options)), mpi_(std::move(mpi)), rsh_(std::move(rsh)) {}

  absl::StatusOr<Place> Prepare() override {
    if (environment_.empty()) environment_ = MpiEnvironmentForNodes();
    const std::vector<HostSlots> before = hosts_;
    ASSIGN_OR_RETURN(const std::vector<HostSlots> living, HostsThatAnswer());
    hosts_ = FillSlots(living, options_.ranks);
    Place place;
    place.ranks = 0;
    for (const HostSlots& host : hosts_) {
      place.ranks += host.slots;
      place.nodes.push_back(host.name);
    }
    ASSIGN_OR_RETURN(has_scratch_, MakeHeadScratch(mpi_, options_.run_dir, Names()));
    place.has_lost_nodes = std::any_of(before.begin(), before.end(), [&](const HostSlots& host) {
      return std::find(place.nodes.begin(), place.nodes.end(), host.name) == place.nodes.end();
    });
    return place;
  }

  StartedGroup StartService(const AttemptOptions& options) override {
    // What this launcher's earlier starts left was told to end, or is cut off and ends by the
    // lease.
    if (first_attempt_ == 0) first_attempt_ = options.identity.attempt;
    const int64_t ended =
        options.identity.attempt > first_attempt_ ? options.identity.attempt - 1 : 0;
    std::vector<std::string> command = {ProgramDirectory() + "/anyorder", "node-process", "--"};
    for (std::string& word : ServiceCommand(options)) command.push_back(std::move(word));
    command.insert(command.end(), {"--nodes", Names(), "--ended-attempt", absl::StrCat(ended)});
    std::list<HostService> services;
    for (const HostSlots& host : hosts_) {
      ASSIGN_OR_RETURN(
          HostService service,
          StartHostService(On(host.name, command), RunDirectory(options.run_dir).service_log));
      services.push_back(std::move(service));
    }
    return std::make_unique<HostServices>(std::move(services));
  }

  StartedGroup StartRanks(const AttemptOptions& options, OutputRelay& output) override {
    std::vector<std::string> slots;
    for (const HostSlots& host : hosts_) slots.push_back(absl::StrCat(host.name, ":", host.slots));
    SpawnOptions spawn;
    spawn.arguments = MpirunCommand(mpi_, options.place.ranks, slots);
    for (std::string& word : RankCommand(options)) spawn.arguments.push_back(std::move(word));
    spawn.arguments.insert(spawn.arguments.end(), {"--nodes", Names()});
    spawn.environment = environment_;
    spawn.environment.push_back(absl::StrCat("ANYORDER_WORLD_SIZE=", options.place.ranks));
    AddMpirunEnvironment(mpi_, options.run_dir, Names(), /*by_srun=*/false, &spawn.environment);
    spawn.death_signal = SIGTERM;
    output.DropNotice(ExitNotice(mpi_));
    ASSIGN_OR_RETURN(const ChildProcess ranks, output.Start(std::move(spawn)));
    return std::make_unique<ProgramGroup>(ranks, GroupSignals{SIGUSR1, SIGUSR2, SIGTERM});
  }

  bool is_distributed() const override { return true; }
  // Services remove their directories, and the next start what is left.
  void CleanUp() override {
    if (has_scratch_) RemoveScratch(options_.run_dir, HostName()).IgnoreError();
  }

 private:
  // The command line that runs `words` on a host: a shell there splits them again.
  std::vector<std::string> On(const std::string& host,
                              const std::vector<std::string>& words) const {
    if (IsThisHost(host)) return words;
    std::vector<std::string> command = rsh_;
    command.push_back(host);
    command.push_back(ShellCommand(words));
    return command;
  }

  std::string Names() const {
    return absl::StrJoin(hosts_, ",", [](std::string* out, const HostSlots& host) {
      absl::StrAppend(out, host.name);
    });
  }

  absl::StatusOr<std::vector<HostSlots>> HostsThatAnswer() {
    ASSIGN_OR_RETURN(const std::string mark, WriteSharedMark(options_.run_dir));
    const absl::Cleanup remove = [&mark] { ::unlink(mark.c_str()); };
    const std::vector<HostAnswer> answers = AskHosts(mark);
    std::vector<HostSlots> living;
    absl::Status fault;
    for (size_t i = 0; i < answers.size(); ++i) {
      const HostSlots& host = options_.hosts[i];
      const HostAnswer& answer = answers[i];
      absl::Status status;
      if (!answer.failure.empty()) {
        status = Unavailable("host ", host.name, " cannot be reached by '",
                             absl::StrJoin(rsh_, " "), "': ", answer.failure);
      } else if (!answer.said.elsewhere.empty()) {
        status = NotShared(options_.run_dir, answer.said.elsewhere);
      } else if (!answer.said.nodes.contains(host.name)) {
        status = Unavailable("host ", host.name, " did not answer '", absl::StrJoin(rsh_, " "),
                             "': the command ended without a word of clean-node");
      } else {
        living.push_back(host);
      }
      if (!status.ok() && !hosts_.empty())
        LogWarning(absl::StrCat("continuing without host ", host.name, ": ", status.message()));
      if (fault.ok()) fault = status;
    }
    // A name that is wrong, or a directory that is not shared, shows at the first start; later a
    // host is lost, and may come back.
    if (hosts_.empty() || living.empty()) RETURN_IF_ERROR(fault);
    return living;
  }

  // All at the same time: one that is gone answers late.
  std::vector<HostAnswer> AskHosts(const std::string& mark) const {
    std::vector<HostAnswer> answers(options_.hosts.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < answers.size(); ++i) {
      threads.emplace_back([this, &mark, &answer = answers[i], &name = options_.hosts[i].name] {
        const auto output =
            RunCaptured(On(name, {ProgramDirectory() + "/anyorder", "clean-node", "--run-dir",
                                  options_.run_dir, "--mark", mark, "--nodes", name}),
                        MonotonicNow() + kAnswerLimit);
        if (!output.ok()) {
          answer.failure = std::string(output.status().message());
        } else if (output->exit_status == 0 && !output->is_late) {
          answer.said = ReadNodeAnswers(output->text);
        } else {
          const std::vector<std::string> lines =
              absl::StrSplit(output->text, '\n', absl::SkipWhitespace());
          answer.failure = output->is_late ? "no answer in 20 s"
                           : lines.empty() ? absl::StrCat("exit status ", output->exit_status)
                                           : lines.back();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return answers;
  }

  const HostsOptions options_;
  const OpenMpi mpi_;
  const std::vector<std::string> rsh_;
  std::vector<HostSlots> hosts_;  // of the start
  std::vector<std::string> environment_;
  int64_t first_attempt_ = 0;  // of this launcher
  bool has_scratch_ = false;   // here, for mpirun alone
};

}  // namespace

absl::StatusOr<std::unique_ptr<LaunchBackend>> MakeHostsBackend(const HostsOptions& options) {
  int64_t slots = 0;
  bool are_all_here = true;
  for (const HostSlots& host : options.hosts) {
    slots += host.slots;
    are_all_here = are_all_here && IsThisHost(host.name);
  }
  if (options.ranks > slots) {
    return InvalidArgument("--ranks ", options.ranks, " is more than the ", slots,
                           " slots of --hosts; raise the slots, such as a:4,b:4");
  }
  ASSIGN_OR_RETURN(OpenMpi mpi, FindOpenMpi());
  const std::string rsh = RemoteShell(options.rsh);
  std::vector<std::string> words = absl::StrSplit(rsh, ' ', absl::SkipWhitespace());
  const bool is_there =
      !words.empty() && (absl::StrContains(words[0], '/') ? ::access(words[0].c_str(), X_OK) == 0
                                                          : HasProgram(words[0]));
  if (!is_there && !are_all_here) {
    return InvalidArgument("--hosts: there is no '", rsh,
                           "' to reach other machines with; install it, or name another with "
                           "--rsh");
  }
  ::signal(SIGPIPE, SIG_IGN);  // a service that has ended reads no more
  return std::unique_ptr<LaunchBackend>(
      new HostsBackend(options, std::move(mpi), std::move(words)));
}

}  // namespace anyorder::launcher
