// `anyorder inspect RUN-DIR --ledger`: whether each sample was used as planned, and where the wall
// time went. Offline: it reads the run directory and, where it is there, the dataset.
//
// Proves from a run's files alone that every sample was used exactly as planned, over all starts.
//
// A checkpoint holds the state after a step, and a start resumes from one: its `train` record says
// from which. So the starts alone decide which of them trained each step for good, and what each
// lost. The audit holds against that what was written step by step (metrics.jsonl,
// metrics.redone.jsonl), what the ledger claims (`trained`, `commit`, `skipped`, `stop`), and what
// the sampler, a pure function of dataset, configuration and step, says that each step must have
// read.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "core/train/run/run_config.h"
#include "data/dataset/dataset.h"
#include "launcher/inspect/run_history.h"

namespace anyorder::launcher {

struct LedgerReportOptions {
  std::string run_dir;
  std::string data;  // the dataset, if it is no longer where the run's configuration says
  bool json = false;
  std::optional<int64_t> verified_checkpoints = {};  // every byte of so many was read and is right
};

// Prints to stdout. DataLoss after the report if there is a problem; FailedPrecondition if `data`
// is another dataset.
absl::Status PrintLedgerReport(const LedgerReportOptions& options);

struct SampleProblem {
  int64_t step = 0;
  int64_t attempt = 0;  // -1: of none
  std::string what;
};

struct SampleAudit {
  int64_t steps = 0;                    // trained for good: 1 to `steps`
  int64_t lanes = 0;                    // samples of a step
  int64_t duplicates = 0;               // lines too many of a step that counts
  int64_t omissions = 0;                // steps up to `steps` without a line
  int64_t redone_steps = 0;             // lost in a crash and recomputed
  std::vector<int64_t> skipped_steps;   // read as planned, but they changed no weights
  int64_t compared_with_plan = 0;       // lines, those of lost steps included
  int64_t compared_with_redone = 0;     // lost lines, each with the line that counts
  std::vector<SampleProblem> problems;  // none: every sample was used as planned
};

// `planned[k]` is the digest of step k + 1 (data::StepDigest); empty if it cannot be known.
SampleAudit AuditSamples(const RunHistory& history, absl::Span<const std::string> planned);

// Samples steps 1 to `steps` again, with as many threads as there are cores. DataLoss if the text
// is damaged.
absl::StatusOr<std::vector<std::string>> PlannedSamples(const RunConfig& config,
                                                        const data::Dataset& dataset,
                                                        int64_t steps);

}  // namespace anyorder::launcher
