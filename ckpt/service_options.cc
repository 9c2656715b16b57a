#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "ckpt/service.h"

namespace anyorder::ckpt {

absl::Status ServiceOptions::Validate() const {
  if (run_dir.empty() || run_id.empty() || attempt < 1 || node < 0 || node >= num_nodes ||
      keep_last < 2 || keep_every < 0 || num_writer_threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint service needs run_dir, run_id, attempt >= 1, 0 <= node < "
                     "num_nodes, keep_last >= 2, keep_every >= 0; got run_dir '",
                     run_dir, "', run_id '", run_id, "', attempt ", attempt, ", node ", node,
                     " of ", num_nodes, ", keep_last ", keep_last, ", keep_every ", keep_every));
  }
  return absl::OkStatus();
}

}  // namespace anyorder::ckpt
