#include "launcher/inspect/run_history.h"

#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"

namespace anyorder::launcher {

absl::StatusOr<RunHistory> ReadRunHistory(const std::string& run_dir) {
  ANYORDER_RETURN_IF_ERROR(CheckIsRun(run_dir));
  const RunDirectory paths(run_dir);
  RunHistory history;
  ANYORDER_ASSIGN_OR_RETURN(history.config, LoadRunConfig(paths.config, {}));
  ANYORDER_ASSIGN_OR_RETURN(history.ledger, ReadLedger(paths.ledger));
  ANYORDER_ASSIGN_OR_RETURN(history.metrics, ReadMetrics(paths.metrics));
  ANYORDER_ASSIGN_OR_RETURN(history.redone, ReadMetrics(paths.redone));
  for (const std::string& path : {paths.ledger, paths.metrics, paths.redone}) {
    const absl::StatusOr<std::string> text = ReadWholeFile(path);
    if (text.ok() && !text->empty() && text->back() != '\n') history.torn.push_back(path);
  }
  return history;
}

}  // namespace anyorder::launcher
