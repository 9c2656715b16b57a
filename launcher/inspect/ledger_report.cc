#include "launcher/inspect/ledger_report.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/counted.h"
#include "core/base/json_members.h"
#include "core/base/status.h"
#include "data/dataset/dataset_index.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxColumns = 8;

// What the sampler planned; where it cannot be known, why not.
struct Plan {
  std::vector<std::string> digests;
  std::string missing;
};

absl::Status CheckIsTrainedOn(const data::DatasetIndex& index, const RunHistory& history) {
  const std::string trained = Summarize(history.ledger).dataset_digest;
  if (trained.empty() || trained == index.dataset_digest) return absl::OkStatus();
  return FailedPrecondition("the run was trained on dataset ", trained, ", this is dataset ",
                            index.dataset_digest, "; name the right one with --data");
}

absl::StatusOr<Plan> MakePlan(const LedgerReportOptions& options, const RunHistory& history) {
  const std::string& directory = options.data.empty() ? history.config.data.shards : options.data;
  if (!options.data.empty()) RETURN_IF_ERROR(data::CheckIsDataset("--data", options.data));
  const auto dataset = data::Dataset::Open(directory);
  absl::Status usable = dataset.status();
  if (usable.ok()) usable = CheckIsTrainedOn((*dataset)->index(), history);
  if (usable.ok()) usable = (*dataset)->CheckShards();
  if (!usable.ok()) {
    usable = Annotate(usable, directory);
    // A dataset that was asked for must be usable; the run's own may be gone.
    if (!options.data.empty()) return usable;
    return Plan{{}, std::string(usable.message())};
  }
  int64_t steps = 0;
  for (const auto* lines : {&history.metrics, &history.redone})
    for (const StepMetrics& line : *lines) steps = std::max(steps, line.step);
  Plan plan;
  ASSIGN_OR_RETURN(plan.digests, PlannedSamples(history.config, **dataset, steps));
  return plan;
}

double Percent(absl::Duration part, absl::Duration whole) {
  return whole > absl::ZeroDuration() ? 100 * absl::FDivDuration(part, whole) : 0;
}

Json DescribeShares(const TimeShares& shares, absl::Duration wall) {
  Json json = Json::object();
  for (int i = 0; i < kNumTimeClasses; ++i) {
    json[EnumName(static_cast<TimeClass>(i))] = {{"seconds", absl::ToDoubleSeconds(shares[i])},
                                                 {"percent", Percent(shares[i], wall)}};
  }
  return json;
}

Json Describe(const LedgerReportOptions& options, const RunHistory& history, const Plan& plan,
              const SampleAudit& audit, const WallTime& time) {
  Json json = {{"run_dir", options.run_dir},
               {"steps", audit.steps},
               {"lanes", audit.lanes},
               {"samples", audit.steps * audit.lanes},
               {"duplicates", audit.duplicates},
               {"omissions", audit.omissions},
               {"redone_steps", audit.redone_steps},
               {"skipped_steps", audit.skipped_steps},
               {"compared_with_plan", audit.compared_with_plan},
               {"compared_with_redone", audit.compared_with_redone}};
  if (options.verified_checkpoints) json["verified_checkpoints"] = *options.verified_checkpoints;
  if (!plan.missing.empty()) json["not_compared_with_plan"] = plan.missing;
  json["torn"] = history.torn;
  json["problems"] = Json::array();
  for (const SampleProblem& problem : audit.problems) {
    json["problems"].push_back(
        {{"step", problem.step}, {"attempt", problem.attempt}, {"what", problem.what}});
  }
  json["wall_seconds"] = absl::ToDoubleSeconds(time.wall);
  json["sum_seconds"] = absl::ToDoubleSeconds(time.Sum());
  json["adds_up"] = time.AddsUp();
  json["time"] = DescribeShares(time.shares, time.wall);
  json["attempts"] = Json::array();
  for (const AttemptTime& start : time.attempts) {
    json["attempts"].push_back({{"attempt", start.attempt},
                                {"ranks", start.ranks},
                                {"wall_seconds", absl::ToDoubleSeconds(start.wall)},
                                {"time", DescribeShares(start.shares, start.wall)}});
  }
  return json;
}

void PrintTime(WallTime time) {
  // More columns would not fit a line; --json has them all.
  if (time.attempts.size() > kMaxColumns) time.attempts.clear();
  std::printf("\n%-18s %10s %7s", "seconds", "all", "%");
  for (const AttemptTime& start : time.attempts)
    std::printf(" %10s", absl::StrCat("start ", start.attempt).c_str());
  std::printf("\n");
  for (int i = 0; i < kNumTimeClasses; ++i) {
    std::printf("%-18s %10.3f %7.2f", EnumName(static_cast<TimeClass>(i)),
                absl::ToDoubleSeconds(time.shares[i]), Percent(time.shares[i], time.wall));
    for (const AttemptTime& start : time.attempts)
      std::printf(" %10.3f", absl::ToDoubleSeconds(start.shares[i]));
    std::printf("\n");
  }
  std::printf("%-18s %10.3f %7.2f\n%-18s %10.3f %7.2f", "sum", absl::ToDoubleSeconds(time.Sum()),
              Percent(time.Sum(), time.wall), "wall time", absl::ToDoubleSeconds(time.wall), 100.0);
  for (const AttemptTime& start : time.attempts)
    std::printf(" %10.3f", absl::ToDoubleSeconds(start.wall));
  std::printf("\n");
}

void PrintForPeople(const LedgerReportOptions& options, const RunHistory& history, const Plan& plan,
                    const SampleAudit& audit, const WallTime& time) {
  std::string text;
  if (options.verified_checkpoints) {
    absl::StrAppendFormat(&text, "verified     every byte of %s agrees with its checksum\n",
                          Counted(*options.verified_checkpoints, "checkpoint"));
  }
  absl::StrAppendFormat(&text,
                        "samples      %s of %s over %s: %s, %s\n"
                        "lost         %s, %d of them recomputed and compared\n",
                        Counted(audit.steps, "step"), Counted(audit.lanes, "lane"),
                        Counted(std::ssize(time.attempts), "start"),
                        Counted(audit.duplicates, "duplicate"),
                        Counted(audit.omissions, "omission"), Counted(audit.redone_steps, "step"),
                        audit.compared_with_redone);
  if (plan.missing.empty()) {
    absl::StrAppendFormat(&text, "plan         %s resampled and compared\n",
                          Counted(audit.compared_with_plan, "step"));
  } else {
    absl::StrAppend(&text, "plan         digests were only compared between starts (--data DIR): ",
                    plan.missing, "\n");
  }
  for (const int64_t step : audit.skipped_steps) {
    absl::StrAppendFormat(&text, "skipped      step %d: lanes 0 to %d planned, not applied\n", step,
                          audit.lanes - 1);
  }
  for (const std::string& path : history.torn)
    absl::StrAppend(&text, "torn         the last line of ", path, " was never complete\n");
  for (const SampleProblem& problem : audit.problems) {
    absl::StrAppendFormat(&text, "problem      step %d, attempt %d: %s\n", problem.step,
                          problem.attempt, problem.what);
  }
  std::fputs(text.c_str(), stdout);
  PrintTime(time);
}

absl::Status Verdict(const std::string& run_dir, const SampleAudit& audit, const WallTime& time) {
  if (!audit.problems.empty()) {
    return DataLoss("'", run_dir, "' does not prove that each sample was used as planned: ",
                    audit.problems.size(), " problems, the first of step ",
                    audit.problems.front().step, "; see the 'problem' lines");
  }
  if (!time.AddsUp()) {
    return DataLoss(absl::StrFormat(
        "'%s': the parts of the time are %.3f s, the wall time is %.3f s: they differ by more than "
        "1 %%; was the clock set while the run was active?",
        run_dir, absl::ToDoubleSeconds(time.Sum()), absl::ToDoubleSeconds(time.wall)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PrintLedgerReport(const LedgerReportOptions& options) {
  ASSIGN_OR_RETURN(const RunHistory history, ReadRunHistory(options.run_dir));
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(options, history));
  const SampleAudit audit = AuditSamples(history, plan.digests);
  const WallTime time = MeasureWallTime(history);
  if (options.json) {
    const Json json = Describe(options, history, plan, audit, time);
    std::puts(DumpJson(json, 2).c_str());
  } else {
    PrintForPeople(options, history, plan, audit, time);
  }
  return Verdict(options.run_dir, audit, time);
}

}  // namespace anyorder::launcher
