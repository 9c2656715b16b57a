#include "core/liveness/straggler_finder.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_format.h"

namespace anyorder::liveness {
namespace {

// Enough for two windows and for ranks whose reports come less often.
constexpr size_t kKeptReports = 5 * StragglerFinder::kWindowSteps;

absl::Duration Total(const RankTimes& times) {
  return absl::Nanoseconds(times.compute_ns + times.data_wait_ns + times.communication_ns);
}

double OwnTime(const RankTimes& times) {
  return static_cast<double>(times.compute_ns) + static_cast<double>(times.data_wait_ns);
}

double PerStep(const RankTimes& from, const RankTimes& to) {
  return (OwnTime(to) - OwnTime(from)) / static_cast<double>(to.steps - from.steps);
}

RankPace PaceBetween(const RankTimes& from, const RankTimes& to) {
  const double ms = 1e6 * static_cast<double>(to.steps - from.steps);
  RankPace pace;
  pace.compute_ms = static_cast<double>(to.compute_ns - from.compute_ns) / ms;
  pace.data_wait_ms = static_cast<double>(to.data_wait_ns - from.data_wait_ns) / ms;
  pace.communication_ms = static_cast<double>(to.communication_ns - from.communication_ns) / ms;
  return pace;
}

// The lower one of an even number. REQUIRES: there are some.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Of a part of the pace.
template <typename Part>
double Median(const std::vector<RankPace>& paces, Part part) {
  std::vector<double> values;
  for (const RankPace& pace : paces) values.push_back(part(pace));
  return Median(std::move(values));
}

// The newest report of step `step` or before.
template <typename Reports>
auto NewestUntil(const Reports& reports, int64_t step) {
  const auto after = std::upper_bound(
      reports.begin(), reports.end(), step,
      [](int64_t wanted, const RankTimes& report) { return wanted < report.steps; });
  return after == reports.begin() ? reports.end() : after - 1;
}

// The newest report that a window until `end` can begin with.
template <typename Reports>
auto WindowBefore(const Reports& reports, const RankTimes& end) {
  auto begin = NewestUntil(reports, end.steps - StragglerFinder::kWindowSteps);
  while (begin != reports.end() && Total(end) - Total(*begin) < StragglerFinder::kWindowTime)
    begin = begin == reports.begin() ? reports.end() : begin - 1;
  return begin;
}

}  // namespace

void StragglerFinder::Take(const RankState& state) {
  if (state.rank < 0 || state.rank >= static_cast<int>(ranks_.size())) return;
  Rank& rank = ranks_[state.rank];
  if (rank.process_id != state.process_id) {
    rank = Rank{state.process_id, state.host};
    judged_step_ = 0;
  }
  if (state.times.steps <= (rank.reports.empty() ? 0 : rank.reports.back().steps)) return;
  rank.reports.push_back(state.times);
  if (rank.reports.size() > kKeptReports) rank.reports.pop_front();
}

std::optional<StragglerFinder::Windows> StragglerFinder::WindowsUntil(const Rank& rank,
                                                                      int64_t step) {
  const auto end = NewestUntil(rank.reports, step);
  if (end == rank.reports.end()) return std::nullopt;
  const auto middle = WindowBefore(rank.reports, *end);
  if (middle == rank.reports.end()) return std::nullopt;
  const auto begin = WindowBefore(rank.reports, *middle);
  if (begin == rank.reports.end()) return std::nullopt;
  return Windows{*begin, *middle, *end};
}

// Between two reports the time is taken to have passed evenly. That would spread a single slow step
// over several; so it is done for the median only, and a rank that is judged has its own reports at
// both ends.
std::optional<double> StragglerFinder::OwnTimeUntil(const Rank& rank, int64_t step) {
  const auto before = NewestUntil(rank.reports, step);
  if (before == rank.reports.end()) return std::nullopt;
  if (before->steps == step) return OwnTime(*before);
  const auto after = before + 1;
  if (after == rank.reports.end()) return std::nullopt;
  return OwnTime(*before) + PerStep(*before, *after) * static_cast<double>(step - before->steps);
}

std::optional<double> StragglerFinder::MedianOwnTime(Steps steps) const {
  std::vector<double> times;
  for (const Rank& rank : ranks_) {
    const auto before = OwnTimeUntil(rank, steps.first);
    const auto after = OwnTimeUntil(rank, steps.second);
    if (!before || !after) return std::nullopt;
    times.push_back((*after - *before) / static_cast<double>(steps.second - steps.first));
  }
  return Median(std::move(times));
}

std::optional<bool> StragglerFinder::IsSlow(const RankTimes& from, const RankTimes& to) {
  const Steps steps{from.steps, to.steps};
  auto known = medians_.find(steps);
  if (known == medians_.end()) known = medians_.emplace(steps, MedianOwnTime(steps)).first;
  const std::optional<double>& median = known->second;
  if (!median) return std::nullopt;
  const double own = PerStep(from, to);
  return own > ratio_ * *median && own - *median >= absl::ToDoubleNanoseconds(kLeastExcess);
}

std::vector<StragglerNotice> StragglerFinder::Judge() {
  std::vector<StragglerNotice> notices;
  if (ranks_.size() < 2 || ratio_ == 0) return notices;
  int64_t step = INT64_MAX;
  for (const Rank& rank : ranks_)
    step = std::min(step, rank.reports.empty() ? 0 : rank.reports.back().steps);
  if (step <= judged_step_) return notices;
  judged_step_ = step;
  medians_.clear();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    const auto windows = WindowsUntil(rank, step);
    if (!windows) continue;
    const auto earlier = IsSlow(windows->begin, windows->middle);
    const auto later = IsSlow(windows->middle, windows->end);
    if (!earlier || earlier != later || *later == rank.is_straggler) continue;
    rank.is_straggler = *later;
    const int number = static_cast<int>(i);
    notices.push_back({number, step, /*is_over=*/!rank.is_straggler, Describe(number)});
  }
  return notices;
}

std::vector<RankPace> StragglerFinder::Paces() const {
  std::vector<RankPace> paces;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const std::deque<RankTimes>& reports = ranks_[i].reports;
    if (reports.size() < 2) continue;
    const RankTimes& last = reports.back();
    const auto window = WindowBefore(reports, last);
    paces.push_back(PaceBetween(window == reports.end() ? reports.front() : *window, last));
    paces.back().rank = static_cast<int>(i);
    paces.back().node = ranks_[i].node;
    paces.back().is_straggler = ranks_[i].is_straggler;
  }
  if (paces.empty()) return paces;
  const double median = Median(paces, [](const RankPace& pace) { return pace.own_ms(); });
  for (RankPace& pace : paces)
    if (median > 0) pace.ratio = pace.own_ms() / median;
  return paces;
}

std::string StragglerFinder::Describe(int rank) const {
  const std::vector<RankPace> paces = Paces();
  const auto mine = std::find_if(paces.begin(), paces.end(),
                                 [rank](const RankPace& pace) { return pace.rank == rank; });
  const double compute = Median(paces, [](const RankPace& pace) { return pace.compute_ms; });
  const double wait = Median(paces, [](const RankPace& pace) { return pace.data_wait_ms; });
  const bool is_data = mine->data_wait_ms - wait > mine->compute_ms - compute;
  return absl::StrFormat(
      "rank %d on %s: %s %.1f ms a step, the median is %.1f ms (own time %.2f times the median)",
      rank, mine->node, is_data ? "data wait" : "compute",
      is_data ? mine->data_wait_ms : mine->compute_ms, is_data ? wait : compute, mine->ratio);
}

}  // namespace anyorder::liveness
