// What core/metrics and core/ranking make of cases, so that other implementations can be asked the
// same.
//
// Usage: metrics_dump < CASES > RESULTS. A line of CASES is a JSON object with `kind` and what that
// needs; a line of RESULTS is a JSON list of numbers as hexadecimal floats ("nan"), or of strings;
// a ranker's is an object, and ranker_parity.py reads what is in it.

#include <nlohmann/json.hpp>

#include <cstdio>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/unicode.h"
#include "core/metrics/label_scores.h"
#include "core/metrics/ranking.h"
#include "core/metrics/squad.h"
#include "core/metrics/tagging.h"
#include "core/ranking/kernel_ranker.h"

namespace anyorder::metrics {
namespace {

using Json = nlohmann::json;

Json Numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(absl::StrFormat("%a", value));
  return list;
}

Json Classification(const Json& input) {
  const auto gold = input["gold"].get<std::vector<int32_t>>();
  const auto predicted = input["predicted"].get<std::vector<int32_t>>();
  return Numbers({Accuracy(gold, predicted), BinaryF1(gold, predicted, 1), MacroF1(gold, predicted),
                  MatthewsCorrelation(gold, predicted)});
}

Json Correlation(const Json& input) {
  const auto x = input["x"].get<std::vector<double>>();
  const auto y = input["y"].get<std::vector<double>>();
  return Numbers({PearsonCorrelation(x, y), SpearmanCorrelation(x, y)});
}

Json Ranking(const Json& input) {
  const auto ids = input["ids"].get<std::vector<std::string>>();
  const auto grades = input["grades"].get<std::vector<int32_t>>();
  const auto judged = input["judged"].get<std::vector<int32_t>>();
  std::vector<int32_t> ranked;
  for (const size_t i : RankingOrder(input["scores"].get<std::vector<double>>(), ids))
    ranked.push_back(grades[i]);
  size_t num_relevant = 0;
  for (const int32_t grade : judged) num_relevant += grade > 0;
  return Numbers(
      {Ndcg(ranked, judged, 20, NdcgGain::kExponential), ExpectedReciprocalRank(ranked, 20, 4),
       Ndcg(ranked, judged, 20, NdcgGain::kLinear), AveragePrecision(ranked, num_relevant)});
}

Json Squad(const Json& input) {
  std::vector<SquadQuestion> questions;
  for (const Json& question : input["questions"])
    questions.push_back({question["answers"], question["prediction"], question["null_score"]});
  const auto version = input["version"] == "2.0" ? SquadVersion::k2_0 : SquadVersion::k1_1;
  std::optional<double> threshold;
  if (input.contains("threshold")) threshold = input["threshold"].get<double>();
  const SquadReport report = ScoreSquad(questions, version, threshold);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const SquadMeans none{nan, nan, 0};
  const SquadMeans with = report.has_answer.value_or(none);
  const SquadMeans without = report.no_answer.value_or(none);
  return Numbers({report.all.exact, report.all.f1, with.exact, with.f1, without.exact, without.f1,
                  report.best_exact.best, report.best_exact.threshold, report.best_f1.best,
                  report.best_f1.threshold});
}

Json Texts(const Json& input) {
  Json out = Json::array();
  for (const std::string text : input["texts"]) {
    out.push_back(LowerCase(text));
    out.push_back(NormalizeAnswer(text));
  }
  return out;
}

// Which code points are word characters, as "0" and "1".
Json Words(const Json& input) {
  std::string flags;
  for (const uint32_t c : input["code_points"]) flags += IsWordCharacter(c) ? '1' : '0';
  return flags;
}

using Sentences = std::vector<std::vector<std::string>>;

// Of each sentence "TYPE BEGIN END ".
Json Entities(const Json& input) {
  Json out = Json::array();
  for (const auto& tags : input["sentences"].get<Sentences>()) {
    std::string text;
    for (const Entity& entity : EntitiesOf(tags))
      absl::StrAppendFormat(&text, "%s %d %d ", entity.type, entity.begin, entity.end);
    out.push_back(text);
  }
  return out;
}

Json Tagging(const Json& input) {
  const auto predicted = input["predicted"].get<Sentences>();
  const auto given = input["given"].get<Sentences>();
  EntityCounts counts;
  for (size_t i = 0; i < given.size(); ++i) counts.Add(CountEntities(predicted[i], given[i]));
  return Numbers({counts.precision(), counts.recall(), counts.f1()});
}

UnitVectors VectorsOf(const Json& states, int64_t dim) {
  std::vector<float> values;
  for (const Json& state : states)
    for (const Json& value : state) values.push_back(value.get<float>());
  return UnitVectors(values, dim);
}

std::vector<RankingQuery> QueriesOf(const Json& input) {
  const auto dim = input["dim"].get<int64_t>();
  std::vector<RankingQuery> queries;
  for (const Json& one : input["queries"]) {
    RankingQuery query{.grades = one["grades"].get<std::vector<int32_t>>()};
    const UnitVectors vectors = VectorsOf(one["states"], dim);
    for (const Json& document : one["documents"])
      query.features.push_back(PoolKernels(vectors, VectorsOf(document, dim)));
    queries.push_back(std::move(query));
  }
  return queries;
}

Json Ranker(const Json& input) {
  const std::vector<RankingQuery> queries = QueriesOf(input);
  KernelRanker start{.bias = input["bias"].get<double>()};
  start.weights = input["weights"].get<KernelFeatures>();
  Json output = {{"features", Json::array()}, {"scores", Json::array()}};
  std::vector<DocumentPair> pairs;
  for (const RankingQuery& query : queries) {
    output["features"].push_back(query.features);
    Json scores = Json::array();
    for (const KernelFeatures& features : query.features) scores.push_back(start.Score(features));
    output["scores"].push_back(scores);
    for (size_t i = 0; i < query.grades.size(); ++i)
      for (size_t j = 0; j < query.grades.size(); ++j)
        if (query.grades[i] > query.grades[j])
          pairs.emplace_back(&query.features[i], &query.features[j]);
  }
  RankerGradient gradient;
  output["loss"] = PairwiseHingeLoss(start, pairs, &gradient);
  output["gradient"] = gradient;
  const auto seed = input["seed"].get<uint64_t>();
  const auto folds = DealFolds(static_cast<int64_t>(queries.size()), input["folds"], seed);
  output["folds"] = folds;
  const TrainedRanker trained =
      TrainForFold(queries, folds, input["fold"], {.max_steps = input["max_steps"], .seed = seed})
          .value();
  output["trained"] = {{"weights", trained.ranker.weights},
                       {"bias", trained.ranker.bias},
                       {"step", trained.step},
                       {"num_steps", trained.num_steps},
                       {"validation_loss", trained.validation_loss}};
  return output;
}

Json Answer(const Json& input) {
  const std::string kind = input["kind"];
  if (kind == "classification") return Classification(input);
  if (kind == "correlation") return Correlation(input);
  if (kind == "ranking") return Ranking(input);
  if (kind == "squad") return Squad(input);
  if (kind == "entities") return Entities(input);
  if (kind == "tagging") return Tagging(input);
  if (kind == "ranker") return Ranker(input);
  return kind == "texts" ? Texts(input) : Words(input);
}

}  // namespace
}  // namespace anyorder::metrics

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::puts(anyorder::metrics::Answer(nlohmann::json::parse(line)).dump().c_str());
  }
  return 0;
}
