#include "core/train/health/rollback.h"

#include <cstring>
#include <type_traits>

#include "core/base/status.h"
#include "core/train/run/ledger.h"

namespace anyorder {

absl::StatusOr<std::vector<SkippedSteps>> ReadRollbacks(const std::string& ledger_path) {
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(ledger_path));
  std::vector<SkippedSteps> steps;
  for (const LedgerRecord& record : records) {
    if (const auto* rollback = record.As<ledger::Rollback>())
      steps.push_back({rollback->first_step, rollback->last_step});
  }
  return steps;
}

absl::StatusOr<std::vector<SkippedSteps>> AgreeOnRollbacks(const std::string& ledger_path,
                                                           dist::Communicator& communicator) {
  static_assert(std::is_trivially_copyable_v<SkippedSteps>);
  absl::StatusOr<std::vector<SkippedSteps>> steps = std::vector<SkippedSteps>();
  if (communicator.rank() == 0) steps = ReadRollbacks(ledger_path);
  ANYORDER_RETURN_IF_ERROR(communicator.AllAgree(steps.status()));
  const std::string bytes = communicator.AllGatherStrings(
      {reinterpret_cast<const char*>(steps->data()), steps->size() * sizeof(SkippedSteps)})[0];
  steps->resize(bytes.size() / sizeof(SkippedSteps));
  if (!bytes.empty()) std::memcpy(steps->data(), bytes.data(), bytes.size());
  return steps;
}

}  // namespace anyorder
