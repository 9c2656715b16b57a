// run-dir/ledger.jsonl, and the launcher's own ledger.launcher.jsonl: what happened to a run,
// appended and synced record by record, never rewritten (FORMAT.md).
//
// From it follow the run's name, the number of starts, whether a checkpoint ever existed, and which
// steps each start trained: a step that two starts list was lost in a crash and trained again with
// the same samples.

#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/train/run/run_directory.h"

namespace anyorder {

// A struct for each event of FORMAT.md, with the names of its members there. What stays at its
// default, a negative number or an empty string, is not written.
namespace ledger {

struct Created {
  static constexpr char kName[] = "created";
  std::string run_id;
  std::string config_digest;
};

struct Imported {
  static constexpr char kName[] = "imported";
  std::string detail;  // the directory that the weights came from
};

// The launcher starts the ranks.
struct Start {
  static constexpr char kName[] = "start";
  std::string run_id;
  int64_t attempt = -1;
  int64_t ranks = -1;
  int64_t slurm_job = -1;          // SLURM_JOB_ID, under Slurm
  int64_t slurm_restart = -1;      // SLURM_RESTART_COUNT, 0 for a job's first start
  std::vector<std::string> nodes;  // host names, in the order of their ranks
};

// The ranks of a start begin to train, after `step`.
struct Train {
  static constexpr char kName[] = "train";
  std::string run_id;
  int64_t attempt = -1;
  int64_t ranks = -1;
  int64_t step = -1;
  std::string config_digest;
  std::string dataset_digest;
  std::string detail;  // the checkpoint loaded, or the weights begun with
};

// The user allowed another schedule.
struct Schedule {
  static constexpr char kName[] = "schedule";
  int64_t attempt = -1;
  std::string config_digest;
  std::string detail;
};

// Another configuration replaces one that nothing was trained with.
struct Reconfigured {
  static constexpr char kName[] = "reconfigured";
  int64_t attempt = -1;
  std::string config_digest;
  std::string detail;
};

// The steps (first_step, last_step] consumed their samples.
struct Trained {
  static constexpr char kName[] = "trained";
  int64_t attempt = -1;
  int64_t first_step = -1;
  int64_t last_step = -1;
};

struct Commit {
  static constexpr char kName[] = "commit";
  int64_t attempt = -1;
  int64_t step = -1;
  int64_t generation = -1;
  int64_t stop_seconds = -1;  // how long a stop may take, as measured until then (StopBudget)
  // The last step that changed the weights, where those after it were skipped.
  int64_t trained_step = -1;
};

// The samples (step, 0) to (step, lanes - 1) changed no weights.
struct Skipped {
  static constexpr char kName[] = "skipped";
  int64_t attempt = -1;
  int64_t step = -1;
  int64_t rank = -1;  // the lowest that produced what is not finite
  int64_t lanes = -1;
  std::string reason;
  std::string detail;
};

// The steps (first_step, last_step] are skipped whenever they come again.
struct Rollback {
  static constexpr char kName[] = "rollback";
  int64_t attempt = -1;
  int64_t first_step = -1;
  int64_t last_step = -1;
  std::string detail;
};

// In the steps (step, last_step] a rank kept the others waiting; without last_step: until the end.
// The launcher writes it when the ranks have ended.
struct Straggler {
  static constexpr char kName[] = "straggler";
  int64_t attempt = -1;
  int64_t step = -1;
  int64_t last_step = -1;
  int64_t rank = -1;
  std::string detail;
};

// An end that the ranks agreed on.
struct Stop {
  static constexpr char kName[] = "stop";
  int64_t attempt = -1;
  int64_t step = -1;
  int64_t exit_status = -1;
  int64_t may_restart = -1;   // 0 if another start would end the same way
  int64_t trained_step = -1;  // of a run that diverged: the last that changed the weights
  std::string reason;         // kDiverged, kEarly, or empty
  std::string detail;

  // All steps after trained_step were skipped: what a checkpoint of it or of a later step holds is
  // of no use.
  static constexpr char kDiverged[] = "diverged";
  bool has_diverged() const { return reason == kDiverged; }
  // Finished before its last step, for want of a better evaluation (eval.patience).
  static constexpr char kEarly[] = "early";
  bool is_early() const { return reason == kEarly; }
};

// The launcher has seen the ranks of a start end.
struct Exit {
  static constexpr char kName[] = "exit";
  int64_t attempt = -1;
  int64_t exit_status = -1;
  std::string detail;  // the last error that was printed, if it was no requested end
};

// What came before is not all there; no proof reaches back over it. Written by a launcher that
// finds the ledger of earlier starts gone, and read where a record has no beginning (FORMAT.md).
struct Lost {
  static constexpr char kName[] = "lost";
  int64_t attempt = -1;
  int64_t step = -1;  // up to here
  std::string detail;
};

using Event = std::variant<Created, Imported, Start, Train, Schedule, Reconfigured, Trained, Commit,
                           Skipped, Rollback, Straggler, Stop, Exit, Lost>;

}  // namespace ledger

struct LedgerRecord {
  std::string time;  // RFC 3339
  ledger::Event event;

  // Null unless the event is of this kind.
  template <typename Event>
  const Event* As() const {
    return std::get_if<Event>(&event);
  }
  // -1 for events of no start.
  int64_t attempt() const;
};

class Ledger {
 public:
  static absl::StatusOr<Ledger> Open(const std::string& path);
  // Durable when it returns.
  absl::Status Append(const ledger::Event& event);

 private:
  explicit Ledger(AppendFile file) : file_(std::move(file)) {}
  AppendFile file_;
};

// One file; empty if it is not there. Left out are events that this version does not know, a torn
// last line and, with one warning a process, fragments of appends that failed; a record that
// another machine's append has overwritten in part is a Lost (FORMAT.md). DataLoss naming the line
// for any other damage.
absl::StatusOr<std::vector<LedgerRecord>> ReadLedgerFile(const std::string& path);
// All records of the run. Those of a launcher that has its own file stand around those of its
// start's ranks, whatever the clocks of their machines say.
absl::StatusOr<std::vector<LedgerRecord>> ReadLedger(const RunDirectory& paths);

// What the records say about the run as a whole.
struct LedgerSummary {
  std::string run_id;
  int64_t attempts = 0;         // starts so far
  int64_t committed_step = -1;  // highest; -1: never committed, or all of it came to nothing
  // Nothing was committed since a start began at step 0 again, because the one before had diverged
  // without a good checkpoint.
  bool has_begun_again = false;
  int64_t stop_seconds = -1;   // of the last commit that says it
  std::string dataset_digest;  // of what the last start trained on; "": never trained
};
LedgerSummary Summarize(const std::vector<LedgerRecord>& records);

// How the run diverged in its last start that trained; null if it did not.
const ledger::Stop* FindDivergedStop(const std::vector<LedgerRecord>& records);

}  // namespace anyorder
