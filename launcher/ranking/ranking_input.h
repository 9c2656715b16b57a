// The files of a ranking task (data/trec) as one list of topics with their documents.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace anyorder::launcher {

struct RankingFiles {
  std::string topics;
  std::string run;  // of the first stage
  std::vector<std::string> collections;
  int64_t depth = 100;  // documents of a topic that are ranked
};

struct RankedTopic {
  std::string id;
  std::string query;
  // The first `depth` documents of the first stage, the best first: places in
  // RankingInput::documents. By score; of equal ones by the rank that the run says.
  std::vector<size_t> documents;
};

struct RankingInput {
  std::vector<RankedTopic> topics;     // that the run ranks documents for, in its order
  std::vector<std::string> documents;  // identifiers, each once
  std::vector<std::string> texts;      // of each
};

// FailedPrecondition for a topic without a query, or documents that no collection has; the readers'
// errors.
absl::StatusOr<RankingInput> ReadRankingInput(const RankingFiles& files);

// For each topic the grades of its documents: the largest of those that `qrels` gives for any
// subtopic; 0 where that is negative (spam) or nothing. FailedPrecondition if no topic is judged.
absl::StatusOr<std::vector<std::vector<int32_t>>> ReadGrades(const std::string& qrels,
                                                             const RankingInput& input);

}  // namespace anyorder::launcher
