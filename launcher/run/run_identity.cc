#include "launcher/run/run_identity.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "ckpt/layout.h"
#include "ckpt/lease.h"
#include "ckpt/reader.h"
#include "core/base/file_system.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/train/run/metrics.h"

namespace anyorder::launcher {
namespace {

// The last start of which metrics and checkpoints tell, and the last step. -1: there was none.
struct Past : RunIdentity {
  int64_t step = -1;
};

absl::StatusOr<Past> ReadPast(const RunDirectory& paths) {
  Past past;
  const absl::StatusOr<std::vector<StepMetrics>> lines = ReadMetrics(paths.metrics);
  // What cannot be read tells nothing here; the ranks say what is wrong with it.
  if (lines.ok() && !lines->empty()) past = {{"", lines->back().attempt}, lines->back().step};
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ckpt::ListSteps(paths.root));
  for (const int64_t step : steps) {
    const auto checkpoint = ckpt::Checkpoint::Open(ckpt::CheckpointPath(paths.root, step));
    if (!checkpoint.ok()) continue;
    const int64_t attempt = checkpoint->generation() / ckpt::kGenerationsPerAttempt;
    return Past{{checkpoint->run_id(), std::max(past.attempt, attempt)}, std::max(past.step, step)};
  }
  return past;
}

}  // namespace

absl::StatusOr<RunIdentity> NextIdentity(const RunDirectory& paths) {
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths));
  const LedgerSummary summary = Summarize(records);
  RunIdentity identity{summary.run_id, summary.attempts + 1};
  if (identity.run_id.empty()) {
    ASSIGN_OR_RETURN(const Past past, ReadPast(paths));
    identity = {past.run_id, std::max(identity.attempt, past.attempt + 1)};
  }
  // A launch that died between its claim and its first record has used up a number that the ledger
  // does not know. Nor is it always on this machine, where its death could be seen; a claim that
  // lives is refused by the lease.
  for (const std::string& directory : {paths.launch, paths.root}) {
    const auto claimed = ckpt::ReadLease(FileSystem::Posix(), directory);
    if (claimed.ok() && claimed->run_id == identity.run_id)
      identity.attempt = std::max(identity.attempt, claimed->attempt + 1);
  }
  if (identity.run_id.empty()) {
    // Only a name: nothing of the training depends on it.
    std::random_device random;
    identity.run_id = absl::StrFormat("%08x%08x", random(), random());
  }
  return identity;
}

absl::Status RecordCreation(const RunDirectory& paths, const RunIdentity& identity,
                            const RunConfig& config, Ledger& ledger) {
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths));
  const LedgerSummary summary = Summarize(records);
  const bool is_new = summary.run_id.empty();
  if (summary.attempts >= identity.attempt || (!is_new && summary.run_id != identity.run_id)) {
    return AlreadyExists("another launch used '", paths.root,
                         "' a moment ago; check its state and launch again");
  }
  if (is_new)
    RETURN_IF_ERROR(ledger.Append(ledger::Created{identity.run_id, config.IdentityDigest()}));
  const bool has_trained = !summary.dataset_digest.empty();
  if (!is_new && has_trained) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Past past, ReadPast(paths));
  // An import has a checkpoint, of step 0, and no start.
  if (past.step < (is_new ? 0 : 1)) return absl::OkStatus();
  const std::string what =
      has_trained ? std::string(
                        "nothing says how earlier starts began and ended: they were started "
                        "by hand, or ledger.launcher.jsonl is gone")
                  : absl::StrCat(
                        "the ledger of earlier starts is gone; a new one begins, and which "
                        "samples the steps up to ",
                        past.step, " were trained on can no longer be proven");
  LogWarning(absl::StrCat("'", paths.root, "': ", what));
  if (has_trained) return absl::OkStatus();
  return ledger.Append(ledger::Lost{identity.attempt, past.step, what});
}

}  // namespace anyorder::launcher
