#include "core/liveness/rank_watchdog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace anyorder::liveness {
namespace {

constexpr absl::Duration kLargestStep = absl::Seconds(1);
// mpirun and srun see a rank's death themselves; this is for one that they do not see.
constexpr absl::Duration kGoneLimit = absl::Seconds(20);
constexpr absl::Duration kStallNoticed = absl::Seconds(2);
constexpr absl::Duration kStallReported = absl::Seconds(10);
constexpr size_t kMaxNamed = 8;  // ranks in one line

std::string Text(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(100)));
}

absl::Duration Step(absl::Duration passed) {
  return std::clamp(passed, absl::ZeroDuration(), kLargestStep);
}

// "a; b; and 5 more"
std::string JoinSome(const std::vector<std::string>& texts, absl::string_view divider) {
  const size_t named = std::min(texts.size(), kMaxNamed);
  std::string text = absl::StrJoin(texts.begin(), texts.begin() + named, divider);
  if (named < texts.size()) absl::StrAppend(&text, divider, "and ", texts.size() - named, " more");
  return text;
}

bool HasMoved(const RankState& before, const RankState& now) {
  return before.process_id != now.process_id || before.num_phases != now.num_phases ||
         before.progress != now.progress || before.number != now.number ||
         before.in_collective != now.in_collective || before.times.steps != now.times.steps ||
         before.has_ended != now.has_ended;
}

}  // namespace

RankWatchdog::RankWatchdog(const WatchLimits& limits, int num_ranks, std::vector<std::string> nodes)
    : limits_(limits), ranks_(num_ranks), nodes_(nodes.size()) {
  for (size_t i = 0; i < nodes.size(); ++i) nodes_[i].name = std::move(nodes[i]);
}

Verdict RankWatchdog::Judge(const std::vector<NodeReport>& newest, absl::Time now) {
  Verdict verdict;
  if (has_ended_) return verdict;
  const absl::Duration step = Step(now - last_look_);
  if (last_look_ != absl::InfinitePast()) {
    awaited_ += step;
    for (Node& node : nodes_) node.silent += step;
  }
  last_look_ = now;
  for (const NodeReport& report : newest) Take(report);
  JudgeFiles(verdict);
  JudgeNodes(verdict);
  JudgeArrival(verdict);
  JudgeEnd(step, verdict);
  JudgeSilence(verdict);
  const bool is_hanging = JudgeCollective(verdict);
  JudgePhases(is_hanging, verdict);
  has_ended_ = !verdict.end.empty();
  return verdict;
}

void RankWatchdog::Take(const NodeReport& report) {
  if (report.node < 0 || report.node >= static_cast<int>(nodes_.size())) return;
  Node& node = nodes_[report.node];
  if (node.has_come && report.now == node.last) return;  // seen before
  const absl::Duration step = node.has_come ? Step(report.now - node.last) : absl::ZeroDuration();
  node.has_come = true;
  node.last = report.now;
  node.silent = absl::ZeroDuration();
  node.is_reported = false;
  node.file_wait = report.file_wait;
  for (const RankReport& rank : report.ranks) TakeRank(rank, report.node, step);
}

void RankWatchdog::TakeRank(const RankReport& report, int node, absl::Duration step) {
  const RankState& state = report.state;
  if (state.rank < 0 || state.rank >= static_cast<int>(ranks_.size())) return;
  Rank& rank = ranks_[state.rank];
  const bool is_new = !rank.has_come || rank.last.state.process_id != state.process_id;
  if (is_new || state.ticks != rank.last.state.ticks) {
    rank.silent = absl::ZeroDuration();
    rank.is_reported = false;
  } else {
    rank.silent += step;
  }
  if (is_new || HasMoved(rank.last.state, state)) {
    rank.idle = absl::ZeroDuration();
    rank.is_stuck = false;
  } else if (!IsExcused()) {
    rank.idle += step;
  }
  rank.gone = report.is_connected || state.has_ended ? absl::ZeroDuration() : rank.gone + step;
  rank.has_come = true;
  rank.node = node;
  rank.last = report;
  newest_step_ = std::max(newest_step_, state.times.steps);
}

bool RankWatchdog::IsExcused() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [this](const Node& node) {
    return node.file_wait >= kStallNoticed && node.file_wait < limits_.file_stall_limit;
  });
}

void RankWatchdog::JudgeFiles(Verdict& verdict) {
  for (Node& node : nodes_) {
    if (node.file_wait >= kStallReported && node.stall == absl::ZeroDuration()) {
      verdict.reports.push_back(absl::StrCat(
          "the run directory's file system stalls on ", node.name,
          ": a file call of its checkpoint service has waited for ", Text(node.file_wait),
          "; ranks that wait for it are not ended before ", Text(limits_.file_stall_limit)));
    }
    if (node.file_wait < kStallNoticed && node.stall > absl::ZeroDuration()) {
      verdict.reports.push_back(absl::StrCat("the run directory's file system answers again on ",
                                             node.name, ", after ", Text(node.stall)));
      node.stall = absl::ZeroDuration();
    }
    if (node.file_wait >= kStallReported) node.stall = node.file_wait;
  }
}

void RankWatchdog::JudgeNodes(Verdict& verdict) {
  for (Node& node : nodes_) {
    const absl::Duration limit = node.has_come ? limits_.service_limit : limits_.start_limit;
    if (node.silent < limit / 2) continue;
    const std::string text =
        absl::StrCat("nothing heard from the checkpoint service on ", node.name, " for ",
                     Text(node.silent), ": it is stopped, or its node or network is lost");
    if (!node.is_reported) verdict.reports.push_back(text);
    node.is_reported = true;
    if (node.silent >= limit) End(verdict, text);
  }
}

void RankWatchdog::JudgeArrival(Verdict& verdict) {
  if (awaited_ < limits_.start_limit) return;
  std::vector<std::string> missing;
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (!ranks_[i].has_come) missing.push_back(absl::StrCat(i));
  if (missing.empty()) return;
  End(verdict, absl::StrCat("rank ", JoinSome(missing, ", "), " of ", ranks_.size(),
                            " has not come up within ", Text(awaited_)));
}

// The caller asks for as long as mpirun or srun is there.
void RankWatchdog::JudgeEnd(absl::Duration step, Verdict& verdict) {
  const bool have_all_ended =
      std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.is_ended(); });
  all_ended_ = have_all_ended ? all_ended_ + step : absl::ZeroDuration();
  if (all_ended_ < std::max(limits_.service_limit, kGoneLimit)) return;
  End(verdict, absl::StrCat("all ranks have ended ", Text(all_ended_),
                            " ago, and what started them (mpirun or srun) has not"));
}

void RankWatchdog::JudgeSilence(Verdict& verdict) {
  for (Rank& rank : ranks_) {
    if (!rank.has_come || rank.is_ended()) continue;
    if (rank.gone >= kGoneLimit) {
      End(verdict, absl::StrCat(rank.last.state.ToString(), ", is lost: its process ended ",
                                Text(rank.gone), " ago without a word"));
    }
    if (!rank.last.is_connected || rank.silent < limits_.report_after) continue;
    const std::string text = absl::StrCat(rank.last.state.ToString(),
                                          ", hangs: no sign of life for ", Text(rank.silent));
    if (!rank.is_reported) verdict.reports.push_back(text);
    rank.is_reported = true;
    if (rank.silent >= limits_.end_after) End(verdict, text);
  }
}

// Why collective `number` waits for this rank, "" if it does not.
std::string RankWatchdog::WhyMissing(const Rank& rank, int64_t number) const {
  if (rank.is_ended()) return "has ended";
  if (rank.gone > absl::ZeroDuration())
    return absl::StrCat("lost: its process ended ", Text(rank.gone), " ago");
  if (const Node& node = nodes_[rank.node]; node.silent >= limits_.report_after / 2)
    return absl::StrCat("lost or stopped with its node: nothing heard for ", Text(node.silent));
  if (rank.silent >= limits_.report_after / 2)
    return absl::StrCat("stopped or lost: no sign of life for ", Text(rank.silent));
  if (rank.last.state.number < number) return "runs, but has not reached it";
  return "";
}

// One report for all who wait: in the oldest collective that somebody has waited in for long.
// Whether there is one.
bool RankWatchdog::JudgeCollective(Verdict& verdict) {
  const Rank* first = nullptr;
  const auto is_before = [](const Rank& a, const Rank& b) {
    return a.last.state.number != b.last.state.number ? a.last.state.number < b.last.state.number
                                                      : a.idle > b.idle;
  };
  for (const Rank& rank : ranks_) {
    // One that is stopped in a collective does not wait: the others may be in a later one.
    if (rank.is_waiting() && rank.silent < limits_.report_after / 2 &&
        rank.idle >= limits_.report_after && (first == nullptr || is_before(rank, *first)))
      first = &rank;
  }
  if (first == nullptr) return false;
  const RankState& state = first->last.state;
  absl::Duration waited = first->idle;
  int num_waiting = 0;
  std::vector<std::string> missing;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (!rank.has_come) {
      missing.push_back(absl::StrCat("rank ", i, ", which never reported"));
      continue;
    }
    const std::string why = WhyMissing(rank, state.number);
    if (why.empty()) {
      num_waiting += rank.is_waiting() && rank.last.state.number == state.number;
      continue;
    }
    missing.push_back(absl::StrCat(rank.last.state.ToString(), ", ", why));
    // One that loads for long, and goes on, is worth waiting for.
    if (rank.last.state.progress > 0 && !rank.is_ended() && rank.last.state.times.steps == 0)
      waited = std::min(waited, rank.idle);
  }
  if (waited < limits_.report_after) return false;
  const std::string text =
      absl::StrCat("collective ", state.number, " (", state.collective, ") has run for ",
                   Text(waited), " in phase '", state.phase, "'; ", num_waiting, " of ",
                   ranks_.size(), num_waiting == 1 ? " ranks waits in it" : " ranks wait in it",
                   missing.empty() ? "; all ranks run and are in it"
                                   : absl::StrCat("; missing: ", JoinSome(missing, "; ")));
  if (reported_number_ != state.number) verdict.reports.push_back(text);
  reported_number_ = state.number;
  if (waited >= limits_.end_after) End(verdict, text);
  return true;
}

// Of ranks that work alone. Trained ones are only warned of, and late: a step or an evaluation may
// be long where nobody waits for it.
void RankWatchdog::JudgePhases(bool is_hanging, Verdict& verdict) {
  std::vector<std::string> stuck;
  bool is_new = false;
  bool is_over = false;
  for (Rank& rank : ranks_) {
    const RankState& state = rank.last.state;
    if (!rank.has_come || state.has_ended || !rank.last.is_connected || state.in_collective)
      continue;
    if (rank.silent >= limits_.report_after) continue;  // named as frozen
    const bool has_trained = state.times.steps > 0;
    if (rank.idle <
        (has_trained ? limits_.end_after : std::min(limits_.report_after, limits_.start_limit)))
      continue;
    stuck.push_back(absl::StrCat(state.ToString(), ", no progress for ", Text(rank.idle)));
    is_new = is_new || !rank.is_stuck;
    rank.is_stuck = true;
    is_over = is_over || (!has_trained && rank.idle >= limits_.start_limit);
  }
  const std::string text = absl::StrCat("stuck or slow: ", JoinSome(stuck, "; "));
  if (is_new && !is_hanging) verdict.reports.push_back(text);  // a hang names them already
  if (is_over) End(verdict, text);
}

}  // namespace anyorder::liveness
