// What core/ranking makes of the queries in a JSON file, as JSON, for ranker_parity.py, which says
// what is in both.

#include <nlohmann/json.hpp>

#include <cstdio>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/whole_file.h"
#include "core/ranking/kernel_ranker.h"

namespace anyorder {
namespace {

using Json = nlohmann::json;

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

int Main(const std::string& path) {
  const Json input = Json::parse(ReadWholeFile(path).value());
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
  std::puts(output.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace anyorder

int main(int argc, char** argv) {
  ANYORDER_CHECK(argc == 2) << "usage: ranker_dump INPUT.json";
  return anyorder::Main(argv[1]);
}
