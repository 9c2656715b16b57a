#include "launcher/start/run_pace.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

#include "ckpt/reader.h"
#include "core/base/file_system.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/train/run/run_directory.h"
#include "launcher/process/new_directory.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kKeptRanks = 16;
constexpr size_t kMaxNamings = 100;  // of a start

std::string PacePath(const std::string& run_dir, int64_t attempt) {
  return absl::StrCat(RunDirectory(run_dir).pace, "/", attempt, ".json");
}

template <typename Pace, typename Visitor>
void VisitPace(Pace& pace, Visitor visit) {
  visit("rank", pace.rank);
  visit("node", pace.node);
  visit("compute_ms", pace.compute_ms);
  visit("data_wait_ms", pace.data_wait_ms);
  visit("communication_ms", pace.communication_ms);
  visit("ratio", pace.ratio);
  visit("straggler", pace.is_straggler);
}

std::map<int, std::string> NodesOf(const liveness::RunHealth& health) {
  std::map<int, std::string> nodes;
  for (const liveness::NodeReport& node : health.nodes)
    for (const liveness::RankReport& rank : node.ranks) nodes[rank.state.rank] = rank.state.host;
  return nodes;
}

std::string PaceJson(int64_t attempt, int64_t ranks, std::vector<liveness::RankPace> paces,
                     const liveness::RunHealth& health) {
  std::stable_sort(paces.begin(), paces.end(),
                   [](const auto& a, const auto& b) { return a.own_ms() > b.own_ms(); });
  if (paces.size() > kKeptRanks) paces.resize(kKeptRanks);
  const std::map<int, std::string> nodes = NodesOf(health);
  Json json = {{"attempt", attempt}, {"ranks", ranks}, {"slowest", Json::array()}};
  for (const liveness::RankPace& pace : paces) {
    const auto node = nodes.find(pace.rank);
    const RankSummary summary{pace, node == nodes.end() ? "" : node->second};
    Json& row = json["slowest"].emplace_back();
    VisitPace(summary, [&row](const char* key, const auto& value) { row[key] = value; });
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

using Labels = std::vector<std::pair<const char*, std::string>>;

class PrometheusWriter {
 public:
  explicit PrometheusWriter(const std::string& run) : run_(run) {}

  // Samples of one name stand together, after this.
  void Begin(const char* name, const char* type, const char* help) {
    name_ = name;
    absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  void Add(double value, const Labels& labels = {}) {
    absl::StrAppend(&text_, name_, "{run=\"", Escape(run_), "\"");
    for (const auto& [key, label] : labels)
      absl::StrAppend(&text_, ",", key, "=\"", Escape(label), "\"");
    absl::StrAppend(&text_, "} ", Number(value), "\n");
  }
  const std::string& text() const { return text_; }

 private:
  static std::string Number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
    return absl::StrFormat("%.15g", value);
  }
  static std::string Escape(absl::string_view label) {
    std::string escaped;
    for (const char c : label) {
      if (c == '\\' || c == '"') escaped += '\\';
      escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return escaped;
  }

  const std::string run_;
  std::string name_;
  std::string text_;
};

void AddRun(const RunFacts& facts, PrometheusWriter& out) {
  out.Begin("anyorder_running", "gauge", "Whether a start of the run is active.");
  out.Add(facts.is_running ? 1 : 0);
  out.Begin("anyorder_attempt", "gauge", "Number of the run's newest start.");
  out.Add(static_cast<double>(facts.attempt));
  if (facts.last) {
    out.Begin("anyorder_step", "gauge", "Optimizer steps finished.");
    out.Add(static_cast<double>(facts.last->step));
    out.Begin("anyorder_loss", "gauge", "Training loss of the last step in nats per target.");
    out.Add(facts.last->loss);
    out.Begin("anyorder_tokens_per_second", "gauge", "Throughput of the last step.");
    out.Add(facts.last->tokens_per_second);
  }
  if (facts.committed_step) {
    out.Begin("anyorder_checkpoint_committed_step", "gauge", "Step of the newest checkpoint.");
    out.Add(static_cast<double>(*facts.committed_step));
  }
}

Labels LabelsOf(const liveness::RankState& state) {
  return {{"rank", absl::StrCat(state.rank)}, {"node", state.host}};
}

void AddRankTimes(const RunFacts& facts, PrometheusWriter& out) {
  struct Part {
    const char *name, *help;
    int64_t liveness::RankTimes::*ns;
  };
  for (const Part& part :
       {Part{"anyorder_rank_compute_seconds_total",
             "Time of a rank's steps without waiting for data and communication.",
             &liveness::RankTimes::compute_ns},
        Part{"anyorder_rank_data_wait_seconds_total", "Time of a rank's steps waiting for data.",
             &liveness::RankTimes::data_wait_ns},
        Part{"anyorder_rank_communication_seconds_total",
             "Time of a rank's steps in collectives, waiting for slower ranks included.",
             &liveness::RankTimes::communication_ns}}) {
    out.Begin(part.name, "counter", part.help);
    for (const liveness::NodeReport& node : facts.health.nodes)
      for (const liveness::RankReport& rank : node.ranks)
        out.Add(static_cast<double>(rank.state.times.*part.ns) / 1e9, LabelsOf(rank.state));
  }
}

void AddRanks(const RunFacts& facts, PrometheusWriter& out) {
  AddRankTimes(facts, out);
  out.Begin("anyorder_rank_last_tick_timestamp_seconds", "gauge",
            "When the launcher last learned that a rank runs, in Unix time.");
  for (const liveness::NodeReport& node : facts.health.nodes) {
    for (const liveness::RankReport& rank : node.ranks) {
      const auto tick = facts.last_ticks.find(rank.state.rank);
      if (tick != facts.last_ticks.end())
        out.Add(absl::ToDoubleSeconds(tick->second - absl::UnixEpoch()), LabelsOf(rank.state));
    }
  }
  out.Begin("anyorder_straggler", "gauge", "1 for a rank that keeps the others waiting.");
  const std::map<int, std::string> nodes = NodesOf(facts.health);
  for (const liveness::RankPace& pace : facts.paces) {
    const auto node = nodes.find(pace.rank);
    out.Add(pace.is_straggler ? 1 : 0,
            {{"rank", absl::StrCat(pace.rank)}, {"node", node == nodes.end() ? "" : node->second}});
  }
  out.Begin("anyorder_file_system_stalled_seconds", "gauge",
            "For how long a node's file call in the run directory has waited.");
  for (const liveness::NodeReport& node : facts.health.nodes)
    out.Add(absl::ToDoubleSeconds(node.file_wait), {{"node", node.host}});
}

}  // namespace

absl::StatusOr<AttemptPace> ReadAttemptPace(const std::string& run_dir, int64_t attempt) {
  const std::string path = PacePath(run_dir, attempt);
  ANYORDER_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto slowest = json.find("slowest");
  if (!json.is_object() || slowest == json.end() || !slowest->is_array())
    return DataLoss("'", path, "' does not hold the pace of ranks");
  AttemptPace pace{attempt, static_cast<int64_t>(slowest->size()), {}};
  if (const auto ranks = json.find("ranks"); ranks != json.end() && ranks->is_number_integer())
    pace.ranks = ranks->get<int64_t>();
  for (const Json& row : *slowest) {
    VisitPace(pace.slowest.emplace_back(), [&row](const char* key, auto& value) {
      const auto it = row.is_object() ? row.find(key) : row.end();
      if (it == row.end()) return;
      using Value = std::decay_t<decltype(value)>;
      const bool fits = std::is_same_v<Value, std::string> ? it->is_string()
                        : std::is_same_v<Value, bool>      ? it->is_boolean()
                                                           : it->is_number();
      if (fits) value = it->template get<Value>();
    });
  }
  return pace;
}

std::string Describe(const RankSummary& rank) {
  return absl::StrFormat(
      "rank %d on %s: compute %.3g, data wait %.3g, communication %.3g ms a step; own time %.2f "
      "times the median%s",
      rank.rank, rank.node, rank.compute_ms, rank.data_wait_ms, rank.communication_ms, rank.ratio,
      rank.is_straggler ? ", a straggler" : "");
}

std::string PrometheusText(const RunFacts& facts) {
  PrometheusWriter out(facts.run_id);
  AddRun(facts, out);
  AddRanks(facts, out);
  return out.text();
}

PaceRecorder::PaceRecorder(PaceRecorderOptions options)
    : options_(std::move(options)),
      metrics_(RunDirectory(options_.run_dir).metrics),
      finder_(options_.straggler_ratio, static_cast<int>(options_.ranks)) {
  writer_.emplace(options_.interval, [this] { Write(/*is_running=*/true); });
}

PaceRecorder::~PaceRecorder() {
  writer_.reset();
  Write(/*is_running=*/false);
}

std::vector<std::string> PaceRecorder::Take(const liveness::RunHealth& newest) {
  const std::lock_guard<std::mutex> lock(mutex_);
  newest_ = newest;
  for (const liveness::NodeReport& node : newest.nodes) {
    for (const liveness::RankReport& rank : node.ranks) {
      finder_.Take(rank.state);
      const auto known = ticks_.find(rank.state.rank);
      if (known != ticks_.end() && known->second == rank.state.ticks) continue;
      ticks_[rank.state.rank] = rank.state.ticks;
      last_ticks_[rank.state.rank] = absl::Now();
    }
  }
  std::vector<std::string> warnings;
  for (const liveness::StragglerNotice& notice : finder_.Judge()) {
    const std::string who = absl::StrCat("rank ", notice.rank, " on ", NodesOf(newest)[notice.rank],
                                         ": ", notice.detail);
    if (notice.is_over) {
      const auto named =
          std::find_if(stragglers_.rbegin(), stragglers_.rend(),
                       [&](const auto& straggler) { return straggler.rank == notice.rank; });
      if (named == stragglers_.rend() || named->last_step >= 0) continue;  // not told of
      named->last_step = notice.step;
      warnings.push_back(
          absl::StrCat("no longer a straggler, after step ", notice.step, ": ", who));
    } else if (stragglers_.size() < kMaxNamings) {
      stragglers_.push_back({options_.attempt, notice.step, -1, notice.rank, who});
      warnings.push_back(absl::StrCat("straggler after step ", notice.step, ": ", who));
    }
  }
  return warnings;
}

std::vector<ledger::Straggler> PaceRecorder::Stragglers() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stragglers_;
}

void PaceRecorder::Write(bool is_running) {
  RunFacts facts;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    facts.health = newest_;
    facts.paces = finder_.Paces();
    facts.last_ticks = last_ticks_;
  }
  facts.run_id = options_.run_id;
  facts.attempt = options_.attempt;
  facts.is_running = is_running;
  const RunDirectory paths(options_.run_dir);
  absl::Status status = metrics_.Read([this] { last_.reset(); },
                                      [this](StepMetrics line) { last_ = std::move(line); });
  facts.last = last_;
  const auto steps = ckpt::ListSteps(options_.run_dir);
  if (steps.ok() && !steps->empty()) facts.committed_step = steps->front();
  status.Update(WriteFileAtomically(paths.prometheus, PrometheusText(facts)));
  if (!facts.paces.empty()) {
    status.Update(MakeDirectories(paths.pace));
    status.Update(
        WriteFileAtomically(PacePath(options_.run_dir, options_.attempt),
                            PaceJson(options_.attempt, options_.ranks, facts.paces, facts.health)));
  }
  if (!status.ok() && !std::exchange(has_warned_, true))
    LogWarning(absl::StrCat("metrics.prom is not up to date: ", status.message()));
}

}  // namespace anyorder::launcher
