// run-dir/ledger.jsonl: what happened to a run, appended and synced record by record, never
// rewritten (FORMAT.md).
//
// From it follow the run's name, the number of starts, whether a checkpoint ever existed, and which
// steps each start trained: a step that two starts list was lost in a crash and done again with the
// same samples.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/train/run/append_file.h"

namespace anyorder {

// Members that an event does not use stay at their defaults and are not written.
struct LedgerRecord {
  std::string event;  // FORMAT.md lists them
  std::string time;   // RFC 3339, filled in by Append
  std::string run_id;
  int64_t attempt = -1;
  int64_t ranks = -1;
  int64_t step = -1;        // commit: of the checkpoint; train, stop: where; skipped: which
  int64_t first_step = -1;  // trained: the steps (first_step, last_step] consumed their samples
  int64_t last_step = -1;
  int64_t generation = -1;
  int64_t exit_status = -1;
  int64_t may_restart = -1;  // stop: 0 if another start would end the same way
  int64_t rank = -1;         // skipped: the lowest rank that produced what is not finite
  int64_t lanes = -1;        // skipped: the samples (step, 0) to (step, lanes - 1) changed nothing
  std::string reason;
  std::string config_digest;
  std::string dataset_digest;
  std::string detail;
  int64_t slurm_job = -1;          // start: SLURM_JOB_ID, under Slurm
  int64_t slurm_restart = -1;      // start: SLURM_RESTART_COUNT, 0 for a job's first start
  std::vector<std::string> nodes;  // start: host names, in the order of their ranks
};

class Ledger {
 public:
  static absl::StatusOr<Ledger> Open(const std::string& path);
  // Durable when it returns.
  absl::Status Append(LedgerRecord record);

 private:
  explicit Ledger(AppendFile file) : file_(std::move(file)) {}
  AppendFile file_;
};

// Empty if there is no such file. A torn last line is left out; DataLoss naming the line for any
// other damage.
absl::StatusOr<std::vector<LedgerRecord>> ReadLedger(const std::string& path);

// What the records say about the run as a whole.
struct LedgerSummary {
  std::string run_id;
  int64_t attempts = 0;         // starts so far
  int64_t committed_step = -1;  // highest; -1: never committed
};
LedgerSummary Summarize(const std::vector<LedgerRecord>& records);

}  // namespace anyorder
