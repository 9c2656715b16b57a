// What the checkpoint service of a node tells the launcher, several times a second.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "core/liveness/rank_page.h"

namespace anyorder::liveness {

struct RankReport {
  RankState state;
  bool is_connected = false;  // false: its process has gone, in order if state.has_ended
};

struct NodeReport {
  int node = 0;
  std::string host;
  absl::Time now;            // by the node's monotonic clock (core/base/monotonic_clock.h)
  absl::Duration file_wait;  // for how long the service's own file call has waited; 0: none does
  bool is_serving = false;   // its service listens: ranks may come
  std::vector<RankReport> ranks;  // of this node, since the start
};

// One line a rank.
std::string SerializeNodeReport(const NodeReport& report);
// DataLoss for a text that is none.
absl::StatusOr<NodeReport> ParseNodeReport(absl::string_view text);

}  // namespace anyorder::liveness
