#include "launcher/seeds/seed_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/counted.h"
#include "core/base/json_members.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

void VisitSpread(const Spread& spread, auto visit) {
  visit("median", spread.median);
  visit("mean", spread.mean);
  visit("min", spread.min);
  visit("max", spread.max);
  visit("standard_deviation", spread.standard_deviation);
}

// Of the runs that are finished; the others have not trained to their end.
Spread SpreadOfFinished(const std::vector<SeedRun>& runs) {
  std::vector<double> values;
  for (const SeedRun& run : runs)
    if (run.is_finished() && run.best.step >= 0) values.push_back(run.best.value);
  return SpreadOf(std::move(values));
}

}  // namespace

Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {0, kNone, kNone, kNone, kNone, kNone};
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const auto count = static_cast<double>(values.size());
  Spread spread;
  spread.count = std::ssize(values);
  spread.median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  spread.min = values.front();
  spread.max = values.back();
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.standard_deviation = values.size() > 1 ? std::sqrt(squares / (count - 1)) : kNone;
  return spread;
}

std::string SeedTable(const std::string& metric, const std::vector<SeedRun>& runs) {
  const std::string head = absl::StrCat("best ", metric);
  const int width = std::max(10, static_cast<int>(head.size()));
  std::string table =
      absl::StrFormat("%10s  %-14s  %*s  %10s  %s\n", "seed", "state", width, head, "step", "run");
  for (const SeedRun& run : runs) {
    const bool has_value = run.best.step >= 0;
    absl::StrAppendFormat(&table, "%10d  %-14s  %*s  %10s  %s\n", run.seed, run.state, width,
                          has_value ? LossText(run.best.value) : "-",
                          has_value ? absl::StrCat(run.best.step) : "-", run.run_dir);
  }
  const Spread spread = SpreadOfFinished(runs);
  absl::StrAppend(&table, metric, " (", LowerIsBetter(metric) ? "lower" : "higher",
                  " is better) of ", Counted(spread.count, "finished run"));
  const char* separator = ": ";
  VisitSpread(spread, [&](const std::string& name, double value) {
    if (std::isnan(value)) return;
    absl::StrAppend(&table, separator, name == "standard_deviation" ? "standard deviation" : name,
                    " ", LossText(value));
    separator = ", ";
  });
  absl::StrAppend(&table, "\n");
  for (const SeedRun& run : runs) {
    if (run.error.empty()) continue;
    absl::StrAppend(&table, "seed ", run.seed, " ", run.state, ": ", run.error,
                    run.log.empty() ? "" : "; log: ", run.log, "\n");
  }
  return table;
}

std::string SeedJson(const std::string& metric, const std::vector<SeedRun>& runs) {
  Json json = {{"kind", "seeds"}, {"metric", metric}, {"lower_is_better", LowerIsBetter(metric)}};
  json["runs"] = Json::array();
  for (const SeedRun& run : runs) {
    Json row = {{"seed", run.seed}, {"run_dir", run.run_dir}, {"state", run.state}};
    if (run.best.step >= 0)
      row.update({{"best_value", run.best.value}, {"best_step", run.best.step}});
    if (run.exit_status >= 0) row["exit_status"] = run.exit_status;
    if (!run.error.empty()) row["error"] = run.error;
    if (!run.log.empty()) row["log"] = run.log;
    json["runs"].push_back(row);
  }
  const Spread spread = SpreadOfFinished(runs);
  json["finished"] = spread.count;
  VisitSpread(spread, [&json](const char* name, double value) { json[name] = value; });
  return DumpJson(json, 2);
}

}  // namespace anyorder::launcher
