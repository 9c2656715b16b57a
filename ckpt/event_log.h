// run-dir/ckptd.node00.jsonl: one JSON object per change of state, appended with one write(2) each.
// For people and `anyorder status`; nothing is decided by it, so it is not synced.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "ckpt/save_writer.h"
#include "core/base/file_system.h"

namespace anyorder::ckpt {

class EventLog {
 public:
  static absl::StatusOr<EventLog> Open(FileSystem* fs, const std::string& run_dir, int node);

  // Also prints one line to stderr for COMMITTED, ABANDONED and DAMAGED. `lag_steps` is how far
  // training has begun to save ahead of this step.
  void Write(const SaveProgress& progress, int64_t lag_steps);

 private:
  explicit EventLog(std::unique_ptr<AppendableFile> file);
  std::unique_ptr<AppendableFile> file_;
};

}  // namespace anyorder::ckpt
