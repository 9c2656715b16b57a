#include "launcher/status_report.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "ckpt/file_system.h"
#include "ckpt/lease.h"
#include "ckpt/reader.h"
#include "core/base/status.h"
#include "core/train/config_file.h"
#include "core/train/ledger.h"
#include "core/train/metrics.h"
#include "core/train/run_directory.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

// The launcher that has the run directory, if it still lives.
std::string LiveOwner(const RunDirectory& paths) {
  const auto owner = ckpt::ReadLease(ckpt::FileSystem::Posix(), paths.launch);
  return owner.ok() && !ckpt::IsKnownDead(*owner) ? owner->ToString() : "";
}

// Where the run's time went, over all starts.
struct Goodput {
  absl::Duration wall;      // from each start to the last that is known of it
  absl::Duration training;  // in steps that still count
  absl::Duration evaluation;
  int64_t restarts = 0;
  int64_t redone_steps = 0;  // trained, lost in a crash and trained again
  int64_t skipped_steps = 0;

  double fraction() const {
    return wall > absl::ZeroDuration() ? absl::FDivDuration(training, wall) : 0;
  }
};

Goodput MeasureGoodput(const std::vector<LedgerRecord>& ledger,
                       const std::vector<StepMetrics>& metrics,
                       const std::vector<StepMetrics>& redone,
                       bool is_running) {
  Goodput result;
  int64_t starts = 0;
  absl::Time last;
  for (const LedgerRecord& record : ledger) {
    absl::Time time;
    if (!absl::ParseTime(absl::RFC3339_full, record.time, &time, nullptr)) continue;
    if (record.event == "start") {
      ++starts;
    } else if (starts > 0) {
      result.wall += time - last;
    }
    last = time;
  }
  if (is_running && starts > 0) result.wall += absl::Now() - last;
  for (const StepMetrics& step : metrics) {
    result.training += absl::Milliseconds(step.step_ms);
    if (step.held_out) result.evaluation += absl::Milliseconds(step.held_out->ms);
    result.skipped_steps += step.skipped ? 1 : 0;
  }
  result.restarts = std::max<int64_t>(0, starts - 1);
  result.redone_steps = static_cast<int64_t>(redone.size());
  return result;
}

Json Describe(const std::string& run_dir,
              const RunConfig& config,
              const std::vector<LedgerRecord>& ledger,
              const std::vector<StepMetrics>& metrics,
              const std::vector<StepMetrics>& redone,
              const std::vector<ckpt::CheckpointInfo>& checkpoints) {
  const LedgerSummary summary = Summarize(ledger);
  const std::string owner = LiveOwner(RunDirectory(run_dir));
  Json json = {{"run_dir", run_dir},
               {"run_id", summary.run_id},
               {"state", "stopped"},
               {"owner", owner},
               {"step", 0},
               {"steps", config.train.steps},
               {"starts", summary.incarnations}};
  if (!owner.empty()) json["state"] = "running";
  if (!metrics.empty()) {
    const StepMetrics& last = metrics.back();
    json["step"] = last.step;
    json["loss"] = last.loss;
    json["tokens_per_second"] = last.tokens_per_second;
    if (last.step >= config.train.steps && owner.empty()) json["state"] = "finished";
  }
  for (const StepMetrics& step : metrics) {
    if (!step.held_out) continue;
    json["eval_loss"] = step.held_out->loss;
    json["eval_step"] = step.step;
  }
  const Goodput goodput = MeasureGoodput(ledger, metrics, redone, !owner.empty());
  json["restarts"] = goodput.restarts;
  json["redone_steps"] = goodput.redone_steps;
  json["skipped_steps"] = goodput.skipped_steps;
  json["wall_seconds"] = absl::ToDoubleSeconds(goodput.wall);
  json["training_seconds"] = absl::ToDoubleSeconds(goodput.training);
  json["evaluation_seconds"] = absl::ToDoubleSeconds(goodput.evaluation);
  json["goodput"] = goodput.fraction();
  json["checkpoints"] = Json::array();
  for (const ckpt::CheckpointInfo& info : checkpoints)
    json["checkpoints"].push_back(
        {{"step", info.step}, {"bytes", info.num_bytes}, {"opens", info.opens}});
  return json;
}

void PrintForPeople(const Json& json, const std::vector<LedgerRecord>& ledger) {
  std::string text =
      absl::StrFormat("run          %s (%s), %d starts\nstate        %s\nstep         %d of %d\n",
                      json["run_dir"].get<std::string>(),
                      json["run_id"].get<std::string>(),
                      json["starts"].get<int64_t>(),
                      json["state"].get<std::string>(),
                      json["step"].get<int64_t>(),
                      json["steps"].get<int64_t>());
  if (!json["owner"].get<std::string>().empty())
    absl::StrAppend(&text, "owner        ", json["owner"].get<std::string>(), "\n");
  if (json.contains("loss") && json["loss"].is_number()) {
    absl::StrAppendFormat(&text,
                          "loss         %.4f\nspeed        %.0f tokens/s\n",
                          json["loss"].get<double>(),
                          json["tokens_per_second"].get<double>());
  }
  if (json.contains("eval_loss") && json["eval_loss"].is_number()) {
    absl::StrAppendFormat(&text,
                          "held-out     %.4f after step %d (%.1f s in evaluations)\n",
                          json["eval_loss"].get<double>(),
                          json["eval_step"].get<int64_t>(),
                          json["evaluation_seconds"].get<double>());
  }
  absl::StrAppendFormat(
      &text,
      "time         %.1f s, %.0f %% of it in steps that count; %d restarts, %d steps "
      "redone, %d skipped\n",
      json["wall_seconds"].get<double>(),
      100 * json["goodput"].get<double>(),
      json["restarts"].get<int64_t>(),
      json["redone_steps"].get<int64_t>(),
      json["skipped_steps"].get<int64_t>());
  for (const Json& checkpoint : json["checkpoints"]) {
    absl::StrAppendFormat(&text,
                          "checkpoint   step %d, %.1f MiB%s\n",
                          checkpoint["step"].get<int64_t>(),
                          static_cast<double>(checkpoint["bytes"].get<int64_t>()) / (1 << 20),
                          checkpoint["opens"].get<bool>() ? "" : "  DAMAGED");
  }
  if (json["checkpoints"].empty()) absl::StrAppend(&text, "checkpoint   none committed\n");
  // The end of the story is what a reader wants; the ledger has the rest.
  const size_t shown = std::min<size_t>(ledger.size(), 5);
  for (size_t i = ledger.size() - shown; i < ledger.size(); ++i) {
    absl::StrAppend(&text, "ledger       ", ledger[i].time, " ", ledger[i].event);
    if (ledger[i].step >= 0) absl::StrAppend(&text, " step ", ledger[i].step);
    if (ledger[i].last_step >= 0)
      absl::StrAppend(&text, " steps ", ledger[i].first_step + 1, " to ", ledger[i].last_step);
    if (ledger[i].exit_status >= 0) absl::StrAppend(&text, " status ", ledger[i].exit_status);
    absl::StrAppend(&text, ledger[i].detail.empty() ? "" : " ", ledger[i].detail, "\n");
  }
  std::fputs(text.c_str(), stdout);
}

}  // namespace

absl::Status PrintStatus(const StatusOptions& options) {
  ANYORDER_RETURN_IF_ERROR(CheckIsRun(options.run_dir));
  const RunDirectory paths(options.run_dir);
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig config, LoadRunConfig(paths.config, {}));
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<LedgerRecord> ledger, ReadLedger(paths.ledger));
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<StepMetrics> metrics, ReadMetrics(paths.metrics));
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<StepMetrics> redone, ReadMetrics(paths.redone));
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<ckpt::CheckpointInfo> checkpoints,
                            ckpt::ListCheckpoints(options.run_dir));
  const Json json = Describe(options.run_dir, config, ledger, metrics, redone, checkpoints);
  if (options.json) {
    std::puts(json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    PrintForPeople(json, ledger);
  }
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
