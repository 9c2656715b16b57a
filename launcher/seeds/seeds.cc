// `anyorder seeds`: one configuration trained with several seeds, one run after the other, and the
// spread of their best evaluations.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "core/base/file_system.h"
#include "core/base/log.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "launcher/inspect/status_report.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/seeds/seed_table.h"
#include "launcher/start/launch_signals.h"
#include "launcher/start/start_request.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

constexpr char kSeedSuffix[] = "-seed";

struct SeedsOptions {
  std::string run_dir;         // the runs are run_dir-seedN
  std::vector<int64_t> seeds;  // empty: those of the runs that are there
  std::string config;          // file; empty: each run's frozen one
  std::vector<std::string> overrides;
  std::optional<int64_t> ranks;
  std::vector<std::string> launch;  // words after --
  bool json = false;
  std::string command;  // the whole command line: what resumes

  // Whether runs that are there are asked for as they were.
  bool names_settings() const { return !config.empty() || !overrides.empty() || !launch.empty(); }
};

std::string RunOf(const SeedsOptions& options, int64_t seed) {
  return absl::StrCat(options.run_dir, kSeedSuffix, seed);
}

// Seeds of the runs that are there, in their order.
std::vector<int64_t> FindSeeds(const std::string& run_dir) {
  const std::string prefix = BaseName(run_dir) + kSeedSuffix;
  std::vector<int64_t> seeds;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(ParentPath(run_dir), error)) {
    const std::string name = entry.path().filename().string();
    int64_t seed = 0;
    // Back to its name, so that -seed01 and -seed+1 are nobody's.
    if (absl::StartsWith(name, prefix) && absl::SimpleAtoi(name.substr(prefix.size()), &seed) &&
        prefix + absl::StrCat(seed) == name)
      seeds.push_back(seed);
  }
  std::sort(seeds.begin(), seeds.end());
  return seeds;
}

absl::Status SettleSeeds(SeedsOptions& options) {
  options.run_dir = NamedPath(options.run_dir);
  if (options.seeds.empty()) options.seeds = FindSeeds(options.run_dir);
  if (options.seeds.empty()) {
    return InvalidArgument("there is no run '", options.run_dir, kSeedSuffix,
                           "N'; name seeds with --seeds 1,2,3 and a configuration with --config");
  }
  for (const std::string& override : options.overrides) {
    if (absl::StartsWith(override, "train.seed"))
      return InvalidArgument("--set ", override, " is of one run; name the seeds with --seeds");
  }
  std::vector<int64_t> sorted = options.seeds;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return absl::OkStatus();
  return InvalidArgument("--seeds names ", *twice, " twice; name each seed once");
}

class Seeds {
 public:
  explicit Seeds(const SeedsOptions& options) : options_(options) {
    for (const int64_t seed : options.seeds) runs_.push_back({seed, RunOf(options, seed)});
  }

  // Errors: those of ResolveStart for any of the runs, before one is started.
  absl::StatusOr<int> Run() {
    for (SeedRun& run : runs_) RETURN_IF_ERROR(Annotate(Prepare(run), run.run_dir));
    ASSIGN_OR_RETURN(const int exit_status, LaunchAll());
    const std::string text =
        options_.json ? SeedJson(metric_, runs_) + "\n" : SeedTable(metric_, runs_);
    std::fputs(text.c_str(), stdout);
    if (exit_status == kExitRequeue)
      Log(absl::StrCat("stopped; the same command goes on: ", options_.command));
    return exit_status;
  }

 private:
  // Refuses what can be refused before anything is trained, and finds out what there is to do.
  absl::Status Prepare(SeedRun& run) {
    const RunDirectory paths(run.run_dir);
    const bool is_there = IsThere(paths.config);
    RunConfig config;
    if (is_there) {
      ASSIGN_OR_RETURN(config, LoadRunConfig(paths.config, {}));
      Inspect(run);
    }
    bool is_as_wanted = is_there;
    // Words after -- may allow what is refused without them; the launch itself decides.
    if (!is_there || (options_.names_settings() && options_.launch.empty())) {
      ASSIGN_OR_RETURN(RunConfig wanted, ResolveStart({.config = options_.config,
                                                       .run_dir = run.run_dir,
                                                       .ranks = options_.ranks.value_or(1),
                                                       .overrides = Overrides(run)}));
      // A pinned checkpoint of the run that is named.
      if (is_there) wanted.train.init_from = config.train.init_from;
      is_as_wanted = is_there && wanted.ToText() == config.ToText();
      config = std::move(wanted);
    }
    if (config.eval.every == 0) {
      return InvalidArgument(
          "eval.every is 0: runs are compared by their evaluations; set eval.shards and "
          "eval.every");
    }
    if (!metric_.empty() && metric_ != config.eval.metric) {
      return InvalidArgument("eval.metric is \"", config.eval.metric, "\", but \"", metric_,
                             "\" in the run before; set it alike with --set eval.metric=NAME");
    }
    metric_ = config.eval.metric;
    needs_launch_.push_back(!run.is_finished() || !is_as_wanted || !options_.launch.empty());
    return absl::OkStatus();
  }

  // 0 if all runs are finished, 75 after a stop, else the status of the first launch that failed.
  absl::StatusOr<int> LaunchAll() {
    int exit_status = kExitDone;
    for (size_t i = 0; i < runs_.size(); ++i) {
      SeedRun& run = runs_[i];
      if (!needs_launch_[i]) continue;
      if (NumLaunchSignals() > 0) return static_cast<int>(kExitRequeue);
      Log(absl::StrCat("seed ", run.seed, " (", i + 1, " of ", runs_.size(), "): ", run.run_dir));
      ASSIGN_OR_RETURN(run.exit_status, Launch(run));
      Inspect(run);
      if (run.exit_status == kExitRequeue) return run.exit_status;
      if (exit_status == kExitDone) exit_status = run.exit_status;
    }
    return exit_status;
  }

  std::vector<std::string> Overrides(const SeedRun& run) const {
    std::vector<std::string> overrides = options_.overrides;
    overrides.push_back(absl::StrCat("train.seed=", run.seed));
    return overrides;
  }

  // The exit status of `anyorder launch`, which writes to stderr as if it were called alone.
  // Signals that come here are passed on.
  absl::StatusOr<int> Launch(const SeedRun& run) const {
    SpawnOptions spawn;
    spawn.arguments = {ProgramDirectory() + "/" + kFrontProgram, "launch", "--run-dir",
                       run.run_dir};
    std::vector<std::string>& words = spawn.arguments;
    if (!options_.config.empty()) words.insert(words.end(), {"--config", options_.config});
    if (options_.ranks) words.insert(words.end(), {"--ranks", absl::StrCat(*options_.ranks)});
    for (const std::string& override : Overrides(run))
      words.insert(words.end(), {"--set", override});
    words.insert(words.end(), options_.launch.begin(), options_.launch.end());
    spawn.output_fd = STDERR_FILENO;
    // A signal of the terminal would come twice, and mean more than once.
    spawn.own_session = true;
    spawn.death_signal = SIGTERM;
    ASSIGN_OR_RETURN(ChildProcess launch, ChildProcess::Spawn(spawn));
    for (int passed_on = 0; !launch.Poll(); absl::SleepFor(absl::Milliseconds(20))) {
      for (; passed_on < NumLaunchSignals(); ++passed_on) launch.Signal(SIGTERM);
    }
    // The signal may have come before the launch caught any.
    const bool is_stopped = *launch.Poll() == 128 + SIGTERM && NumLaunchSignals() > 0;
    return is_stopped ? static_cast<int>(kExitRequeue) : *launch.Poll();
  }

  // What the run has come to, from its files.
  static void Inspect(SeedRun& run) {
    const int64_t starts_before = run.starts;
    const absl::StatusOr<StatusFacts> facts = StatusCollector(run.run_dir).Collect();
    if (facts.ok()) {
      run.state = facts->state;
      run.best = facts->best;
      run.error = facts->error;
      run.starts = facts->starts;
    }
    const std::string log = RunDirectory(run.run_dir).train_log;
    if (IsThere(log)) run.log = log;
    const bool has_failed = run.exit_status > kExitDone && run.exit_status != kExitRequeue;
    if (!has_failed || run.starts > starts_before) return;
    run.state = "failed";
    run.error = absl::StrCat("its launch was refused with status ", run.exit_status,
                             ", for the reason that it printed");
  }

  const SeedsOptions& options_;
  std::vector<SeedRun> runs_;
  std::vector<bool> needs_launch_;
  std::string metric_;
};

absl::StatusOr<int> RunSeeds(SeedsOptions& options) {
  CatchLaunchSignals();
  RETURN_IF_ERROR(SettleSeeds(options));
  return Seeds(options).Run();
}

}  // namespace

Subcommand DeclareSeeds(CLI::App& front) {
  const auto options = std::make_shared<SeedsOptions>();
  CLI::App* command = AddCommand(
      front, "seeds", "Train with several seeds, one run after the other; median and spread.",
      {"anyorder seeds runs/rte --seeds 1,2,3,4,5 --config rte.toml --ranks 2 --set "
       "train.init_from=runs/mnli",
       "anyorder seeds runs/rte --json        # resume what was stopped; the table again"});
  AddRunDir(command, options->run_dir, "beginning of the run directories: DIR-seed1, DIR-seed2 ...")
      ->allow_extra_args(false);
  command
      ->add_option("--seeds", options->seeds,
                   "values of train.seed, 1,2,3 (default: those of the runs that are there)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(IsCount(0, kMaxCount))
      ->type_name("N,N...");
  AddPath(command, "--config", options->config, "TOML file (default: each run's frozen one)",
          PathUse::kReadConfig);
  AddCount(command, "--ranks", options->ranks,
           "number of MPI ranks (default: those of the run's last start, or 1)", 1,
           int64_t{1} << 20);
  AddSettings(command, options->overrides);
  command->add_flag("--json", options->json, "print one JSON object");
  command->add_option("launch-options", options->launch, "after --: more options of launch")
      ->type_name("OPTION");
  return {command, [options] {
            options->command = TypedCommand();
            return Report(RunSeeds(*options));
          }};
}

}  // namespace anyorder::launcher
