// The text files of TREC's ranking tasks, such as the web tracks of 2009 to 2012 (ClueWeb09): what
// was asked, which documents assessors found relevant, and what a system ranked. Cells of the
// latter two stand between spaces or tabs; in all, blank lines are skipped and CRLF counts as LF.
// Identifiers are text, as the files have them.
//
// Errors: those of ReadWholeFile; DataLoss that names file, line and what is wrong, for a file
// without entries, too.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace anyorder::data {

struct TrecTopic {
  std::string id;     // "51"
  std::string query;  // one line, not empty
};

// Either the web track's XML: elements <topic number="51" ...> with a <query> each, of which
// nothing else is read; or lines `51:query`. The first year's ids "wt09-1" are "1", as its
// judgments have them. In the order of the file; no two have one id.
absl::StatusOr<std::vector<TrecTopic>> ReadTrecTopics(const std::string& path);

struct TrecJudgment {
  std::string topic;
  std::string subtopic;  // second column: 0, or of the diversity task a subtopic
  std::string document;
  int32_t relevance = 0;  // 0 or less: not relevant; -2: spam
};

// "qrels": topic, subtopic, document, relevance. No document is judged twice for one subtopic.
absl::StatusOr<std::vector<TrecJudgment>> ReadTrecJudgments(const std::string& path);

struct TrecRunEntry {
  std::string topic;
  std::string document;
  int64_t rank = 0;  // trec_eval ignores it and sorts by score
  double score = 0;  // finite
  std::string tag;   // the system's name
};

// A run: topic, Q0, document, rank, score, tag. No document comes twice for one topic. In the order
// of the file.
absl::StatusOr<std::vector<TrecRunEntry>> ReadTrecRun(const std::string& path);

}  // namespace anyorder::data
