#include "launcher/start/launcher_heartbeat.h"

#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/train/run/run_directory.h"

namespace anyorder::launcher {
namespace {

constexpr absl::Duration kBeat = absl::Seconds(2);
// Longer than a network file system's attributes may be old (acregmax of NFS) would be minutes; the
// file is opened again for each read, which asks the server. What is left are servers that fail
// over.
constexpr absl::Duration kSilenceLimit = absl::Seconds(60);

std::string DirectoryOf(const std::string& run_dir) {
  return absl::StrCat(RunDirectory(run_dir).launch, "/launcher");
}

void Beat(dist::Heartbeat& heartbeat) {
  heartbeat.Tick();
  heartbeat.Flush();
}

}  // namespace

absl::Duration Uptime() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

absl::Status LauncherHeartbeat::Begin(const std::string& run_dir, int64_t attempt,
                                      std::optional<LauncherHeartbeat>& heartbeat) {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  ANYORDER_ASSIGN_OR_RETURN(
      std::unique_ptr<dist::Heartbeat> file,
      dist::Heartbeat::Create(DirectoryOf(run_dir), 0, /*world_size=*/1, attempt, host));
  Beat(*file);
  heartbeat.emplace(std::move(file));
  return absl::OkStatus();
}

LauncherHeartbeat::LauncherHeartbeat(std::unique_ptr<dist::Heartbeat> heartbeat)
    : heartbeat_(std::move(heartbeat)), beat_(kBeat, [this] { Beat(*heartbeat_); }) {}

std::string LauncherHeartbeatWatch::Judge(const absl::StatusOr<dist::RankBeat>& beat,
                                          absl::Duration now) {
  if (!since_) since_ = now;
  if (beat.ok() && beat->attempt > attempt_)
    return absl::StrCat("start ", beat->attempt, " of the run has taken over from this one");
  if (beat.ok() && beat->attempt == attempt_) {
    if (beat->has_ended) return "the launcher on " + beat->host + " has ended this attempt";
    if (beat->ticks != ticks_) {
      ticks_ = beat->ticks;
      since_ = now;
    }
  }
  const absl::Duration silence = now - *since_;
  if (silence < silence_limit_) return "";
  return absl::StrCat("no heartbeat from the launcher",
                      beat.ok() ? " on " + beat->host : ": " + std::string(beat.status().message()),
                      " for ", absl::FormatDuration(absl::Trunc(silence, absl::Seconds(1))),
                      ": it, its node or the run directory's file system is lost");
}

void FenceThisRank(const std::string& run_dir, int64_t attempt) {
  std::thread([run_dir, attempt] {
    LauncherHeartbeatWatch watch(attempt, kSilenceLimit);
    for (;; absl::SleepFor(kBeat)) {
      const std::string why = watch.Judge(dist::ReadRankBeat(DirectoryOf(run_dir), 0), Uptime());
      if (why.empty()) continue;
      LogWarning("ending this rank: " + why);
      _exit(kExitIo);
    }
  }).detach();
}

}  // namespace anyorder::launcher
