// Judges from the reports of all nodes which rank hangs, whom others wait for, and whether only a
// new start helps. Has no clock and no files, so that tests can say what was told when.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "core/liveness/node_report.h"

namespace anyorder::liveness {

struct WatchLimits {
  absl::Duration report_after = absl::Seconds(60);  // a silence or a wait worth a warning
  absl::Duration end_after = absl::Minutes(15);     // and one that only a new start ends
  // For each phase before a rank's first step, from its last progress; also until all have come.
  absl::Duration start_limit = absl::Minutes(10);
  absl::Duration service_limit = absl::Minutes(1);     // a node's silence; mpirun's, at the end
  absl::Duration file_stall_limit = absl::Minutes(5);  // so long waits for a file are excused
};

struct Verdict {
  std::vector<std::string> reports;  // warnings, each given once
  std::string end;  // why the ranks must be ended now, "" if they need not; given once
};

// README.md says by which clocks silences are measured, and what is judged when. Not thread-safe.
class RankWatchdog {
 public:
  // `nodes`: their names, by number; one or more.
  RankWatchdog(const WatchLimits& limits, int num_ranks, std::vector<std::string> nodes);

  // Call it several times a second from the start of the ranks on. `newest`: what the nodes have
  // told last, those that have reported, in any order. `now`: MonotonicNow().
  Verdict Judge(const std::vector<NodeReport>& newest, absl::Time now);

  // The newest step that a rank has done; 0: none since the start. From the first one on ranks obey
  // a request to stop.
  int64_t newest_step() const { return newest_step_; }
  // Whether a service was silent for its limit.
  bool has_silent_service() const {
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [this](const Node& node) { return node.silent >= limits_.service_limit; });
  }

 private:
  struct Rank {
    bool has_come = false;
    RankReport last;
    int node = 0;
    absl::Duration silent;     // since its ticks grew
    absl::Duration idle;       // since anything else of it changed, stalls of files left out
    absl::Duration gone;       // since its connection closed without an end
    bool is_reported = false;  // its silence
    bool is_stuck = false;     // reported to be, where it is now
    bool is_ended() const { return has_come && last.state.has_ended; }
    bool is_waiting() const {
      return has_come && !last.state.has_ended && last.is_connected && last.state.in_collective;
    }
  };
  struct Node {
    std::string name;
    bool has_come = false;
    absl::Time last;           // of its clock
    absl::Duration silent;     // of the caller's
    bool is_reported = false;  // its silence
    absl::Duration file_wait;
    absl::Duration stall;  // that was reported; 0: none
  };

  void Take(const NodeReport& report);
  void TakeRank(const RankReport& report, int node, absl::Duration step);
  void JudgeNodes(Verdict& verdict);
  void JudgeFiles(Verdict& verdict);
  void JudgeArrival(Verdict& verdict);
  void JudgeEnd(absl::Duration step, Verdict& verdict);
  void JudgeSilence(Verdict& verdict);
  bool JudgeCollective(Verdict& verdict);
  void JudgePhases(bool is_hanging, Verdict& verdict);
  std::string WhyMissing(const Rank& rank, int64_t number) const;
  bool IsExcused() const;  // by a file system that stalls
  static void End(Verdict& verdict, const std::string& why) {
    if (verdict.end.empty()) verdict.end = why;
  }

  const WatchLimits limits_;
  std::vector<Rank> ranks_;
  std::vector<Node> nodes_;
  absl::Time last_look_ = absl::InfinitePast();
  absl::Duration awaited_;       // for ranks that have not come
  int64_t reported_number_ = 0;  // of the collective last reported
  int64_t newest_step_ = 0;
  absl::Duration all_ended_;  // for how long all ranks have
  bool has_ended_ = false;
};

}  // namespace anyorder::liveness
