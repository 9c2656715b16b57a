#include "launcher/ranking/ranking_input.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/counted.h"
#include "core/base/status.h"
#include "data/trec/document_files.h"
#include "data/trec/trec_files.h"

namespace anyorder::launcher {
namespace {

using Entries = std::vector<data::TrecRunEntry>;

// Of each topic, in the order of the file.
std::vector<Entries> ByTopic(Entries run) {
  std::vector<Entries> topics;
  std::unordered_map<std::string, size_t> places;
  for (data::TrecRunEntry& entry : run) {
    const auto [place, is_new] = places.emplace(entry.topic, topics.size());
    if (is_new) topics.emplace_back();
    topics[place->second].push_back(std::move(entry));
  }
  return topics;
}

void KeepBest(int64_t depth, Entries& entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.score != b.score ? a.score > b.score : a.rank < b.rank;
  });
  if (static_cast<int64_t>(entries.size()) > depth) entries.resize(static_cast<size_t>(depth));
}

absl::Status ReadTexts(const std::vector<std::string>& collections, RankingInput& input) {
  const std::unordered_set<std::string> wanted(input.documents.begin(), input.documents.end());
  data::TrecDocuments found;
  for (const std::string& path : collections)
    RETURN_IF_ERROR(data::ReadTrecDocuments(path, wanted, &found));
  for (const std::string& id : input.documents) {
    const auto text = found.find(id);
    if (text == found.end()) {
      return FailedPrecondition(
          Counted(static_cast<int64_t>(wanted.size() - found.size()), "document"), " of ",
          wanted.size(), " that the run ranks are in no --collection, ", id,
          " for one; name the files that hold them, too");
    }
    input.texts.push_back(std::move(text->second));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RankingInput> ReadRankingInput(const RankingFiles& files) {
  ASSIGN_OR_RETURN(const std::vector<data::TrecTopic> topics, data::ReadTrecTopics(files.topics));
  std::unordered_map<std::string, std::string> queries;
  for (const data::TrecTopic& topic : topics) queries.emplace(topic.id, topic.query);
  ASSIGN_OR_RETURN(Entries run, data::ReadTrecRun(files.run));
  RankingInput input;
  std::unordered_map<std::string, size_t> places;
  for (Entries& entries : ByTopic(std::move(run))) {
    const std::string& id = entries[0].topic;
    const auto query = queries.find(id);
    if (query == queries.end()) {
      return FailedPrecondition("'", files.run, "' ranks documents for topic ", id, ", which '",
                                files.topics, "' does not have");
    }
    KeepBest(files.depth, entries);
    RankedTopic topic{.id = id, .query = query->second};
    for (const data::TrecRunEntry& entry : entries) {
      const auto [place, is_new] = places.emplace(entry.document, input.documents.size());
      if (is_new) input.documents.push_back(entry.document);
      topic.documents.push_back(place->second);
    }
    input.topics.push_back(std::move(topic));
  }
  RETURN_IF_ERROR(ReadTexts(files.collections, input));
  return input;
}

absl::StatusOr<std::vector<std::vector<int32_t>>> ReadGrades(const std::string& qrels,
                                                             const RankingInput& input) {
  ASSIGN_OR_RETURN(const std::vector<data::TrecJudgment> judgments, data::ReadTrecJudgments(qrels));
  std::unordered_map<std::string, std::unordered_map<std::string, int32_t>> judged;
  for (const data::TrecJudgment& judgment : judgments) {
    int32_t& grade = judged[judgment.topic][judgment.document];
    grade = std::max(grade, judgment.relevance);
  }
  std::vector<std::vector<int32_t>> grades;
  bool is_any = false;
  for (const RankedTopic& topic : input.topics) {
    const auto of_topic = judged.find(topic.id);
    is_any |= of_topic != judged.end();
    grades.emplace_back(topic.documents.size(), 0);
    for (size_t n = 0; n < topic.documents.size() && of_topic != judged.end(); ++n) {
      const auto found = of_topic->second.find(input.documents[topic.documents[n]]);
      if (found != of_topic->second.end()) grades.back()[n] = found->second;
    }
  }
  if (is_any) return grades;
  return FailedPrecondition("'", qrels, "' judges no topic that the run ranks documents for");
}

}  // namespace anyorder::launcher
