#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "core/base/status.h"
#include "launcher/start/slurm_backend.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kFollowEvery = absl::Milliseconds(200);
// From the first task that failed to the end of the step, for tasks that agreed to end.
constexpr absl::Duration kAftermath = absl::Seconds(5);
// From SIGTERM, with which srun ends its step at once, to SIGKILL for an srun that hangs.
constexpr absl::Duration kEndLimit = absl::Seconds(60);

}  // namespace

FollowedFiles::FollowedFiles(std::string directory, std::string prefix)
    : directory_(std::move(directory)), prefix_(std::move(prefix)) {}

void FollowedFiles::Follow(OutputRelay& output) {
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end;
       it.increment(error)) {
    if (absl::StartsWith(it->path().filename().string(), prefix_))
      taken_.try_emplace(it->path().string(), 0);
  }
  for (auto& [path, taken] : taken_) {
    // Opened again each time, which asks a network file system for what is there now.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    char bytes[16384];
    ssize_t got = 0;
    while ((got = ::pread(fd, bytes, sizeof bytes, taken)) > 0) {
      output.Take(path, absl::string_view(bytes, static_cast<size_t>(got)));
      taken += got;
    }
    ::close(fd);
  }
}

void FollowedFiles::Remove() {
  std::error_code ignored;  // what stays is only found twice
  for (const auto& [path, taken] : taken_) fs::remove(path, ignored);
}

absl::StatusOr<std::unique_ptr<SlurmStep>> SlurmStep::Start(const SlurmStepOptions& options) {
  ANYORDER_RETURN_IF_ERROR(options.output->NewPipe());
  SpawnOptions spawn = options.spawn;
  spawn.output_fd = options.output->write_end();
  spawn.own_session = true;
  absl::StatusOr<ChildProcess> child = ChildProcess::Spawn(spawn);
  options.output->CloseWriteEnd();
  ANYORDER_RETURN_IF_ERROR(child.status());
  return std::unique_ptr<SlurmStep>(new SlurmStep(options, *std::move(child)));
}

SlurmStep::SlurmStep(const SlurmStepOptions& options, ChildProcess child)
    : is_service_(options.is_service), output_(*options.output), child_(std::move(child)) {
  if (!options.prefix.empty()) files_.emplace(options.directory, options.prefix);
}

std::optional<int> SlurmStep::Poll() {
  if (exit_status_) return exit_status_;
  const absl::Time now = absl::Now();
  if (is_service_) output_.Pump(0);  // of ranks, the caller of Poll pumps
  if (files_ && now - followed_ >= kFollowEvery) {
    files_->Follow(output_);
    followed_ = now;
  }
  const absl::Duration aftermath = is_service_ ? absl::ZeroDuration() : kAftermath;
  if (now - output_.srun_error() >= aftermath) Kill();
  if (now - killed_ > kEndLimit) child_.Signal(SIGKILL);
  const std::optional<int> ended = child_.Poll();
  if (!ended) return std::nullopt;
  output_.Pump(0);
  if (files_) {
    files_->Follow(output_);
    files_->Remove();
  }
  // SIGTERM also comes from Slurm itself, when another task has failed: nobody asked the run to
  // stop.
  exit_status_ = *ended == 128 + SIGTERM && !is_asked_ ? 128 + SIGKILL : *ended;
  // srun's own is the highest of all tasks, and so that of those which were ended because another
  // had failed.
  if (*exit_status_ != 0 && output_.srun_exit_status()) exit_status_ = output_.srun_exit_status();
  return exit_status_;
}

// srun and mpirun forward SIGUSR1 and SIGUSR2 to every task.
void SlurmStep::AskToStop(bool urgent) {
  is_asked_ = true;
  if (killed_ == absl::InfiniteFuture()) child_.Signal(urgent ? SIGUSR2 : SIGUSR1);
}

void SlurmStep::Kill() {
  if (killed_ != absl::InfiniteFuture()) return;
  killed_ = absl::Now();
  child_.Signal(SIGTERM);
}

}  // namespace anyorder::launcher
