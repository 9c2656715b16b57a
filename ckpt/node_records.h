// What the nodes of a save say about it: one small file each, which the coordinator alone reads. It
// remembers whose it has seen, so that a save costs a few file operations for each node, however
// often the coordinator looks.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "core/base/file_system.h"

namespace anyorder::ckpt {

// Thread-compatible.
class NodeRecords {
 public:
  // The name of a node's record inside the directory (layout.h).
  using NameOf = std::function<std::string(int node)>;

  // `good`: what a node says if all is well with its part; `bad`: if it is not, with the reason.
  NodeRecords(FileSystem* fs, std::string directory, int num_nodes, NameOf good, NameOf bad);

  // Looks for the records that were missing at the last call; by name, because network file systems
  // serve listings from an old cache. OK once all nodes have a good one and none has a bad one;
  // Unavailable naming the nodes without; Aborted with node and reason of a bad one; else what the
  // file system says.
  absl::Status Look();
  // Nodes without a good record.
  const std::vector<int>& missing() const { return missing_; }
  // Whether `node`'s good record is there now.
  bool IsThere(int node) const;

  std::string PathOf(int node) const { return JoinPath(directory_, good_(node)); }
  // Contents of the good records by node; empty for those that are missing.
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  absl::Status CheckNotBad(int node) const;

  FileSystem* const fs_;
  const std::string directory_;
  const NameOf good_;
  const NameOf bad_;
  std::vector<int> missing_;
  std::vector<std::string> texts_;
};

// How long nodes wait between two looks for one of them: the more they are, the more rarely they
// look, so that together they do not look more often than a few dozen.
absl::Duration LongestPauseOf(int num_nodes);

// Patience with other nodes: when to look again, and when to stop.
class NodeWait {
 public:
  // Looks grow rarer, up to `longest_pause`. No later than `limit`, and `ended_grace` after a node
  // has ended without a word, there is no use in waiting.
  NodeWait(absl::Duration limit, absl::Duration ended_grace, absl::Duration longest_pause);

  // After a look that found `undecided`; `ended` tells of a node that has ended, or is empty.
  // OK: look again, after `sleep`, which is false if nobody wants to know any more (Cancelled).
  // Else DeadlineExceeded.
  absl::Status Pause(const absl::Status& undecided, const std::string& ended,
                     const std::function<bool(absl::Duration)>& sleep);

 private:
  const absl::Duration limit_;
  const absl::Duration ended_grace_;
  const absl::Duration longest_pause_;
  const absl::Time deadline_;
  absl::Time ended_since_ = absl::InfiniteFuture();
  absl::Duration pause_;
};

}  // namespace anyorder::ckpt
