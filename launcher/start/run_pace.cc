#include "launcher/start/run_pace.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "ckpt/reader.h"
#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/utc_time.h"
#include "core/base/whole_file.h"
#include "core/train/run/run_directory.h"
#include "launcher/process/new_files.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kKeptRanks = 16;
constexpr size_t kMaxNamings = 100;  // of a start

std::string PacePath(const std::string& run_dir, int64_t attempt) {
  return absl::StrCat(RunDirectory(run_dir).pace, "/", attempt, ".json");
}

std::string PaceJson(int64_t attempt, int64_t ranks, std::vector<liveness::RankPace> paces) {
  std::stable_sort(paces.begin(), paces.end(),
                   [](const auto& a, const auto& b) { return a.own_ms() > b.own_ms(); });
  if (paces.size() > kKeptRanks) paces.resize(kKeptRanks);
  Json json = {{"attempt", attempt}, {"ranks", ranks}, {"slowest", Json::array()}};
  for (const liveness::RankPace& pace : paces)
    VisitPace(pace, MemberWriter(json["slowest"].emplace_back()));
  return DumpJson(json, 1) + "\n";
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
    return absl::StrReplaceAll(label, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
  }

  const std::string run_;
  std::string name_;
  std::string text_;
};

int64_t NumRunning(const std::vector<liveness::NodeReport>& health) {
  int64_t running = 0;
  for (const liveness::NodeReport& node : health)
    for (const liveness::RankReport& rank : node.ranks)
      running += rank.is_connected && !rank.state.has_ended ? 1 : 0;
  return running;
}

void AddTime(const char* name, const char* help, absl::Time time, PrometheusWriter& out) {
  out.Begin(name, "gauge", help);
  out.Add(absl::ToDoubleSeconds(time - absl::UnixEpoch()));
}

void AddRun(const RunFacts& facts, PrometheusWriter& out) {
  out.Begin("anyorder_running", "gauge", "Whether a start of the run is active.");
  out.Add(facts.is_running ? 1 : 0);
  out.Begin("anyorder_attempt", "gauge", "Number of the run's newest start; a restart adds one.");
  out.Add(static_cast<double>(facts.attempt));
  out.Begin("anyorder_ranks", "gauge", "Ranks of the newest start.");
  out.Add(static_cast<double>(facts.ranks));
  out.Begin("anyorder_ranks_running", "gauge", "Ranks that have come up and not ended.");
  out.Add(static_cast<double>(facts.is_running ? NumRunning(facts.health) : 0));
  if (facts.last) {
    out.Begin("anyorder_step", "gauge", "Optimizer steps finished.");
    out.Add(static_cast<double>(facts.last->step));
    out.Begin("anyorder_loss", "gauge", "Training loss of the last step in nats per target.");
    out.Add(facts.last->loss);
    out.Begin("anyorder_tokens_per_second", "gauge", "Throughput of the last step.");
    out.Add(facts.last->tokens_per_second);
    AddTime("anyorder_step_timestamp_seconds", "When the last step ended, in Unix time.",
            ParseUtcTime(facts.last->time).value_or(absl::UnixEpoch()), out);
  }
  if (facts.committed_step) {
    out.Begin("anyorder_checkpoint_committed_step", "gauge", "Step of the newest checkpoint.");
    out.Add(static_cast<double>(*facts.committed_step));
    AddTime("anyorder_checkpoint_committed_timestamp_seconds",
            "When the newest checkpoint was committed, in Unix time.", facts.committed, out);
  }
}

Labels LabelsOf(int rank, const std::string& node) {
  return {{"rank", absl::StrCat(rank)}, {"node", node}};
}

// Each once: until MPI numbers them, two may have the same number.
using Ranks = std::map<int, const liveness::RankState*>;

void AddCounter(const char* name, const char* help, const Ranks& ranks, auto value,
                PrometheusWriter& out) {
  out.Begin(name, "counter", help);
  for (const auto& [rank, state] : ranks)
    out.Add(static_cast<double>(value(*state)), LabelsOf(rank, state->host));
}

void AddCounters(const std::vector<liveness::NodeReport>& health, PrometheusWriter& out) {
  Ranks ranks;
  for (const liveness::NodeReport& node : health)
    for (const liveness::RankReport& rank : node.ranks) ranks[rank.state.rank] = &rank.state;
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
    AddCounter(
        part.name, part.help, ranks,
        [ns = part.ns](const auto& state) { return 1e-9 * static_cast<double>(state.times.*ns); },
        out);
  }
  AddCounter(
      "anyorder_rank_ticks_total", "Grows several times a second as long as a rank's process runs.",
      ranks, [](const auto& state) { return state.ticks; }, out);
}

void AddRanks(const RunFacts& facts, PrometheusWriter& out) {
  AddCounters(facts.health, out);
  out.Begin("anyorder_rank_own_time_ratio", "gauge",
            "Compute and data wait of a rank's last steps to the median rank's.");
  for (const liveness::RankPace& pace : facts.paces)
    out.Add(pace.ratio, LabelsOf(pace.rank, pace.node));
  out.Begin("anyorder_straggler", "gauge", "1 for a rank that keeps the others waiting.");
  for (const liveness::RankPace& pace : facts.paces)
    out.Add(pace.is_straggler ? 1 : 0, LabelsOf(pace.rank, pace.node));
  out.Begin("anyorder_file_system_stalled_seconds", "gauge",
            "For how long a node's file call in the run directory has waited.");
  for (const liveness::NodeReport& node : facts.health)
    out.Add(absl::ToDoubleSeconds(node.file_wait), {{"node", node.host}});
}

}  // namespace

absl::StatusOr<AttemptPace> ReadAttemptPace(const std::string& run_dir, int64_t attempt) {
  const std::string path = PacePath(run_dir, attempt);
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxTableBytes));
  const auto json = TryParseJson<Json>(text);
  const Json* const slowest = FindMember(json, "slowest", &Json::is_array);
  if (slowest == nullptr) return DataLoss("'", path, "' does not hold the pace of ranks");
  AttemptPace pace{attempt, static_cast<int64_t>(slowest->size()), {}};
  MemberReader{json}("ranks", pace.ranks);
  for (const Json& row : *slowest) VisitPace(pace.slowest.emplace_back(), MemberReader(row));
  return pace;
}

std::string DescribePace(const liveness::RankPace& rank) {
  return absl::StrFormat(
      "rank %d on %s: compute %.1f ms, data wait %.1f ms, communication %.1f ms a step; own time "
      "%.2f times the median%s",
      rank.rank, rank.node, rank.compute_ms, rank.data_wait_ms, rank.communication_ms, rank.ratio,
      rank.is_straggler ? ", a straggler" : "");
}

std::string PrometheusText(const RunFacts& facts) {
  PrometheusWriter out(facts.run_id);
  AddRun(facts, out);
  AddRanks(facts, out);
  return out.text();
}

struct PaceRecorder::State {
  explicit State(PaceRecorderOptions given)
      : options(std::move(given)),
        metrics(RunDirectory(options.run_dir).metrics),
        finder(options.straggler_ratio, static_cast<int>(options.ranks)) {}

  void WriteUntilEnd();
  // What is to be said, "" for nothing.
  std::string Note(const liveness::StragglerNotice& notice) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  RunFacts Facts() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Write(RunFacts facts);

  const PaceRecorderOptions options;
  // Of the writing thread.
  MetricsStream metrics;
  std::optional<StepMetrics> last;
  bool has_warned = false;

  Mutex mutex;
  bool is_stopping ABSL_GUARDED_BY(mutex) = false;
  bool writes_last ABSL_GUARDED_BY(mutex) = false;
  bool is_urgent ABSL_GUARDED_BY(mutex) = false;
  bool has_ended ABSL_GUARDED_BY(mutex) = false;  // the thread
  liveness::StragglerFinder finder ABSL_GUARDED_BY(mutex);
  std::vector<liveness::NodeReport> newest ABSL_GUARDED_BY(mutex);
  std::vector<ledger::Straggler> stragglers ABSL_GUARDED_BY(mutex);
};

PaceRecorder::PaceRecorder(PaceRecorderOptions options)
    : state_(std::make_shared<State>(std::move(options))),
      writer_([state = state_] { state->WriteUntilEnd(); }) {}

PaceRecorder::~PaceRecorder() { End(/*writes_last=*/false); }

void PaceRecorder::End(bool writes_last) {
  if (!writer_.joinable()) return;
  State& state = *state_;
  state.mutex.Lock();
  state.is_stopping = true;
  state.writes_last = writes_last;
  const bool has_ended = state.mutex.AwaitWithTimeout(
      [&state]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mutex) { return state.has_ended; },
      state.options.end_limit);
  state.writes_last = false;
  state.mutex.Unlock();
  if (has_ended) return writer_.join();
  writer_.detach();
  LogWarning(absl::StrCat("metrics.prom is not up to date: the file system has not answered for ",
                          absl::FormatDuration(state_->options.end_limit)));
}

std::vector<std::string> PaceRecorder::Take(const std::vector<liveness::NodeReport>& newest) {
  State& state = *state_;
  const MutexLock lock(&state.mutex);
  state.newest = newest;
  for (const liveness::NodeReport& node : newest)
    for (const liveness::RankReport& rank : node.ranks) state.finder.Take(rank.state);
  std::vector<std::string> warnings;
  for (const liveness::StragglerNotice& notice : state.finder.Judge()) {
    std::string warning = state.Note(notice);
    if (!warning.empty()) warnings.push_back(std::move(warning));
  }
  state.is_urgent = state.is_urgent || !warnings.empty();
  return warnings;
}

std::vector<ledger::Straggler> PaceRecorder::Stragglers() const {
  const MutexLock lock(&state_->mutex);
  return state_->stragglers;
}

std::string PaceRecorder::State::Note(const liveness::StragglerNotice& notice) {
  if (!notice.is_over) {
    if (stragglers.size() >= kMaxNamings) return "";
    stragglers.push_back({options.attempt, notice.step, -1, notice.rank, notice.detail});
    return absl::StrCat("straggler after step ", notice.step, ": ", notice.detail);
  }
  const auto named =
      std::find_if(stragglers.rbegin(), stragglers.rend(),
                   [&](const auto& straggler) { return straggler.rank == notice.rank; });
  if (named == stragglers.rend() || named->last_step >= 0) return "";  // not told of
  named->last_step = notice.step;
  return absl::StrCat("no longer a straggler, after step ", notice.step, ": ", notice.detail);
}

void PaceRecorder::State::WriteUntilEnd() {
  const auto is_due = [this]()
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return is_stopping || is_urgent; };
  const MutexLock lock(&mutex);
  for (bool is_last = false; !is_last;) {
    mutex.AwaitWithTimeout(is_due, options.interval);
    is_last = is_stopping;
    is_urgent = false;
    if (is_last && !writes_last) break;
    RunFacts facts = Facts();
    facts.is_running = !is_last;
    mutex.Unlock();
    Write(std::move(facts));
    mutex.Lock();
  }
  has_ended = true;
}

RunFacts PaceRecorder::State::Facts() const {
  return {.run_id = options.run_id,
          .attempt = options.attempt,
          .ranks = options.ranks,
          .health = newest,
          .paces = finder.Paces()};
}

void PaceRecorder::State::Write(RunFacts facts) {
  absl::Status status =
      metrics.Read([this] { last.reset(); },
                   [this](StepMetrics line, absl::string_view) { last = std::move(line); });
  facts.last = last;
  for (const int64_t step : ckpt::ListSteps(options.run_dir).value_or(std::vector<int64_t>())) {
    const std::string checkpoint = ckpt::CheckpointPath(options.run_dir, step);
    struct stat info {};
    if (!IsFile(JoinPath(checkpoint, ckpt::kManifestName)) ||
        ::stat(checkpoint.c_str(), &info) != 0)
      continue;
    facts.committed_step = step;
    facts.committed = absl::TimeFromTimespec(info.st_mtim);
    break;
  }
  status.Update(ReplaceFile(RunDirectory(options.run_dir).prometheus, PrometheusText(facts)));
  if (!facts.paces.empty()) {
    status.Update(MakeDirectories(RunDirectory(options.run_dir).pace));
    status.Update(ReplaceFile(PacePath(options.run_dir, options.attempt),
                              PaceJson(options.attempt, options.ranks, facts.paces)));
  }
  if (!status.ok() && !std::exchange(has_warned, true))
    LogWarning(absl::StrCat("metrics.prom is not up to date: ", status.message()));
}

}  // namespace anyorder::launcher
