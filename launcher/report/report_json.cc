// The numbers of a report for its script (report_page.js). Columns instead of rows and five digits
// keep the page small.

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "core/base/json_members.h"
#include "launcher/report/report.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

// Five digits are finer than a pixel; null for what is no number.
Json Short(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(absl::StrFormat("%.5g", value).c_str(), nullptr);
}

// Times keep their milliseconds, however long the run.
Json Seconds(double seconds) { return std::round(seconds * 1e3) / 1e3; }

Json Column(const auto& items, auto get) {
  Json column = Json::array();
  for (const auto& item : items) column.push_back(get(item));
  return column;
}

Json DescribeCurve(const std::vector<Bucket>& buckets, ReportCurve curve) {
  Json json;
  json["mean"] =
      Column(buckets, [curve](const Bucket& bucket) { return Short(bucket.curves[curve].Mean()); });
  // Where each bucket is one step, the extremes say nothing new.
  bool is_thinned = false;
  int64_t not_finite = 0;
  for (const Bucket& bucket : buckets) {
    is_thinned |= bucket.steps > 1;
    not_finite += bucket.curves[curve].not_finite;
  }
  json["not_finite"] = not_finite;
  if (!is_thinned) return json;
  json["min"] =
      Column(buckets, [curve](const Bucket& bucket) { return Short(bucket.curves[curve].min); });
  json["max"] =
      Column(buckets, [curve](const Bucket& bucket) { return Short(bucket.curves[curve].max); });
  return json;
}

Json DescribeBuckets(const std::vector<Bucket>& buckets) {
  Json json;
  json["t0"] = Column(buckets, [](const Bucket& bucket) { return Seconds(bucket.begin); });
  json["t1"] = Column(buckets, [](const Bucket& bucket) { return Seconds(bucket.end); });
  json["s0"] = Column(buckets, [](const Bucket& bucket) { return bucket.first_step; });
  json["s1"] = Column(buckets, [](const Bucket& bucket) { return bucket.last_step; });
  json["start"] = Column(buckets, [](const Bucket& bucket) { return bucket.attempt; });
  json["loss"] = DescribeCurve(buckets, kLossCurve);
  return json;
}

Json DescribePoints(const std::vector<ReportPoint>& points, bool with_values) {
  Json json;
  json["t"] = Column(points, [](const ReportPoint& point) { return Seconds(point.time); });
  json["s"] = Column(points, [](const ReportPoint& point) { return point.step; });
  if (!with_values) return json;
  json["v"] = Column(points, [](const ReportPoint& point) { return Short(point.value); });
  json["e"] = Column(points, [](const ReportPoint& point) { return Short(point.error); });
  if (std::any_of(points.begin(), points.end(),
                  [](const ReportPoint& point) { return std::isfinite(point.accuracy); }))
    json["a"] = Column(points, [](const ReportPoint& point) { return Short(point.accuracy); });
  return json;
}

Json DescribeStart(const ReportStart& start) {
  return {{"n", start.attempt},
          {"ranks", start.ranks},
          {"nodes", start.nodes},
          {"lost", start.lost_nodes},
          {"job", start.slurm_job},
          {"begin", Seconds(start.begin)},
          {"train", start.train_begin < 0 ? Json(nullptr) : Seconds(start.train_begin)},
          {"end", Seconds(start.end)},
          {"from", start.from_step},
          {"to", start.last_step},
          {"status", start.exit_status},
          {"running", start.is_running},
          {"words", start.is_running ? "running" : ExitWords(start.exit_status)}};
}

Json DescribeRun(const ReportRun& run) {
  Json json = {{"name", run.name},
               {"state", run.state},
               {"origin", absl::ToUnixMillis(run.origin)},
               {"seconds", Seconds(run.seconds)},
               {"step", run.step},
               {"steps", run.config.train.steps}};
  json["starts"] = Column(run.starts, DescribeStart);
  json["events"] = Column(run.events, [](const ReportEvent& event) {
    return Json{
        {"t", Seconds(event.time)}, {"s", event.step}, {"kind", event.kind}, {"text", event.text}};
  });
  json["commits"] = DescribePoints(run.commits, false);
  json["evals"] = DescribePoints(run.evaluations, true);
  Json& curves = json["curves"] = DescribeBuckets(run.buckets);
  curves["smooth"] = Column(run.smoothed_loss, Short);
  curves["lr"] = DescribeCurve(run.buckets, kLearningRateCurve);
  curves["grad"] = DescribeCurve(run.buckets, kGradNormCurve);
  curves["speed"] = DescribeCurve(run.buckets, kThroughputCurve);
  curves["stall"] = DescribeCurve(run.buckets, kStallCurve);
  if (std::any_of(run.buckets.begin(), run.buckets.end(),
                  [](const Bucket& bucket) { return bucket.curves[kAccuracyCurve].count > 0; }))
    curves["accuracy"] = DescribeCurve(run.buckets, kAccuracyCurve);
  json["lost"] = DescribeBuckets(run.lost);
  return json;
}

}  // namespace

std::string ReportJson(const std::vector<ReportRun>& runs) {
  const Json json = {{"runs", Column(runs, DescribeRun)}};
  return absl::StrReplaceAll(DumpJson(json), {{"<", "\\u003c"}});
}

}  // namespace anyorder::launcher
