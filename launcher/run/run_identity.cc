#include "launcher/run/run_identity.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_format.h"

#include "ckpt/lease.h"
#include "core/base/file_system.h"
#include "core/base/status.h"

namespace anyorder::launcher {

absl::StatusOr<RunIdentity> NextIdentity(const RunDirectory& paths) {
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths.ledger));
  const LedgerSummary summary = Summarize(records);
  RunIdentity identity{summary.run_id, summary.attempts + 1};
  // A launch that died between its claim and its first record has used up a number that the ledger
  // does not know.
  const auto claimed = ckpt::ReadLease(FileSystem::Posix(), paths.launch);
  // Nor is it always on this machine, where its death could be seen; a claim that lives is refused
  // by the lease.
  if (claimed.ok() && claimed->run_id == identity.run_id)
    identity.attempt = std::max(identity.attempt, claimed->attempt + 1);
  if (identity.run_id.empty()) {
    // Only a name: nothing of the training depends on it.
    std::random_device random;
    identity.run_id = absl::StrFormat("%08x%08x", random(), random());
  }
  return identity;
}

absl::Status RecordCreation(const RunDirectory& paths, const RunIdentity& identity,
                            const RunConfig& config, Ledger& ledger) {
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths.ledger));
  const LedgerSummary summary = Summarize(records);
  const bool is_new = summary.run_id.empty();
  if (summary.attempts >= identity.attempt || (!is_new && summary.run_id != identity.run_id)) {
    return AlreadyExists("another launch used '", paths.root,
                         "' a moment ago; check its state and launch again");
  }
  if (!is_new) return absl::OkStatus();
  return ledger.Append(ledger::Created{identity.run_id, config.IdentityDigest()});
}

}  // namespace anyorder::launcher
