#include "launcher/inspect/status_report.h"

#include <algorithm>
#include <cstdio>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/counted.h"
#include "core/base/json_members.h"
#include "core/base/machine_memory.h"
#include "core/base/status.h"
#include "launcher/process/child_process.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownCheckpoints = 3;
constexpr size_t kShownRecords = 5;
constexpr size_t kShownNodes = 8;
constexpr size_t kShownRanks = 2;     // the slowest
constexpr size_t kMaxShownRanks = 4;  // stragglers included
// A run whose last step is older than this many steps, and than this, gets a warning.
constexpr int64_t kSilentSteps = 20;
constexpr absl::Duration kSilent = absl::Minutes(1);

std::string UtcTime(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

Json DescribeSlurm(const SlurmView& slurm) {
  Json json = {{"jobs", Json::array()}, {"forgotten", slurm.forgotten}};
  for (const SlurmJob& job : slurm.jobs) {
    Json& row = json["jobs"].emplace_back(Json{{"id", job.id},
                                               {"state", job.state},
                                               {"reason", job.reason},
                                               {"partition", job.partition},
                                               {"nodes", job.nodes},
                                               {"num_nodes", job.num_nodes},
                                               {"restarts", job.restarts},
                                               {"dependency", job.dependency},
                                               {"exit_code", job.exit_code}});
    if (job.run_time) row["seconds_run"] = absl::ToDoubleSeconds(*job.run_time);
    if (job.time_left) row["seconds_left"] = absl::ToDoubleSeconds(*job.time_left);
    if (job.start) row["expected_start"] = UtcTime(*job.start);
  }
  json["problem"] = slurm.problem;
  return json;
}

void DescribeNow(const StatusFacts& facts, Json& json) {
  if (facts.last) {
    json["loss"] = facts.last->loss;
    json["tokens_per_second"] = facts.tokens_per_second;
    json["tokens_per_second_per_device"] = facts.tokens_per_second_per_device;
    if (facts.mfu > 0) json["mfu"] = facts.mfu;
    for (const NamedMean& mean : facts.last->means)
      if (IsAccuracy(mean.name)) json[mean.name] = mean.value;
  }
  if (facts.eval_loss) {
    json["eval_loss"] = *facts.eval_loss;
    json["eval_step"] = facts.eval_step;
    for (const NamedMean& mean : facts.eval_means)
      if (IsAccuracy(mean.name)) json[absl::StrCat("eval_", mean.name)] = mean.value;
  }
  if (facts.per_step) json["seconds_per_step"] = absl::ToDoubleSeconds(*facts.per_step);
  if (facts.left) json["eta_seconds"] = absl::ToDoubleSeconds(*facts.left);
  if (facts.silence) json["seconds_since_step"] = absl::ToDoubleSeconds(*facts.silence);
  if (facts.commit) {
    json["committed_step"] = facts.commit->step;
    json["committed_bytes"] = facts.commit->num_bytes;
    json["committed_age_seconds"] = absl::ToDoubleSeconds(facts.commit->age);
  }
}

Json Describe(const StatusFacts& facts) {
  Json json = {{"run_dir", facts.run_dir}, {"run_id", facts.run_id}, {"time", UtcTime(facts.now)},
               {"state", facts.state},     {"owner", facts.owner},   {"step", facts.step},
               {"steps", facts.steps},     {"starts", facts.starts}};
  if (!facts.error.empty()) json["error"] = facts.error;
  if (facts.ranks >= 0) json["ranks"] = facts.ranks;
  if (!facts.nodes.empty()) json["nodes"] = facts.nodes;
  DescribeNow(facts, json);
  json["restarts"] = facts.restarts;
  json["redone_steps"] = facts.redone_steps;
  json["skipped_steps"] = facts.skipped_steps;
  json["wall_seconds"] = absl::ToDoubleSeconds(facts.wall);
  json["training_seconds"] = absl::ToDoubleSeconds(facts.training);
  json["evaluation_seconds"] = absl::ToDoubleSeconds(facts.evaluation);
  json["goodput"] = facts.Goodput();
  if (facts.pace) {
    json["slowest_ranks"] = Json::array();
    for (const liveness::RankPace& rank : facts.pace->slowest)
      VisitPace(rank, MemberWriter(json["slowest_ranks"].emplace_back()));
  }
  if (facts.best.step >= 0) {
    json["best_step"] = facts.best.step;
    json["best_value"] = facts.best.value;
    json["best_metric"] = facts.best.metric;
  }
  json["checkpoints"] = Json::array();
  for (const ckpt::CheckpointInfo& info : facts.checkpoints)
    json["checkpoints"].push_back({{"step", info.step},
                                   {"bytes", info.num_bytes},
                                   {"opens", info.opens},
                                   {"suspect", facts.IsSuspect(info.step)}});
  if (facts.is_under_slurm) json["slurm"] = DescribeSlurm(facts.slurm);
  return json;
}

// "PENDING (Resources), expected to start ..."
std::string Words(const SlurmJob& job) {
  std::string text = absl::StrCat("job ", job.id, " ", job.state);
  if (!job.reason.empty()) absl::StrAppend(&text, " (", job.reason, ")");
  if (!job.nodes.empty()) {
    absl::StrAppend(&text, " on ", job.nodes);
  } else if (job.num_nodes > 0) {
    absl::StrAppend(&text, ", wants ", Counted(job.num_nodes, "node"));
  }
  if (!job.partition.empty()) absl::StrAppend(&text, ", partition ", job.partition);
  if (!job.dependency.empty()) absl::StrAppend(&text, ", after ", job.dependency);
  if (job.start) absl::StrAppend(&text, ", expected ", UtcTime(*job.start));
  if (job.time_left) absl::StrAppend(&text, ", ", HumanDuration(*job.time_left), " left");
  if (job.restarts > 0) absl::StrAppend(&text, ", restarts ", job.restarts);
  if (!job.exit_code.empty()) absl::StrAppend(&text, ", exit ", job.exit_code);
  return text;
}

std::vector<std::string> SlurmLines(const StatusFacts& facts) {
  std::vector<std::string> lines;
  for (const SlurmJob& job : facts.slurm.jobs) {
    lines.push_back(Words(job));
    if (job.time_left && facts.left && *facts.left > *job.time_left)
      lines.back() += ": will exceed its time limit and be requeued";
  }
  for (const int64_t id : facts.slurm.forgotten)
    lines.push_back(
        absl::StrCat("job ", id, " has ended and is no longer known to Slurm; see sacct -j ", id));
  if (!facts.slurm.problem.empty()) lines.push_back(facts.slurm.problem);
  return lines;
}

// Labels stand in a column; values are one line each.
class Screen {
 public:
  void Add(absl::string_view label, absl::string_view value) {
    std::string line = absl::StrFormat("%-12s %s", label, value);
    std::erase_if(line, [](char c) { return absl::ascii_iscntrl(c); });
    absl::StrAppend(&text_, line, "\n");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string ProgressBar(int64_t step, int64_t steps) {
  constexpr int64_t kCells = 30;
  const int64_t done = steps > 0 ? std::min(kCells, kCells * step / steps) : 0;
  return absl::StrCat("[", std::string(static_cast<size_t>(done), '#'),
                      std::string(static_cast<size_t>(kCells - done), '.'), "]");
}

void AddState(const StatusFacts& facts, Screen& screen) {
  screen.Add("run",
             absl::StrFormat("%s (%s), %s, %s", facts.run_dir,
                             facts.starts == 0 ? "not started" : facts.run_id,
                             Counted(facts.starts, "start"), Counted(facts.restarts, "restart")));
  std::string state = facts.state;
  if (facts.ranks >= 0 && facts.state == "running") {
    absl::StrAppend(&state, ", ", Counted(facts.ranks, "rank"));
    if (!facts.nodes.empty())
      absl::StrAppend(&state, " on ", FirstNames(facts.nodes, kShownNodes, " "));
  }
  screen.Add("state", state);
  if (!facts.error.empty()) screen.Add("error", facts.error);
  if (facts.state == "stopped" && !facts.is_under_slurm) {
    const std::string machines =
        facts.nodes.empty()
            ? ""
            : absl::StrCat(" --hosts HOSTS   (before: ", Counted(facts.ranks, "rank"), " on ",
                           FirstNames(facts.nodes, kShownNodes, " "), ")");
    screen.Add("resume",
               absl::StrCat(FrontCommand(), " launch ", ShellQuote(facts.run_dir), machines));
  }
  if (!facts.owner.empty()) screen.Add("owner", facts.owner);
  if (facts.silence && facts.per_step &&
      *facts.silence > std::max(kSilent, kSilentSteps * *facts.per_step)) {
    screen.Add("warning", absl::StrCat("no step for ", HumanDuration(*facts.silence),
                                       "; see train.log in the run directory"));
  }
  for (const std::string& line : SlurmLines(facts)) screen.Add("slurm", line);
}

void AddProgress(const StatusFacts& facts, Screen& screen) {
  if (facts.steps > 0) {
    const bool is_lost = facts.state == "diverged";
    const int64_t step = is_lost ? facts.trained_step : facts.step;
    std::string text =
        absl::StrFormat("%d of %d %s %.0f %%", step, facts.steps, ProgressBar(step, facts.steps),
                        100.0 * static_cast<double>(step) / static_cast<double>(facts.steps));
    if (is_lost) absl::StrAppend(&text, ", then only skipped ones");
    screen.Add("step", text);
  }
  if (facts.last) {
    screen.Add("loss", absl::StrCat(LossText(facts.last->loss), AccuracyText(facts.last->means)));
    std::string speed = absl::StrFormat("%.0f tokens/s", facts.tokens_per_second);
    if (facts.ranks > 1)
      absl::StrAppendFormat(&speed, " (%.0f a device)", facts.tokens_per_second_per_device);
    if (facts.mfu > 0) absl::StrAppendFormat(&speed, ", MFU %.1f %%", 100 * facts.mfu);
    if (facts.per_step) absl::StrAppend(&speed, ", ", HumanDuration(*facts.per_step), " a step");
    if (facts.left)
      absl::StrAppend(&speed, ", ETA ", HumanDuration(*facts.left), ", ",
                      UtcTime(facts.now + *facts.left));
    screen.Add("speed", speed);
  }
  if (facts.eval_loss) {
    screen.Add("held-out",
               absl::StrFormat("%s%s after step %d (%.1f s in evaluations)",
                               LossText(*facts.eval_loss), AccuracyText(facts.eval_means),
                               facts.eval_step, absl::ToDoubleSeconds(facts.evaluation)));
  }
}

void AddCheckpoints(const StatusFacts& facts, Screen& screen) {
  if (facts.commit) {
    std::string text =
        absl::StrCat("step ", facts.commit->step, ", ", HumanDuration(facts.commit->age), " ago, ",
                     FormatBytes(static_cast<double>(facts.commit->num_bytes)));
    const std::string behind = Counted(facts.step - facts.commit->step, "step");
    if (facts.step > facts.commit->step && facts.state == "running") {
      absl::StrAppend(&text, "; a crash now loses ", behind);
    } else if (facts.step > facts.commit->step && !facts.is_finished() &&
               facts.state != "diverged") {
      absl::StrAppend(&text, "; the next start trains ", behind, " again");
    }
    screen.Add("committed", text);
  } else {
    screen.Add("committed", "nothing yet");
  }
  size_t whole = 0;
  size_t left_out = 0;
  for (const ckpt::CheckpointInfo& info : facts.checkpoints) {
    const bool is_best = info.opens && info.step == facts.best.step;
    if (info.opens && ++whole > kShownCheckpoints && !is_best) {
      ++left_out;
      continue;
    }
    screen.Add(
        "checkpoint",
        absl::StrCat("step ", info.step, ", ", FormatBytes(static_cast<double>(info.num_bytes)),
                     info.opens ? "" : "  DAMAGED", is_best ? "  BEST" : "",
                     facts.IsSuspect(info.step) ? "  SUSPECT: only skipped steps follow" : ""));
  }
  if (left_out > 0) screen.Add("", absl::StrCat("and ", left_out, " older"));
}

std::string Words(const LedgerRecord& record) {
  std::string text = record.time;
  std::visit(
      [&text](const auto& event) {
        absl::StrAppend(&text, " ", event.kName);
        if constexpr (requires { event.step; })
          if (event.step >= 0) absl::StrAppend(&text, " step ", event.step);
        if constexpr (requires { event.first_step; })
          absl::StrAppend(&text, event.last_step == event.first_step + 1 ? " step " : " steps ",
                          RangeText(event.first_step + 1, event.last_step));
        if constexpr (requires { event.exit_status; })
          absl::StrAppend(&text, " status ", event.exit_status);
        if constexpr (requires { event.detail; }) {
          // The error that the launcher saw last stands above, as the run's.
          using Event = std::decay_t<decltype(event)>;
          bool is_shown = !event.detail.empty();
          if constexpr (std::is_same_v<Event, ledger::Exit>)
            is_shown = is_shown && event.exit_status == kExitRequeue;
          if (is_shown) absl::StrAppend(&text, " ", event.detail);
        }
      },
      record.event);
  return text;
}

void AddPace(const StatusFacts& facts, Screen& screen) {
  if (!facts.pace || facts.pace->ranks < 2) return;
  size_t shown = 0;
  for (const liveness::RankPace& rank : facts.pace->slowest)
    if (rank.is_straggler || shown < kShownRanks) {
      screen.Add(rank.is_straggler ? "straggler" : "slowest", DescribePace(rank));
      if (++shown == kMaxShownRanks) return;
    }
}

void AddRecords(const StatusFacts& facts, Screen& screen) {
  // The end of the story is what a reader wants; the ledger has the rest.
  const size_t shown = std::min(facts.ledger.size(), kShownRecords);
  for (auto record = facts.ledger.end() - static_cast<int64_t>(shown); record != facts.ledger.end();
       ++record) {
    screen.Add("ledger", Words(*record));
  }
}

absl::Status PrintOnce(const StatusOptions& options) {
  ASSIGN_OR_RETURN(const StatusFacts facts, StatusCollector(options.run_dir).Collect());
  if (options.json) {
    Json json = Describe(facts);
    if (options.verified_checkpoints) json["verified_checkpoints"] = *options.verified_checkpoints;
    std::puts(DumpJson(json, 2).c_str());
    return absl::OkStatus();
  }
  std::fputs(StatusScreen(facts).c_str(), stdout);
  if (options.verified_checkpoints) {
    std::printf("%-12s every byte of %s agrees with its checksum\n", "verified",
                Counted(*options.verified_checkpoints, "checkpoint").c_str());
  }
  return absl::OkStatus();
}

}  // namespace

std::string HumanDuration(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds < 1) return absl::StrFormat("%.0f ms", 1e3 * seconds);
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const auto whole = static_cast<int64_t>(seconds);
  if (whole < 3600) return absl::StrFormat("%d min %d s", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%d h %d min", whole / 3600, whole / 60 % 60);
  return absl::StrFormat("%d d %d h", whole / 86400, whole / 3600 % 24);
}

std::string StatusScreen(const StatusFacts& facts) {
  Screen screen;
  AddState(facts, screen);
  AddProgress(facts, screen);
  AddPace(facts, screen);
  AddCheckpoints(facts, screen);
  screen.Add("time",
             absl::StrFormat("%s, %.0f %% of it in steps that count; %s recomputed, %d skipped",
                             HumanDuration(facts.wall), 100 * facts.Goodput(),
                             Counted(facts.redone_steps, "step"), facts.skipped_steps));
  AddRecords(facts, screen);
  return screen.text();
}

std::string StatusLine(const StatusFacts& facts) {
  std::string line = absl::StrFormat("%s %s step %d of %d", UtcTime(facts.now), facts.state,
                                     facts.step, facts.steps);
  if (facts.last)
    absl::StrAppendFormat(&line, ", loss %s%s, %.0f tokens/s", LossText(facts.last->loss),
                          AccuracyText(facts.last->means), facts.tokens_per_second);
  if (!facts.error.empty()) absl::StrAppend(&line, ", error: ", facts.error);
  if (facts.left) absl::StrAppend(&line, ", ETA ", HumanDuration(*facts.left));
  if (facts.commit)
    absl::StrAppend(&line, ", committed ", facts.commit->step, " ",
                    HumanDuration(facts.commit->age), " ago");
  absl::StrAppendFormat(&line, ", goodput %.0f %%", 100 * facts.Goodput());
  for (const SlurmJob& job : facts.slurm.jobs)
    absl::StrAppend(&line, ", job ", job.id, " ", job.state);
  return line;
}

std::string StatusJsonLine(const StatusFacts& facts) { return DumpJson(Describe(facts)); }

absl::Status PrintStatus(const StatusOptions& options) {
  if (!options.watch_seconds) return PrintOnce(options);
  return WatchStatus(options.run_dir, options.json, absl::Seconds(*options.watch_seconds));
}

}  // namespace anyorder::launcher
