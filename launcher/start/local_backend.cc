#include <fcntl.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "core/base/whole_file.h"
#include "core/train/run/run_directory.h"
#include "launcher/process/child_process.h"
#include "launcher/process/node_place.h"
#include "launcher/start/launch_backend.h"
#include "launcher/start/open_mpi.h"
#include "launcher/start/room.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kProgramEndLimit = absl::Seconds(60);  // from SIGTERM to SIGKILL

class LocalBackend final : public LaunchBackend {
 public:
  LocalBackend(OpenMpi mpi, std::string run_dir, int64_t ranks, std::string temporary)
      : mpi_(std::move(mpi)),
        run_dir_(std::move(run_dir)),
        ranks_(ranks),
        temporary_(std::move(temporary)) {}

  absl::StatusOr<Place> Prepare() override {
    std::error_code error;
    const std::string root = fs::canonical(run_dir_, error).string();
    if (error) return ErrnoStatus("resolve", run_dir_, error.value());

    // The launcher's lease says that nobody else uses what an earlier start left there.
    RETURN_IF_ERROR(RemoveScratch(root, HostName()));
    ASSIGN_OR_RETURN(scratch_, MakeScratch(root, HostName(), temporary_));
    RETURN_IF_ERROR(CheckRoom(scratch_, ranks_));
    Place place;
    place.ranks = ranks_;
    return place;
  }

  StartedGroup StartService(const AttemptOptions& options) override {
    const std::string log = RunDirectory(options.run_dir).service_log;
    ASSIGN_OR_RETURN(const UniqueFd log_fd, OpenRegular(log, O_WRONLY | O_CREAT | O_APPEND));
    SpawnOptions spawn;
    spawn.arguments = ServiceCommand(options);
    spawn.output_fd = log_fd.get();
    spawn.own_session = true;
    ASSIGN_OR_RETURN(ChildProcess service, ChildProcess::Spawn(spawn));
    return std::make_unique<ProgramGroup>(service, GroupSignals{SIGTERM, SIGTERM, SIGKILL});
  }

  StartedGroup StartRanks(const AttemptOptions& options, OutputRelay& output) override {
    SpawnOptions spawn;
    spawn.arguments = MpirunCommand(mpi_, ranks_, /*hosts=*/{});
    for (std::string& word : RankCommand(options)) spawn.arguments.push_back(std::move(word));
    spawn.environment = MpirunEnvironmentHere(mpi_, scratch_);
    spawn.environment.push_back(absl::StrCat("ANYORDER_WORLD_SIZE=", ranks_));
    spawn.death_signal = SIGKILL;
    output.DropNotice(ExitNotice(mpi_));
    ASSIGN_OR_RETURN(ChildProcess ranks, output.Start(std::move(spawn)));
    // mpirun forwards both to every rank (core/train/run/stop_signal.h).
    return std::make_unique<ProgramGroup>(ranks, GroupSignals{SIGUSR1, SIGUSR2, SIGKILL});
  }

  bool is_distributed() const override { return false; }
  // The next start removes what stays.
  void CleanUp() override { RemoveScratch(run_dir_, HostName()).IgnoreError(); }

 private:
  const OpenMpi mpi_;
  const std::string run_dir_;
  const int64_t ranks_;
  const std::string temporary_;
  NodeScratch scratch_;  // of mpirun and its ranks
};

// A program of ours with the options that all of them have, then its own.
std::vector<std::string> CommandOf(const char* program, const AttemptOptions& options,
                                   const auto&... own) {
  return {ProgramDirectory() + program,
          "--run-dir",
          options.run_dir,
          "--run-id",
          options.identity.run_id,
          "--attempt",
          absl::StrCat(options.identity.attempt),
          own...};
}

}  // namespace

std::optional<int> ProgramGroup::Poll() {
  if (MonotonicNow() - killed_ > kProgramEndLimit) program_.Signal(SIGKILL);
  const std::optional<int> ended = program_.Poll();
  // SIGTERM also comes from Slurm itself, when another task has failed: nobody asked the run to
  // stop.
  const bool is_killed = ended == 128 + SIGTERM && signals_.kill == SIGTERM && !is_asked_;
  return is_killed ? 128 + SIGKILL : ended;
}

void ProgramGroup::AskToStop(bool urgent) {
  is_asked_ = true;
  if (killed_ == absl::InfiniteFuture()) program_.Signal(urgent ? signals_.urgent : signals_.stop);
}

void ProgramGroup::Kill() {
  if (killed_ != absl::InfiniteFuture()) return;
  killed_ = MonotonicNow();
  program_.Signal(signals_.kill);
}

std::string LaunchBackend::ServiceWords(const AttemptOptions& options) {
  std::ifstream file(RunDirectory(options.run_dir).service_log);
  std::string last;
  for (std::string line; std::getline(file, line);) last = line;
  return last;
}

std::vector<std::string> RankCommand(const AttemptOptions& options) {
  return CommandOf("/anyorder-train", options, "--resume", EnumName(options.resume), "--progress",
                   options.progress_on_terminal ? "terminal" : "lines");
}

std::vector<std::string> ServiceCommand(const AttemptOptions& options) {
  std::vector<std::string> command = CommandOf(
      "/anyorder-ckptd", options, "--keep-last", absl::StrCat(options.config.checkpoint.keep_last),
      "--keep-every", absl::StrCat(options.config.checkpoint.keep_every), "--file-stall-seconds",
      absl::StrCat(options.config.health.file_stall_seconds));
  if (options.config.run.is_private) command.emplace_back("--private");
  return command;
}

absl::StatusOr<std::unique_ptr<LaunchBackend>> MakeLocalBackend(const std::string& run_dir,
                                                                int64_t ranks) {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  if (!error) {
    ASSIGN_OR_RETURN(OpenMpi mpi, FindOpenMpi());
    return std::make_unique<LocalBackend>(std::move(mpi), run_dir, ranks, temporary.string());
  }
  const char* const variable = ::getenv("TMPDIR");
  return InvalidArgument("the directory for temporary files, '",
                         variable == nullptr ? "/tmp" : variable, "', cannot be used (",
                         error.message(), "); set TMPDIR to one that is there");
}

}  // namespace anyorder::launcher
