// The thread of the service that reads committed checkpoints back, while the next ones are written:
// each node the files that it wrote. The coordinator waits for what the others found; then it
// retires older checkpoints, or sets a damaged one aside.

#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "ckpt/commit.h"
#include "ckpt/save_writer.h"
#include "ckpt/work_queue.h"

namespace anyorder::ckpt {

struct CommittedSave {
  SaveProgress progress;   // as of COMMITTED
  std::vector<int> ranks;  // whose files this node wrote
  bool is_coordinator = false;
};

class SaveVerifier {
 public:
  // As SaveWriter's.
  SaveVerifier(CommitLog* log, const ServiceOptions& options, std::function<absl::Status()> fence,
               std::function<void(const SaveProgress&)> report);

  void Enqueue(CommittedSave save) { queue_.Enqueue(std::move(save)); }
  int num_pending() const { return queue_.num_pending(); }
  void Cancel() { queue_.Cancel(); }

 private:
  void Run(CommittedSave save);
  absl::Status ReadBack(const CommittedSave& save);
  absl::Status AwaitOthers(const SaveIdentity& id);
  void SetAside(const SaveIdentity& id);
  void Retire(const SaveIdentity& id);

  CommitLog* const log_;
  const ServiceOptions options_;
  const std::function<absl::Status()> fence_;
  const std::function<void(const SaveProgress&)> report_;
  WorkQueue<CommittedSave> queue_;  // last: its thread uses all of the above
};

}  // namespace anyorder::ckpt
