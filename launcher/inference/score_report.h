// Which metrics a task is reported with, and their values.

#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "data/trec/trec_files.h"
#include "launcher/inference/gold.h"
#include "launcher/inference/predictions.h"

namespace anyorder::launcher {

struct Metric {
  std::string name;
  double value = 0;    // as the official script gives it: a share, but of SQuAD per cent
  double shown = 100;  // what it is multiplied with for people
};

struct ScoreReport {
  std::string gold;  // path
  std::string counted = "examples";
  size_t count = 0;
  std::vector<Metric> metrics;
};

// `predictions`: one of each example of `gold`, as MatchPredictions orders them; of ranking tasks
// as RankCandidates makes them. Errors: FailedPrecondition for examples without a label; DataLoss
// for predictions of another kind, or of a class that the task does not have.
absl::StatusOr<ScoreReport> ScorePredictions(const Gold& gold,
                                             const std::vector<const Prediction*>& predictions);

// NDCG and ERR of the first 20 documents and average precision, the mean over the topics with a
// relevant document. Errors: DataLoss for such topics that are not in the run, judgments of
// subtopics, and grades above gdeval's 4.
absl::StatusOr<ScoreReport> ScoreRun(const std::string& path,
                                     const std::vector<data::TrecJudgment>& judgments,
                                     const std::vector<data::TrecRunEntry>& run);

// {gold, examples, metrics: {name: value}}; null for what is undefined.
nlohmann::ordered_json ScoreJson(const ScoreReport& report);
// A line for each metric.
void PrintScores(const ScoreReport& report);

}  // namespace anyorder::launcher
