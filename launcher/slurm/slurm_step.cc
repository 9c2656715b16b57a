#include <signal.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

#include "core/base/monotonic_clock.h"
#include "core/base/mutex.h"
#include "core/base/status.h"
#include "launcher/process/periodic_task.h"
#include "launcher/slurm/followed_files.h"
#include "launcher/slurm/slurm_backend.h"

namespace anyorder::launcher {
namespace {

// From the first task that failed to the end of the step, for tasks that agreed to end.
constexpr absl::Duration kAftermath = absl::Seconds(5);
constexpr char kSrunError[] = "srun: error: ";
constexpr char kSrunExit[] = ": Exited with exit code ";
// How often to ask whose turn it is.
constexpr absl::Duration kFollowEvery = absl::Milliseconds(50);

// A thread reads the files that the nodes write. The run directory's file system may stall, and the
// launcher must watch the ranks and forward signals meanwhile.
class NodeOutput {
 public:
  NodeOutput(const std::string& directory, const std::string& prefix) : files_(directory, prefix) {}

  // What has been read. Never waits for a file.
  void PassOn(OutputRelay& output) {
    std::vector<std::pair<std::string, std::string>> read;
    {
      const MutexLock lock(&mutex_);
      read.swap(read_);
    }
    for (const auto& [path, bytes] : read) output.Take(path, bytes);
  }

  // The rest, for which it waits. Removes the files.
  void Finish(OutputRelay& output) {
    follower_.reset();
    Follow(absl::InfiniteFuture());
    PassOn(output);
    files_.Remove();
  }

 private:
  void Follow(absl::Time now) {
    files_.Follow(now, [this](const std::string& path, absl::string_view bytes) {
      const MutexLock lock(&mutex_);
      read_.emplace_back(path, bytes);
    });
  }

  FollowedFiles files_;  // of the thread, until Finish
  Mutex mutex_;
  // Path and bytes, not passed on.
  std::vector<std::pair<std::string, std::string>> read_ ABSL_GUARDED_BY(mutex_);
  std::optional<PeriodicTask> follower_{std::in_place, kFollowEvery,
                                        [this] { Follow(MonotonicNow()); }};  // last: uses all
};

// A step whose first task or node has failed is given a moment, in which ranks that agreed to end
// do so, and then ended: Slurm itself would wait for its KillWait, half a minute by default.
class SlurmStep final : public ProcessGroup {
 public:
  // srun and mpirun forward SIGUSR1 and SIGUSR2 to every task.
  SlurmStep(const SlurmStepOptions& options, ChildProcess child)
      : aftermath_(options.is_service ? absl::ZeroDuration() : kAftermath),
        is_service_(options.is_service),
        output_(*options.output),
        program_(child, {SIGUSR1, SIGUSR2, SIGTERM}) {
    if (!options.prefix.empty()) files_.emplace(options.directory, options.prefix);
    output_.WatchLines([this](absl::string_view line) { LookAt(line); });
  }
  ~SlurmStep() override { output_.WatchLines(nullptr); }

  std::optional<int> Poll() override {
    if (exit_status_) return exit_status_;
    if (is_service_) output_.Pump(0);  // of ranks, the caller of Poll pumps
    if (files_) files_->PassOn(output_);
    if (MonotonicNow() - failed_ >= aftermath_) Kill();
    const std::optional<int> ended = program_.Poll();
    if (!ended) return std::nullopt;
    output_.Pump(0);
    if (files_) files_->Finish(output_);
    // srun's own is the highest of all tasks, and so that of those which were ended because another
    // had failed.
    exit_status_ = *ended != 0 && failed_status_ ? failed_status_ : ended;
    return exit_status_;
  }
  void AskToStop(bool urgent) override { program_.AskToStop(urgent); }
  void Kill() override { program_.Kill(); }

 private:
  // "srun: error: n2: task 3: Exited with exit code 74", "srun: error: n2: task 3: Killed", "srun:
  // error: Node failure on n2"
  void LookAt(absl::string_view line) {
    if (!absl::StartsWith(line, kSrunError) || failed_ != absl::InfiniteFuture()) return;
    failed_ = MonotonicNow();
    const std::vector<absl::string_view> parts = absl::StrSplit(line, kSrunExit);
    int status = 0;
    if (parts.size() == 2 && absl::SimpleAtoi(parts[1], &status)) failed_status_ = status;
  }

  const absl::Duration aftermath_;
  const bool is_service_;
  OutputRelay& output_;
  ProgramGroup program_;
  std::optional<NodeOutput> files_;
  absl::Time failed_ = absl::InfiniteFuture();  // when srun first said that a task or a node had
  std::optional<int> failed_status_;  // the exit status of that task, unless it was killed
  std::optional<int> exit_status_;
};

}  // namespace

StartedGroup StartSlurmStep(const SlurmStepOptions& options) {
  ASSIGN_OR_RETURN(const ChildProcess child, options.output->Start(options.spawn));
  return std::make_unique<SlurmStep>(options, child);
}

}  // namespace anyorder::launcher
