#include "ckpt/event_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "ckpt/json_values.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/utc_time.h"

namespace anyorder::ckpt {
namespace {

double Rate(int64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0;
}

void PrintLine(const SaveProgress& p, int64_t lag_steps) {
  if (p.state == SaveState::kCommitted) {
    Log(absl::StrFormat(
        "step %d COMMITTED as generation %d: %.1f MB, stall %.1f ms (%.1f GB/s), write %.2f GB/s, "
        "sync %.1f ms, %.3f s in all, lag %d steps, %d MiB free",
        p.id.step, p.id.generation, static_cast<double>(p.bytes) / 1e6, p.stall_ms,
        Rate(p.node_bytes, p.stall_ms / 1e3),
        Rate(p.node_bytes, p.times.write_seconds + p.times.sync_seconds),
        p.times.sync_seconds * 1e3, p.seconds, lag_steps, p.free_bytes >> 20));
  } else if (p.state == SaveState::kRecovered) {
    Log(absl::StrCat("step ", p.id.step, " RECOVERED as generation ", p.id.generation,
                     ": an earlier start had written it whole and was killed before the commit"));
  } else if (p.state == SaveState::kAbandoned || p.state == SaveState::kDamaged) {
    LogWarning(absl::StrCat("step ", p.id.step, " ", Name(p.state), ", generation ",
                            p.id.generation, ": ", p.reason, "; older checkpoints are untouched"));
  }
}

}  // namespace

EventLog::EventLog(std::unique_ptr<AppendableFile> file) : file_(std::move(file)) {}

absl::StatusOr<EventLog> EventLog::Open(FileSystem* fs, const std::string& run_dir, int node) {
  const std::string path = absl::StrFormat("%s/ckptd.node%02d.jsonl", run_dir, node);
  ANYORDER_ASSIGN_OR_RETURN(std::unique_ptr<AppendableFile> file, fs->OpenForAppend(path));
  return EventLog(std::move(file));
}

void EventLog::Write(const SaveProgress& p, int64_t lag_steps) {
  Json json = {{"time", UtcTimeStamp()},        {"state", Name(p.state)},  {"step", p.id.step},
               {"generation", p.id.generation}, {"attempt", p.id.attempt}, {"bytes", p.bytes},
               {"seconds", p.seconds}};
  if (!p.reason.empty()) json["reason"] = p.reason;
  if (p.state == SaveState::kStaged || p.state == SaveState::kCommitted) {
    json["stall_ms"] = p.stall_ms;
    json["copy_gb_per_s"] = Rate(p.node_bytes, p.stall_ms / 1e3);
  }
  if (p.state == SaveState::kDurable || p.state == SaveState::kCommitted) {
    json["write_gb_per_s"] = Rate(p.node_bytes, p.times.write_seconds + p.times.sync_seconds);
    json["sync_ms"] = p.times.sync_seconds * 1e3;
  }
  if (p.state == SaveState::kCommitted) {
    json["lag_steps"] = lag_steps;
    json["free_bytes"] = p.free_bytes;
  }
  if (p.verify_seconds > 0) json["verify_seconds"] = p.verify_seconds;
  // A full disk must not stop the service; stderr still has the line below.
  file_->Append(DumpJson(json) + "\n").IgnoreError();
  PrintLine(p, lag_steps);
}

}  // namespace anyorder::ckpt
