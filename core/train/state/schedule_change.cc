#include "core/train/state/schedule_change.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/train/run/config_file.h"

namespace anyorder {

absl::StatusOr<std::string> ScheduleChange(const RunConfig& started, const RunConfig& now) {
  RunConfig rest = now;
  rest.train.steps = started.train.steps;
  rest.optimizer.learning_rate = started.optimizer.learning_rate;
  rest.optimizer.min_learning_rate_ratio = started.optimizer.min_learning_rate_ratio;
  rest.optimizer.warmup_steps = started.optimizer.warmup_steps;
  rest.optimizer.decay = started.optimizer.decay;
  ANYORDER_RETURN_IF_ERROR(CheckSameRun(started, rest));
  const std::vector<std::string> before = started.IdentityLines();
  const std::vector<std::string> after = now.IdentityLines();
  std::string change;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    absl::StrAppend(&change, change.empty() ? "" : ", ", before[i], " -> ", after[i]);
  }
  return change;
}

absl::Status CheckMayGoOn(const RunConfig& started, const RunConfig& now, bool is_allowed) {
  const absl::Status same = CheckSameRun(started, now);
  if (same.ok()) return same;
  const absl::Status rest = ScheduleChange(started, now).status();
  if (is_allowed) return rest;
  if (!rest.ok()) return same;
  return absl::InvalidArgumentError(absl::StrCat(
      same.message(), ", or change the schedule of this one with --allow-schedule-change"));
}

absl::Status RecordScheduleChange(const RunDirectory& paths, const RunConfig& now, int64_t attempt,
                                  Ledger& ledger) {
  std::error_code error;
  if (!std::filesystem::exists(paths.config, error)) return absl::OkStatus();
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths.ledger));
  if (Summarize(records).attempts == 0) return absl::OkStatus();  // nothing was trained yet
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig started, LoadRunConfig(paths.config, {}));
  ANYORDER_ASSIGN_OR_RETURN(const std::string change, ScheduleChange(started, now));
  if (change.empty()) return absl::OkStatus();
  return ledger.Append(ledger::Schedule{attempt, now.IdentityDigest(), change});
}

absl::Status AcceptRecordedSchedule(const std::string& run_dir, const RunConfig& config,
                                    TrainMetadata* saved) {
  const std::string digest = config.IdentityDigest();
  if (saved->config_digest == digest) return absl::OkStatus();
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records,
                            ReadLedger(RunDirectory(run_dir).ledger));
  const bool is_recorded =
      std::any_of(records.begin(), records.end(), [&](const LedgerRecord& record) {
        const auto* schedule = record.As<ledger::Schedule>();
        return schedule != nullptr && schedule->config_digest == digest;
      });
  if (!is_recorded) return absl::OkStatus();
  const absl::StatusOr<RunConfig> started = ParseRunConfig(saved->config_text, "checkpoint");
  if (started.ok() && ScheduleChange(*started, config).ok()) saved->config_digest = digest;
  return absl::OkStatus();  // what differs otherwise is CheckMetadata's to say
}

}  // namespace anyorder
