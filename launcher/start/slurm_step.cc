#include <signal.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "launcher/process/periodic_task.h"
#include "launcher/start/followed_files.h"
#include "launcher/start/slurm_backend.h"

namespace anyorder::launcher {
namespace {

// From the first task that failed to the end of the step, for tasks that agreed to end.
constexpr absl::Duration kAftermath = absl::Seconds(5);
// From SIGTERM, with which srun ends its step at once, to SIGKILL for an srun that hangs.
constexpr absl::Duration kEndLimit = absl::Seconds(60);

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
      const std::lock_guard<std::mutex> lock(mutex_);
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
      const std::lock_guard<std::mutex> lock(mutex_);
      read_.emplace_back(path, bytes);
    });
  }

  FollowedFiles files_;  // of the thread, until Finish
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::string>> read_;  // path and bytes, not passed on
  std::optional<PeriodicTask> follower_{std::in_place, kFollowEvery,
                                        [this] { Follow(MonotonicNow()); }};  // last: uses all
};

// A step whose first task or node has failed is given a moment, in which ranks that agreed to end
// do so, and then ended: Slurm itself would wait for its KillWait, half a minute by default.
class SlurmStep final : public ProcessGroup {
 public:
  SlurmStep(const SlurmStepOptions& options, ChildProcess child)
      : is_service_(options.is_service), output_(*options.output), child_(std::move(child)) {
    if (!options.prefix.empty()) files_.emplace(options.directory, options.prefix);
  }

  std::optional<int> Poll() override {
    if (exit_status_) return exit_status_;
    const absl::Time now = MonotonicNow();
    if (is_service_) output_.Pump(0);  // of ranks, the caller of Poll pumps
    if (files_) files_->PassOn(output_);
    const absl::Duration aftermath = is_service_ ? absl::ZeroDuration() : kAftermath;
    if (now - output_.srun_error() >= aftermath) Kill();
    if (now - killed_ > kEndLimit) child_.Signal(SIGKILL);
    const std::optional<int> ended = child_.Poll();
    if (!ended) return std::nullopt;
    output_.Pump(0);
    if (files_) files_->Finish(output_);
    // SIGTERM also comes from Slurm itself, when another task has failed: nobody asked the run to
    // stop.
    exit_status_ = *ended == 128 + SIGTERM && !is_asked_ ? 128 + SIGKILL : *ended;
    // srun's own is the highest of all tasks, and so that of those which were ended because another
    // had failed.
    if (*exit_status_ != 0 && output_.srun_exit_status()) exit_status_ = output_.srun_exit_status();
    return exit_status_;
  }

  // srun and mpirun forward SIGUSR1 and SIGUSR2 to every task.
  void AskToStop(bool urgent) override {
    is_asked_ = true;
    if (killed_ == absl::InfiniteFuture()) child_.Signal(urgent ? SIGUSR2 : SIGUSR1);
  }

  void Kill() override {
    if (killed_ != absl::InfiniteFuture()) return;
    killed_ = MonotonicNow();
    child_.Signal(SIGTERM);
  }

 private:
  const bool is_service_;
  OutputRelay& output_;
  ChildProcess child_;
  std::optional<NodeOutput> files_;
  absl::Time killed_ = absl::InfiniteFuture();  // when it was first told to end
  bool is_asked_ = false;
  std::optional<int> exit_status_;
};

}  // namespace

StartedGroup StartSlurmStep(const SlurmStepOptions& options) {
  ANYORDER_ASSIGN_OR_RETURN(ChildProcess child, options.output->Start(options.spawn));
  return std::make_unique<SlurmStep>(options, std::move(child));
}

}  // namespace anyorder::launcher
